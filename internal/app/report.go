package app

import (
	"fmt"
	"time"

	"github.com/seed-1cfd9858/relay/publisher"
	"github.com/seed-1cfd9858/relay/slot"
)

// The verdicts of status.
const (
	verdictOK     = "ok"
	verdictBehind = "behind" // a threshold that was given is exceeded
	verdictBroken = "broken"
)

// Codes of reasons that neither PostgreSQL's state nor the stream gives.
const (
	codePostgresUnreachable = "postgres_unreachable"
	codeNATSUnreachable     = "nats_unreachable"
	codeStreamMissing       = "stream_missing"
	codeStreamUnknown       = "stream_unknown"
	codeNoLeader            = "no_leader"
	codeLagSecondsUnknown   = "lag_seconds_unknown"
	codePendingUnknown      = "pending_unknown"
	codePendingEstimated    = "pending_estimated"
	codeLeaderNotReady      = "leader_not_ready"
	codeRelayUnreachable    = "relay_unreachable"
	codeRelayNotLeader      = "relay_not_leader"
	codeSlotDanger          = "slot_danger"
	codeLagBytesExceeded    = "lag_bytes_exceeded"
	codeLagSecondsExceeded  = "lag_seconds_exceeded"
)

// statusReport is the answer of status. Its keys are stable. What is not known is null, never 0.
type statusReport struct {
	Slot        *slotReport   `json:"slot"`
	Lag         lagReport     `json:"lag"`
	Pending     pendingReport `json:"pending"`
	Leader      *leaderReport `json:"leader"`
	Stream      *streamReport `json:"stream"`
	LastFailure *failure      `json:"last_failure"` // of the leader
	Verdict     string        `json:"verdict"`
	Reasons     []reason      `json:"reasons"`
}

type slotReport struct {
	Name               string  `json:"name"`
	Database           *string `json:"database"`
	Active             bool    `json:"active"`
	ActivePID          *int32  `json:"active_pid"`
	ConfirmedFlushLSN  *string `json:"confirmed_flush_lsn"`
	RestartLSN         *string `json:"restart_lsn"`
	WALStatus          *string `json:"wal_status"`
	SafeWALBytes       *int64  `json:"safe_wal_bytes"`
	RetainedBytes      *int64  `json:"retained_bytes"`
	Failover           *bool   `json:"failover"`
	InvalidationReason *string `json:"invalidation_reason"`

	TransactionBytes  *int64   `json:"transaction_bytes"`    // of the retained ones: kept for the oldest running transaction
	MaxRetainedBytes  *int64   `json:"max_retained_bytes"`   // max_slot_wal_keep_size; null without limit
	WALBytesPerSecond *float64 `json:"wal_bytes_per_second"` // that the server writes
	LostInSeconds     *float64 `json:"lost_in_seconds"`      // at that rate, if nothing is confirmed; null if never or not known
}

type lagReport struct {
	Bytes   *int64   `json:"bytes"`
	Seconds *float64 `json:"seconds"`
}

type pendingReport struct {
	Events           *int64   `json:"events"`
	Exact            *bool    `json:"exact"`
	OldestAgeSeconds *float64 `json:"oldest_age_seconds"`
	AtLeast          *bool    `json:"at_least"` // there may be more
	Source           *string  `json:"source"`   // confirmed, leader, or rows for an estimate
}

type leaderReport struct {
	PID             int32      `json:"pid"`
	Address         *string    `json:"address"`
	ApplicationName *string    `json:"application_name"`
	Since           *time.Time `json:"since"`
	State           *string    `json:"state"`
	WaitingFor      *string    `json:"waiting_for"`
	WaitingSince    *time.Time `json:"waiting_since"`
	URL             *string    `json:"url"` // where it was asked; null if it was not, and the state is that of its session
}

type streamReport struct {
	Name                   string     `json:"name"`
	Messages               uint64     `json:"messages"`
	Bytes                  uint64     `json:"bytes"`
	FirstSequence          uint64     `json:"first_sequence"`
	LastSequence           uint64     `json:"last_sequence"`
	LastStoredAt           *time.Time `json:"last_stored_at"`
	Replicas               int        `json:"replicas"`
	Storage                string     `json:"storage"`
	DuplicateWindowSeconds float64    `json:"duplicate_window_seconds"`
	Mode                   string     `json:"mode"` // batched or single
}

// reason is one thing that the verdict rests on, or why a value is null.
type reason struct {
	Code string `json:"code"`
	Text string `json:"text"`
	Fix  string `json:"fix"`

	severity severity
}

type severity int

const (
	note severity = iota // explains a null
	warning
	behind
	broken
)

func (r *statusReport) add(s severity, code, text, fix string) {
	r.Reasons = append(r.Reasons, reason{Code: code, Text: text, Fix: fix, severity: s})
}

// judge sets the verdict from the reasons.
func (r *statusReport) judge() {
	r.Verdict = verdictOK
	for _, reason := range r.Reasons {
		switch {
		case reason.severity == broken:
			r.Verdict = verdictBroken
			return
		case reason.severity == behind:
			r.Verdict = verdictBehind
		}
	}
}

func reportSlot(s *slot.Slot) *slotReport {
	if s == nil {
		return nil
	}
	r := &slotReport{
		Name: s.Name, Database: orNil(s.Database), Active: s.Active, ActivePID: s.ActivePID,
		ConfirmedFlushLSN: stringOrNil(s.ConfirmedFlushLSN), RestartLSN: stringOrNil(s.RestartLSN),
		WALStatus: orNil(s.WALStatus), SafeWALBytes: s.SafeWALBytes, RetainedBytes: s.RetainedBytes,
		Failover: s.Failover, InvalidationReason: s.InvalidationReason,
	}
	if s.RetainedBytes != nil && s.UnconfirmedBytes != nil {
		n := max(*s.RetainedBytes-*s.UnconfirmedBytes, 0)
		r.TransactionBytes = &n
	}
	return r
}

func reportLeader(h *slot.Holder) *leaderReport {
	if h == nil {
		return nil
	}
	return &leaderReport{
		PID: h.PID, Address: orNil(h.Address), ApplicationName: orNil(h.ApplicationName), Since: h.Since, State: orNil(h.State),
	}
}

func reportStream(s publisher.Stream) *streamReport {
	r := &streamReport{
		Name: s.Name, Messages: s.Messages, Bytes: s.Bytes, FirstSequence: s.FirstSeq, LastSequence: s.LastSeq,
		Replicas: s.Replicas, Storage: s.Storage, DuplicateWindowSeconds: s.DuplicateWindow.Seconds(), Mode: streamMode(s),
	}
	if !s.LastTime.IsZero() {
		at := s.LastTime.UTC()
		r.LastStoredAt = &at
	}
	return r
}

func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func stringOrNil[T fmt.Stringer](v *T) *string {
	if v == nil {
		return nil
	}
	s := (*v).String()
	return &s
}

func textOr[T fmt.Stringer](v *T) string {
	if v == nil {
		return "-"
	}
	return (*v).String()
}

func sizeOr(n *int64) string {
	if n == nil {
		return "-"
	}
	return size(*n)
}
