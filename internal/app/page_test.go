package app

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/seed-1cfd9858/relay/pump"
)

func ask(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	return rec
}

// Each state is told in words, without the script.
func TestPageSays(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, s := range scenes(now) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			answer := ask(t, s.page(t, now), "/")
			if answer.Code != http.StatusOK {
				t.Fatalf("%d %s", answer.Code, answer.Body)
			}
			doc := parse(t, answer.Body.String())
			if got := words(doc.find("h1")[0]); !strings.HasPrefix(got, s.says) {
				t.Errorf("says %q, want %q", got, s.says)
			}
			if class := attribute(doc.byID("verdict"), "class"); !strings.HasSuffix(class, " "+string(s.level)) {
				t.Errorf("class %q, want %s", class, s.level)
			}
			text := words(doc.root)
			for _, want := range s.also {
				if !strings.Contains(text, want) {
					t.Errorf("%q is missing in:\n%s", want, text)
				}
			}
			marked := 0
			for _, g := range doc.find("g") {
				if strings.Contains(attribute(g, "class"), "now") {
					marked++
				}
			}
			if marked != 2 {
				t.Errorf("%d states are marked, want one in each of the two drawings", marked)
			}
		})
	}
}

// The page is one document that asks nothing from elsewhere, and lets the browser run nothing but its own script.
func TestPageIsSelfContained(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, s := range scenes(now) {
		answer := ask(t, s.page(t, now), "/")
		doc := parse(t, answer.Body.String())
		ids := map[string]bool{}
		doc.walk(func(n *html.Node) {
			for _, a := range n.Attr {
				switch {
				case a.Key == "style" || strings.HasPrefix(a.Key, "on"):
					t.Errorf("%s: <%s %s>: the policy forbids it", s.name, n.Data, a.Key)
				case n.Data == "a" && strings.HasPrefix(a.Val, "https://github.com/seed-1cfd9858/relay/blob/main/docs/runbook.md#"): // for who wants it
				case (a.Key == "src" || a.Key == "href") && (strings.Contains(a.Val, "//") || strings.HasPrefix(a.Val, "/")):
					t.Errorf("%s: <%s %s=%q> leaves the page", s.name, n.Data, a.Key, a.Val)
				case a.Key == "id" && ids[a.Val]:
					t.Errorf("%s: id %q is there twice", s.name, a.Val)
				case a.Key == "id":
					ids[a.Val] = true
				case a.Key == "aria-labelledby" && doc.byID(a.Val) == nil:
					t.Errorf("%s: nothing has the id %q", s.name, a.Val)
				case a.Key == "data-live" && attribute(n, "id") == "":
					t.Errorf("%s: <%s> is live and has no id", s.name, n.Data)
				}
			}
		})
		policy := answer.Header().Get("Content-Security-Policy")
		for _, name := range []string{"script", "style"} {
			sum := sha256.Sum256([]byte(doc.find(name)[0].FirstChild.Data))
			if want := name + "-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(policy, want) {
				t.Errorf("the policy %s lacks %s", policy, want)
			}
		}
		if len(doc.find("script")) != 1 || len(doc.find("style")) != 1 {
			t.Error("want one script and one style")
		}
	}
}

// What others say is shown, not run.
func TestPageEscapes(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := scenes(now)[0]
	s.status = func(now time.Time) pump.Status {
		st := leadingStatus(now)
		st.State, st.WaitingFor, st.WaitingSince = pump.StateResuming, `</script><script>alert(1)</script>`, now.Add(-time.Minute)
		return st
	}
	body := ask(t, s.page(t, now), "/").Body.String()
	if strings.Contains(body, "<script>alert") || !strings.Contains(body, "&lt;/script&gt;") {
		t.Error("a reason is taken for HTML")
	}
}

func TestPageHistory(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, s := range scenes(now) {
		answer := ask(t, s.page(t, now), "/status/history")
		var r struct {
			Every   float64 `json:"every_seconds"`
			Verdict struct{ Level, Text string }
			Danger  struct {
				LostSeconds *float64 `json:"lost_seconds"`
				Used        *float64
			} `json:"slot_danger"`
			Samples []map[string]any
		}
		if err := json.Unmarshal(answer.Body.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		if r.Every != 5 || r.Verdict.Level != string(s.level) || len(r.Samples) != maxSamples {
			t.Errorf("%s: %+v, %d samples", s.name, r.Verdict, len(r.Samples))
		}
		for _, key := range []string{"at", "state", "paused", "events_per_second", "lag_seconds", "events", "latency_mean_seconds", "latency_max_seconds", "retained_bytes", "safe_bytes"} {
			if _, there := r.Samples[0][key]; !there {
				t.Errorf("%s: no %s in a sample", s.name, key)
			}
		}
		if s.name == "away" && r.Samples[0]["lag_seconds"] != nil {
			t.Error("a relay that does not lead knows its lag")
		}
		if len(answer.Body.Bytes()) > 80<<10 {
			t.Errorf("%s: %d bytes", s.name, answer.Body.Len())
		}
	}
}

// What was there before is still there, and nothing else is.
func TestPageLeavesTheRest(t *testing.T) {
	t.Parallel()
	now := time.Now()
	h := scenes(now)[0].page(t, now)
	for path, want := range map[string]int{
		"/livez": 200, "/readyz": 200, "/status": 200, "/metrics": 200, "/index.html": 404, "/page.html": 404, "/status/": 404,
	} {
		if got := ask(t, h, path).Code; got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
}

func BenchmarkPage(b *testing.B) {
	now := time.Now()
	h := &history{}
	status := leadingStatus(now)
	for ago := historySpan; ago >= 0; ago -= sampleEvery {
		h.add(status, now.Add(-ago))
	}
	w := &told{status: status, turned: now}
	watch, stop := newStreamWatch(b.Context(), nil)
	stop()
	whole := newPage(w, h, &failures{}, pageFacts{}, watch)
	p := whole.over(http.NotFoundHandler())
	for _, path := range []string{"/", "/status/history"} {
		b.Run(path, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				whole.html.made, whole.json.made = time.Time{}, time.Time{} // make it anew each time
				p.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(b.Context(), http.MethodGet, path, http.NoBody))
			}
		})
	}
	b.Run("sample", func(b *testing.B) {
		for b.Loop() {
			h.add(status, now)
		}
	})
	b.Run("observe", func(b *testing.B) {
		for b.Loop() {
			h.observe(time.Millisecond)
		}
	})
}

// document is a parsed page.
type document struct{ root *html.Node }

func parse(t *testing.T, text string) document {
	t.Helper()
	root, err := html.Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return document{root}
}

func (d document) walk(visit func(*html.Node)) {
	for n := range d.root.Descendants() {
		if n.Type == html.ElementNode {
			visit(n)
		}
	}
}

func (d document) find(name string) (all []*html.Node) {
	d.walk(func(n *html.Node) {
		if n.Data == name {
			all = append(all, n)
		}
	})
	return all
}

func (d document) byID(id string) (found *html.Node) {
	d.walk(func(n *html.Node) {
		if attribute(n, "id") == id {
			found = n
		}
	})
	return found
}

func attribute(n *html.Node, key string) string {
	if n != nil {
		for _, a := range n.Attr {
			if a.Key == key {
				return a.Val
			}
		}
	}
	return ""
}

// words returns what a reader sees, in one line.
func words(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode && d.Parent.DataAtom != atom.Script && d.Parent.DataAtom != atom.Style {
			b.WriteString(d.Data)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
