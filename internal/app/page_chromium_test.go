package app

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// The page in a browser, in every state, on a desk and on a phone, by day and by night. RELAY_PAGE_SHOTS names a folder
// that gets the pictures.
func TestPageInChromium(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser takes some seconds")
	}
	shots := os.Getenv("RELAY_PAGE_SHOTS")
	b := startBrowser(t)
	now := time.Now()
	all := scenes(now)
	if shots == "" {
		all = all[:5] // the others look like these
	}
	for _, s := range all {
		server := httptest.NewServer(s.page(t, now))
		defer server.Close()
		for _, look := range []struct {
			name  string
			width int
			dark  bool
		}{{"desk", 1200, false}, {"desk-dark", 1200, true}, {"phone", 375, false}, {"phone-dark", 375, true}} {
			if shots == "" && (look.width < 500) != look.dark {
				continue // every state once on a desk by day and on a phone by night is enough to find what is broken
			}
			name := s.name + "-" + look.name
			b.look(server.URL, look.width, look.dark)
			sandbox.WaitFor(t, 20*time.Second, name+": the charts are drawn", func() (bool, error) {
				return b.eval("document.querySelectorAll('.plot svg').length") == "4", nil
			})
			if got := b.eval("document.documentElement.scrollWidth"); got != fmt.Sprint(look.width) {
				t.Errorf("%s: %s wide, want %d: something sticks out", name, got, look.width)
			}
			if got := b.eval("document.querySelector('h1').textContent"); !strings.HasPrefix(strings.Trim(got, `"`), s.says) {
				t.Errorf("%s: says %s, want %s", name, got, s.says)
			}
			if got := b.eval(lowContrast); got != `""` {
				t.Errorf("%s: hard to read: %s", name, got)
			}
			if got := b.eval("document.getElementById('stale').hidden"); got != "true" {
				t.Errorf("%s: calls itself old", name)
			}
			if shots != "" {
				b.shot(filepath.Join(shots, name+".png"))
			}
		}
		server.Close()
	}
	for _, line := range b.complaints {
		t.Errorf("the browser complains: %s", line)
	}
}

// A page whose relay is gone says so.
func TestPageTellsThatItIsOld(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser takes some seconds")
	}
	b := startBrowser(t)
	now := time.Now()
	server := httptest.NewServer(scenes(now)[0].page(t, now))
	defer server.Close()
	b.look(server.URL, 375, false)
	sandbox.WaitFor(t, 20*time.Second, "the charts are drawn", func() (bool, error) {
		return b.eval("document.querySelectorAll('.plot svg').length") == "4", nil
	})
	server.Close()
	sandbox.WaitFor(t, 30*time.Second, "the page says that it is old", func() (bool, error) {
		return strings.Contains(b.eval("document.getElementById('stale').checkVisibility() && document.getElementById('stale').textContent"), "has not answered since"), nil
	})
	if dir := os.Getenv("RELAY_PAGE_SHOTS"); dir != "" {
		b.shot(filepath.Join(dir, "old-phone.png"))
	}
}

// lowContrast names the first text whose contrast with its background is under 4.5 (WCAG AA).
const lowContrast = `(() => {
  const parse = (c) => c.match(/[\d.]+/g).map(Number);
  const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
  for (const e of document.querySelectorAll('h1,h2,p,b,dt,dd,li,span,code,a,time')) {
    if (!e.textContent.trim() || !e.checkVisibility()) continue;
    let at = e, back;
    do { back = parse(getComputedStyle(at).backgroundColor); at = at.parentElement; } while (at && back.length > 3 && back[3] === 0);
    if (back.length > 3 && back[3] === 0) continue;
    const a = light(parse(getComputedStyle(e).color).slice(0, 3)), b = light(back.slice(0, 3));
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) return e.tagName + ' ' + ratio.toFixed(2) + ' ' + e.textContent.trim().slice(0, 40);
  }
  return '';
})()`

// browser is a headless Chromium, driven by its protocol over two pipes.
type browser struct {
	t          *testing.T
	in         *os.File
	out        *bufio.Reader
	session    string
	id         int
	complaints []string // of the console, and what the page's policy refused
}

func startBrowser(t *testing.T) *browser {
	t.Helper()
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome-headless-shell"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("no Chromium here (Debian: apt-get install chromium): the page is tested without a browser only")
	}
	theirIn, ourOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ourIn, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	profile := t.TempDir()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--hide-scrollbars", "--no-first-run", "--remote-debugging-pipe", "--user-data-dir="+profile, "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	b := &browser{t: t, in: ourOut, out: bufio.NewReader(ourIn)}
	t.Cleanup(func() {
		b.session = ""
		b.send("Browser.close", nil)
		hung := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // how it ended is no matter
		hung.Stop()
		ourOut.Close()
		ourIn.Close()
		sandbox.WaitFor(t, 10*time.Second, "the last of its processes lets go of the profile", func() (bool, error) { return os.RemoveAll(profile) == nil, nil })
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

func (b *browser) send(method string, params any) {
	b.id++
	if params == nil {
		params = struct{}{}
	}
	request := map[string]any{"id": b.id, "method": method, "params": params}
	if b.session != "" {
		request["sessionId"] = b.session
	}
	text, err := json.Marshal(request)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.in.Write(append(text, 0)); err != nil {
		b.t.Errorf("%s: %v", method, err)
	}
}

// call sends a command and waits for its answer. What is told meanwhile is noted if it is a complaint.
func (b *browser) call(method string, params, result any) {
	b.t.Helper()
	b.send(method, params)
	for {
		text, err := b.out.ReadBytes(0)
		if err != nil {
			b.t.Fatalf("%s: %v", method, err)
		}
		var m struct {
			ID     int
			Method string
			Error  *struct{ Message string }
			Result json.RawMessage
			Params json.RawMessage
		}
		if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
			b.t.Fatal(err)
		}
		switch {
		case m.Method == "Runtime.exceptionThrown", m.Method == "Log.entryAdded", m.Method == "Runtime.consoleAPICalled":
			b.complaints = append(b.complaints, string(m.Params))
		case m.ID != b.id:
		case m.Error != nil:
			b.t.Fatalf("%s: %s", method, m.Error.Message)
		default:
			if result != nil {
				if err := json.Unmarshal(m.Result, result); err != nil {
					b.t.Fatal(err)
				}
			}
			return
		}
	}
}

func (b *browser) look(url string, width int, dark bool) {
	b.t.Helper()
	scheme := map[bool]string{false: "light", true: "dark"}[dark]
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	b.call("Page.navigate", map[string]any{"url": url}, nil)
}

// eval returns what an expression is, as JSON.
func (b *browser) eval(expression string) string {
	b.t.Helper()
	var answer struct {
		Result struct{ Value json.RawMessage }
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &answer)
	return string(answer.Result.Value)
}

func (b *browser) shot(path string) {
	b.t.Helper()
	var answer struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true}, &answer)
	picture, err := base64.StdEncoding.DecodeString(answer.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, picture, 0o600); err != nil {
		b.t.Fatal(err)
	}
}
