package app

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"sync"
	"time"
)

// The page is one document: its style and its script are inside it, and the browser is told their hashes, so that it runs
// nothing else.
//
//go:embed page/page.html page/style.css page/script.js
var pageFiles embed.FS

// page answers people who have no dashboard: what the relay does, since when, how the last quarter of an hour went, and how
// near the slot is to being lost.
type page struct {
	relay    watched
	history  *history
	failures *failures
	facts    pageFacts
	stream   *streamWatch
	now      func() time.Time

	template      *template.Template
	style, script string
	policy        string
	html, json    answer
}

// pageFacts do not change while a relay runs.
type pageFacts struct {
	Version  string `json:"version"`
	Slot     string `json:"slot"`
	Table    string `json:"table"`
	Postgres string `json:"postgres"`
	Stream   string `json:"stream"`
	Subject  string `json:"subject"`
	NATS     string `json:"nats"`
}

func (cfg runConfig) pageFacts() pageFacts {
	return pageFacts{
		Version: readVersion().Version, Slot: cfg.slot.Slot, Table: cfg.slot.Table.String(), Postgres: databaseName(cfg.database),
		Stream: cfg.stream, Subject: cfg.subject.String(), NATS: cfg.nats.Servers(),
	}
}

// newPage makes the page of a relay. What is embedded is known to be whole: a test renders it.
func newPage(relay watched, h *history, f *failures, facts pageFacts, stream *streamWatch) *page {
	read := func(name string) string {
		text, _ := pageFiles.ReadFile("page/" + name) // embedded: it is there
		return string(text)
	}
	p := &page{relay: relay, history: h, failures: f, facts: facts, stream: stream, now: time.Now, style: read("style.css"), script: read("script.js")}
	p.template = template.Must(template.New("page").Funcs(pageFuncs()).Parse(read("page.html")))
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	p.policy = fmt.Sprintf("default-src 'none'; style-src %s; script-src %s; connect-src 'self'; img-src data:; base-uri 'none'; "+
		"form-action 'none'; frame-ancestors 'none'", hash(p.style), hash(p.script))
	return p
}

// over returns a handler that serves the page, and everything else as next does.
func (p *page) over(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", p.serveHTML)
	mux.HandleFunc("GET /status/history", p.serveJSON)
	mux.Handle("/", next)
	return mux
}

func (p *page) serveHTML(rw http.ResponseWriter, _ *http.Request) {
	p.stream.wanted() //nolint:contextcheck // the question outlives the request
	h := rw.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", p.policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	p.html.serve(rw, func(b *bytes.Buffer) error { return p.template.Execute(b, p.view(p.now())) })
}

// historyReport is the answer of /status/history. Its keys are stable; unknown is null.
type historyReport struct {
	At       time.Time `json:"at"`
	Every    float64   `json:"every_seconds"`
	Verdict  verdict   `json:"verdict"`
	Danger   danger    `json:"slot_danger"`
	Rates    walRates  `json:"slot_rates"`
	Failures []failure `json:"failures"` // the last kinds of trouble, the newest first
	Samples  []sample  `json:"samples"`  // oldest first
}

func (p *page) serveJSON(rw http.ResponseWriter, _ *http.Request) {
	rw.Header().Set("Content-Type", "application/json")
	p.json.serve(rw, func(b *bytes.Buffer) error {
		v := p.view(p.now())
		return json.NewEncoder(b).Encode(historyReport{
			At: v.Now, Every: sampleEvery.Seconds(), Verdict: v.Verdict, Danger: v.Danger, Rates: v.Rates, Failures: v.Failures, Samples: v.samples,
		})
	})
}

// answer is made at most every two seconds, so that many readers cost the leader what one does.
type answer struct {
	mu   sync.Mutex
	made time.Time
	text []byte
}

const answerFor = 2 * time.Second

func (a *answer) serve(rw http.ResponseWriter, write func(*bytes.Buffer) error) {
	a.mu.Lock()
	if a.made.IsZero() || time.Since(a.made) >= answerFor {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			a.mu.Unlock()
			http.Error(rw, "this cannot be answered: "+err.Error(), http.StatusInternalServerError)
			return
		}
		a.made, a.text = time.Now(), b.Bytes()
	}
	text := a.text // never changed, only replaced
	a.mu.Unlock()
	rw.Header().Set("Cache-Control", "no-store")
	_, _ = rw.Write(text) // a client that is gone needs no answer
}
