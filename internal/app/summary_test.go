package app

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/seed-1cfd9858/relay/publisher"
	"github.com/seed-1cfd9858/relay/pump"
	"github.com/seed-1cfd9858/relay/slot"
)

// A leader says one line a minute, a standby none.
func TestSummary(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out syncBuffer
		unconfirmed, held := int64(10), int64(4096)
		var present atomic.Pointer[pump.Status]
		status := pump.Status{State: pump.StateStandby}
		present.Store(&status)
		s := &summary{log: newLogger(&out, "info", "text"), status: func() pump.Status { return *present.Load() }}
		stop := s.start(t.Context())
		minutes := func(n int) {
			for range n {
				time.Sleep(summaryEvery) //nolint:forbidigo // the bubble's clock
				synctest.Wait()
			}
		}
		minutes(10)
		if out.String() != "" {
			t.Errorf("a standby says:\n%s", out.String())
		}
		leading := pump.Status{
			State: pump.StatePublishing, CaughtUp: true, Counts: publisher.Counts{Published: 90, Skipped: 2}, Confirmed: pglogrepl.LSN(0x1A2B),
			Slot: &slot.Slot{UnconfirmedBytes: &unconfirmed, RetainedBytes: &held},
		}
		present.Store(&leading)
		minutes(1)
		minutes(1) // nothing more was stored
		paused := leading
		paused.State, paused.Events, paused.WaitingFor, paused.Oldest = pump.StateResuming, 5, "nats:\nno servers", time.Now().Add(-time.Minute)
		present.Store(&paused)
		minutes(1)
		stop()
		minutes(2)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		wants := []string{
			"msg=summary state=publishing stored=90 per_second=1.5 events_waiting=0 found_in_stream=2 lag_seconds=0 confirmed_lsn=0/1A2B wal_unconfirmed_bytes=10 wal_held_bytes=4096",
			"msg=summary state=publishing stored=0 per_second=0 events_waiting=0 lag_seconds=0 confirmed_lsn=0/1A2B wal_unconfirmed_bytes=10 wal_held_bytes=4096",
			`msg=summary state=resuming stored=0 per_second=0 events_waiting=5 lag_seconds=120 waiting_for="nats:; no servers" confirmed_lsn=0/1A2B wal_unconfirmed_bytes=10 wal_held_bytes=4096`,
		}
		if len(lines) != len(wants) {
			t.Fatalf("%d lines:\n%s", len(lines), out.String())
		}
		for i, want := range wants {
			if !strings.HasSuffix(lines[i], want) {
				t.Errorf("line %d:\n%s\nwant\n%s", i, lines[i], want)
			}
		}
	})
}
