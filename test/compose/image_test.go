package compose_test

import (
	"go/version"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func dockerfile(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "\\\n", " ")
}

// output runs a program at the top of the repository and returns its standard output; it must succeed.
func output(t *testing.T, program string, args, env []string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), env...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", program, strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String()
}

// module returns the version of a module that the build uses, without its v.
func module(t *testing.T, path string) string {
	t.Helper()
	return strings.TrimPrefix(strings.TrimSpace(output(t, "go", []string{"list", "-m", "-f", "{{.Version}}", path}, nil)), "v")
}

const builtFile = "/out/relay"

// sources lists the files that go build reads in this repository. It looks at each of them and at its folder, so that go test
// takes a run from its cache only if none has changed: what a child process reads it does not see.
func sources(t *testing.T) []string {
	t.Helper()
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	const files = `{{with .Module}}{{if .Main}}{{range $.GoFiles}}{{$.Dir}}/{{.}}
{{end}}{{range $.EmbedFiles}}{{$.Dir}}/{{.}}
{{end}}{{end}}{{end}}`
	paths := strings.Fields(output(t, "go", []string{"list", "-deps", "-f", files, "."}, nil))
	paths = append(paths, filepath.Join(top, "go.mod"), filepath.Join(top, "go.sum"))
	for i, path := range paths {
		for _, look := range []string{path, filepath.Dir(path)} {
			if _, err := os.Stat(look); err != nil {
				t.Fatal(err)
			}
		}
		if paths[i], err = filepath.Rel(top, path); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

// build runs the Dockerfile's own build line, with the output in a folder of the test.
func build(t *testing.T, v string) string {
	t.Helper()
	var line string
	for text := range strings.Lines(dockerfile(t)) {
		if command, ok := strings.CutPrefix(strings.TrimSpace(text), "RUN "); ok && strings.Contains(command, "go build") {
			line = command
		}
	}
	if !strings.Contains(line, "-o "+builtFile+" ") {
		t.Fatalf("want a line that runs go build with -o %s, got %q", builtFile, line)
	}
	sources(t)
	binary := filepath.Join(t.TempDir(), "relay")
	output(t, "sh", []string{"-c", strings.Replace(line, builtFile, binary, 1)}, []string{"VERSION=" + v})
	return binary
}

func TestImageVersion(t *testing.T) {
	t.Parallel()
	const want = "v1.2.3-test"
	if got := output(t, build(t, want), []string{"version"}, nil); !strings.Contains(got, want) {
		t.Errorf("built with VERSION=%s, relay version says %q", want, got)
	}
}

func TestImage(t *testing.T) {
	t.Parallel()
	text := dockerfile(t)
	images := regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(text, -1)
	for _, image := range images {
		if image[1] != "scratch" && !pinned(image[1]) {
			t.Errorf("image %s is not pinned to a version", image[1])
		}
	}
	if len(images) < 2 || images[len(images)-1][1] != "scratch" {
		t.Errorf("want a build and then FROM scratch, got %q", images)
	}
	for _, line := range []string{"USER 65532:65532", `ENTRYPOINT ["/relay"]`} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	compiler := regexp.MustCompile(`FROM golang:([0-9.]+)-`).FindStringSubmatch(text)
	if compiler == nil {
		t.Fatal("no golang image")
	}
	want := strings.TrimSpace(output(t, "go", []string{"list", "-m", "-f", "{{.GoVersion}}"}, nil))
	if version.Compare("go"+compiler[1], "go"+want) < 0 {
		t.Errorf("the image has Go %s, go.mod asks for %s", compiler[1], want)
	}
}

// TestBuildContext looks whether .dockerignore, which names what may go into the build, lets in all that the build reads.
func TestBuildContext(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	var allowed []string
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "!"); ok {
			allowed = append(allowed, path)
		}
	}
	read := sources(t)
	for _, path := range read {
		if !slices.ContainsFunc(allowed, func(a string) bool { return path == a || strings.HasPrefix(path, a+"/") }) {
			t.Errorf("%s is read by the build but .dockerignore keeps it out", path)
		}
	}
}
