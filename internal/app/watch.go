package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed-1cfd9858/relay/pump"
)

// defaultListen is where a relay answers unless told otherwise. A second relay on the host goes without.
const defaultListen = "127.0.0.1:9464"

// How long a trouble may last before a relay calls itself not ready, and how long its loop may take for a turn. An
// orchestrator should not act on what mends itself.
const (
	unreadyAfter = 5 * time.Second
	stalledAfter = 15 * time.Second
	hungAfter    = 30 * time.Second
)

// watched is what can be asked of a running relay.
type watched interface {
	Status() pump.Status
	Turned() time.Time
}

// unready says why the relay should get no trust at the moment, "" if it should. A healthy standby is ready.
func unready(s pump.Status, now time.Time) string {
	switch {
	case s.State == pump.StateDraining || s.State == pump.StateStopped:
		return "the relay is stopping"
	case s.WaitingFor != "" && now.Sub(s.WaitingSince) >= unreadyAfter:
		return fmt.Sprintf("waiting for %s: %s", now.Sub(s.WaitingSince).Round(time.Second), s.WaitingFor)
	case s.State == pump.StateResuming && now.Sub(s.Since) >= unreadyAfter:
		return fmt.Sprintf("has been reading the stream back for %s", now.Sub(s.Since).Round(time.Second))
	case s.Events > 0 && now.Sub(latest(s.LastStored, s.Oldest, s.Since)) >= stalledAfter:
		return fmt.Sprintf("%d events wait, and nothing was stored for %s", s.Events, now.Sub(latest(s.LastStored, s.Oldest, s.Since)).Round(time.Second))
	}
	return ""
}

func latest(times ...time.Time) (last time.Time) {
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}

// hung says why the process should be restarted, "" if it should not. That a server is away is no reason.
func hung(turned, now time.Time) string {
	if silent := now.Sub(turned); silent >= hungAfter {
		return fmt.Sprintf("the relay's loop has not turned for %s", silent.Round(time.Second))
	}
	return ""
}

// handler answers about a relay.
func handler(w watched, m *metrics) http.Handler {
	mux := http.NewServeMux()
	probe := func(fault func() string) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
			text := fault()
			if text == "" {
				text = "ok"
			} else {
				rw.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = fmt.Fprintln(rw, text) // a client that is gone needs no answer
		}
	}
	mux.HandleFunc("GET /livez", probe(func() string { return hung(w.Turned(), time.Now()) }))
	mux.HandleFunc("GET /readyz", probe(func() string { return unready(w.Status(), time.Now()) }))
	mux.HandleFunc("GET /status", func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		_ = printJSON(rw, selfReport(w.Status(), time.Now()))
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	return mux
}

// self is what a relay says of itself. Keys are stable; unknown is null.
type self struct {
	State        string     `json:"state"`
	Since        time.Time  `json:"since"`
	Ready        bool       `json:"ready"`
	Reason       *string    `json:"reason"` // why it is not ready
	WaitingFor   *string    `json:"waiting_for"`
	WaitingSince *time.Time `json:"waiting_since"`
	LagSeconds   *float64   `json:"lag_seconds"`
	Events       int        `json:"events"` // read and not stored
	Bytes        int        `json:"bytes"`
	ConfirmedLSN *string    `json:"confirmed_lsn"`
	LastStoredAt *time.Time `json:"last_stored_at"`
	Published    uint64     `json:"published"`
	Skipped      uint64     `json:"skipped"`
}

func selfReport(s pump.Status, now time.Time) self {
	r := self{
		State: string(s.State), Since: s.Since, Ready: true, Events: s.Events, Bytes: s.Bytes,
		Published: s.Counts.Published, Skipped: s.Counts.Skipped,
	}
	if text := unready(s, now); text != "" {
		r.Ready, r.Reason = false, &text
	}
	if s.WaitingFor != "" {
		r.WaitingFor, r.WaitingSince = &s.WaitingFor, &s.WaitingSince
	}
	if lag, known := s.Lag(now); known {
		seconds := lag.Seconds()
		r.LagSeconds = &seconds
	}
	if s.Leading() && s.Confirmed > 0 {
		text := s.Confirmed.String()
		r.ConfirmedLSN = &text
	}
	if !s.LastStored.IsZero() {
		r.LastStoredAt = &s.LastStored
	}
	return r
}

// listen opens the port before anything is touched. An address that was asked for must be free; the default one need not
// be: another relay on this host has it then.
func (cfg runConfig) listenHTTP(ctx context.Context) (net.Listener, error) {
	if cfg.listen == "" {
		return nil, nil
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", cfg.listen)
	switch {
	case err == nil:
		return listener, nil
	case cfg.listenGiven:
		return nil, failed(fmt.Errorf("cannot listen on %s: %w", cfg.listen, err), "choose another address with --listen, or none: --listen ''")
	}
	cfg.log.Warn("no health and no metrics from this relay: the default port is taken", "address", cfg.listen, "err", err)
	return nil, nil
}

// serve answers on a listener until stop is called. A nil listener is none.
func (cfg runConfig) serve(listener net.Listener, h http.Handler) (stop func()) {
	if listener == nil {
		return func() {}
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second}
	var owner sync.WaitGroup
	owner.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			cfg.log.Error("health and metrics are gone", "address", cfg.listen, "err", err)
		}
	})
	cfg.log.Info("health and metrics", "url", "http://"+listener.Addr().String())
	return func() {
		_ = server.Close() // nobody waits for an answer from a relay that has stopped
		owner.Wait()
	}
}
