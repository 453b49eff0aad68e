package app

import (
	"net/http"
	"time"

	"github.com/seed-1cfd9858/relay/pump"
)

// selfStatus is the answer of a relay's /status: what it says of itself, and what `relay status` needs to know whose figures
// these are.
type selfStatus struct {
	self
	Slot        string     `json:"slot"`
	Holder      *holder    `json:"holder"` // of the slot, as this relay saw it last; null if nobody held it
	Full        bool       `json:"full"`   // it reads no more until something is stored
	Rates       walRates   `json:"slot_rates"`
	LastFailure *failure   `json:"last_failure"`
	Version     string     `json:"version"`
	At          *time.Time `json:"at"`
}

// holder is a session of PostgreSQL. With the time at which it began it is one of its kind.
type holder struct {
	PID   int32      `json:"pid"`
	Since *time.Time `json:"since"`
}

// statusOver serves /status, and everything else as next does.
func (cfg runConfig) statusOver(next http.Handler, status func() pump.Status, past *history, trouble *failures) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		_ = printJSON(rw, cfg.selfStatus(status(), past, trouble, time.Now())) // a client that is gone needs no answer
	})
	mux.Handle("/", next)
	return mux
}

func (cfg runConfig) selfStatus(s pump.Status, past *history, trouble *failures, now time.Time) selfStatus {
	at := now.UTC()
	r := selfStatus{
		self: selfReport(s, now), Slot: cfg.slot.Slot, Rates: ratesOf(past.all()), Version: readVersion().Version, At: &at,
		Full: s.Events >= cfg.window || s.Bytes >= cfg.windowBytes,
	}
	if s.Slot != nil && s.Slot.ActivePID != nil {
		r.Holder = &holder{PID: *s.Slot.ActivePID}
		if s.Slot.Holder != nil {
			r.Holder.Since = s.Slot.Holder.Since
		}
	}
	if all := trouble.list(); len(all) > 0 {
		r.LastFailure = &all[0]
	}
	return r
}
