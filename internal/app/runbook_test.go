package app

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-1cfd9858/relay/pump"
)

// Every message that a relay can log as a warning or an error has a section, and the section is there.
func TestRunbookHasEveryMessage(t *testing.T) {
	t.Parallel()
	anchors, told := runbookAnchors(t), map[string]bool{}
	for _, dir := range []string{".", "../../pump", "../../publisher", "../../replication", "../../slot", "../../outbox"} {
		for _, file := range sources(t, dir) {
			syntax, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(syntax, func(n ast.Node) bool {
				if message, is := loggedMessage(n); is {
					told[message] = true
					if section := runbookSection(message); !anchors[section] {
						t.Errorf("%s: %q has no section in %s: give it one in runbook.go (it has %q)", file, message, runbookPage, section)
					}
				}
				return true
			})
		}
	}
	if len(told) < 15 {
		t.Errorf("only %d messages were found: is the search broken?", len(told))
	}
	syntax, err := parser.ParseFile(token.NewFileSet(), "runbook.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(syntax, func(n ast.Node) bool {
		if c, is := n.(*ast.CaseClause); is {
			for _, e := range c.List {
				if text, err := strconv.Unquote(e.(*ast.BasicLit).Value); err != nil || !told[text] { //nolint:forcetypeassert // the cases are strings
					t.Errorf("runbook.go: nobody logs %q any more", text)
				}
			}
		}
		return true
	})
}

// loggedMessage returns the text of a call like log.Warn("text", ...).
func loggedMessage(n ast.Node) (string, bool) {
	call, is := n.(*ast.CallExpr)
	if !is || len(call.Args) == 0 {
		return "", false
	}
	method, is := call.Fun.(*ast.SelectorExpr)
	if !is || (method.Sel.Name != "Warn" && method.Sel.Name != "Error") {
		return "", false
	}
	text, is := call.Args[0].(*ast.BasicLit)
	if !is || text.Kind != token.STRING {
		return "", false
	}
	message, err := strconv.Unquote(text.Value)
	return message, err == nil
}

func sources(t *testing.T, dir string) (files []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		if !strings.HasSuffix(file, "_test.go") {
			files = append(files, file)
		}
	}
	return files
}

// runbookAnchors are the runbook's headings as links name them.
func runbookAnchors(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../../" + runbookPage)
	if err != nil {
		t.Fatal(err)
	}
	anchors := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			title := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
			anchors[strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(title, ""), " ", "-")] = true
		}
	}
	return anchors
}

func TestLogNamesTheRunbook(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	log := newLogger(&b, "info", "text").With("slot", "s")
	log.Warn("publishing is paused, trying again", "code", "refused")
	log.Info("publishing goes on")
	log.Warn("what nobody knows")
	lines := strings.Split(b.String(), "\n")
	if !strings.Contains(lines[0], "slot=s code=refused runbook=docs/runbook.md#stalled") || strings.Contains(lines[1]+lines[2], "runbook") {
		t.Error(b.String())
	}
}

// What the dashboard and the alerts ask for is what a relay tells.
func TestDeployedMetrics(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	m.of(func() pump.Status { return pump.Status{} })
	(&keeper{}).register(m.registry)
	there := metricNames(t, m.registry)
	asked := 0
	err := filepath.WalkDir("../../deploy", func(path string, d fs.DirEntry, err error) error {
		if err != nil || (!strings.HasSuffix(path, ".json") && !strings.HasSuffix(path, ".rules.yml")) {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, name := range regexp.MustCompile(`\brelay_[a-z0-9_]+\b`).FindAllString(string(text), -1) {
			asked++
			if !there[name] {
				t.Errorf("%s: a relay has no metric %s", path, name)
			}
		}
		return nil
	})
	if err != nil || asked < 40 {
		t.Errorf("%d names, %v", asked, err)
	}
}

func metricNames(t *testing.T, g prometheus.Gatherer) map[string]bool {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, f := range families {
		names[f.GetName()] = true
		if f.GetType().String() == "HISTOGRAM" {
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				names[f.GetName()+part] = true
			}
		}
	}
	return names
}
