package app

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/seed-1cfd9858/relay/publisher"
	"github.com/seed-1cfd9858/relay/pump"
	"github.com/seed-1cfd9858/relay/slot"
)

// scene is a relay at one moment, with its past, as the page's tests need it.
type scene struct {
	name  string
	level level
	says  string // how the headline begins
	also  []string

	status    func(now time.Time) pump.Status
	past      func(ago time.Duration, s *pump.Status) // changes the status to what it was
	trouble   func(log *slog.Logger)
	stream    publisher.Stream
	streamErr error
}

const mib = 1 << 20

func leadingStatus(now time.Time) pump.Status {
	confirmed, restart, retained, behind, safe, pid := pglogrepl.LSN(0x1A2B3C80), pglogrepl.LSN(0x19000000), int64(48*mib), int64(900), int64(1976*mib), int32(4711)
	return pump.Status{
		State: pump.StatePublishing, Since: now.Add(-5 * time.Hour), Confirmed: confirmed, CaughtUp: true, LastStored: now.Add(-time.Second),
		Sessions: 1, Counts: publisher.Counts{Published: 1_204_331, Skipped: 12, Epochs: 3}, SlotAt: now.Add(-8 * time.Second),
		Slot: &slot.Slot{
			Name: "outbox_relay", Plugin: "pgoutput", Type: "logical", Active: true, ActivePID: &pid, WALStatus: "reserved",
			RestartLSN: &restart, ConfirmedFlushLSN: &confirmed, RetainedBytes: &retained, UnconfirmedBytes: &behind, SafeWALBytes: &safe,
		},
	}
}

// wave makes rates that look like a day's.
func wave(ago time.Duration) uint64 {
	x := ago.Seconds()
	return uint64(1_204_331 - 240*x + 9000*math.Sin(x/70) + 1500*math.Sin(x/11))
}

func goodStream(now time.Time) publisher.Stream {
	return publisher.Stream{
		Name: "OUTBOX", Subjects: []string{"outbox.>"}, Storage: "file", Retention: "limits", Discard: "new", Replicas: 3,
		DuplicateWindow: 2 * time.Minute, AllowBatched: true, APILevel: 4, Messages: 1_204_343, Bytes: 912 * mib, LastTime: now.Add(-time.Second),
		MaxBytes: -1,
	}
}

func scenes(now time.Time) []scene {
	at := func(s pump.Status, change func(*pump.Status)) func(time.Time) pump.Status {
		return func(time.Time) pump.Status {
			change(&s)
			return s
		}
	}
	lead := leadingStatus(now)
	busy := func(ago time.Duration, s *pump.Status) {
		s.Counts.Published = wave(ago)
		s.Events = int(60 + 50*math.Sin(ago.Seconds()/13))
		s.Oldest = now.Add(-ago).Add(-time.Duration(8+5*math.Sin(ago.Seconds()/40)) * time.Millisecond)
	}
	return []scene{
		{
			name: "leading", level: levelOK, says: "Delivering. Nothing waits.", also: []string{"1 204 331 events", "Nothing since this relay started", "3 replicas"},
			status: at(lead, func(*pump.Status) {}), past: busy, stream: goodStream(now),
		},
		{
			name: "standby", level: levelRest, says: "Standing by", also: []string{"Process 4711, for 10.0.0.7, holds the slot.", "takes over"},
			status: at(lead, func(s *pump.Status) {
				s.State, s.Counts, s.Sessions, s.CaughtUp, s.LastStored = pump.StateStandby, publisher.Counts{}, 0, false, time.Time{}
				s.Slot.Holder = &slot.Holder{PID: 4711, Address: "10.0.0.7", ApplicationName: "relay"}
			}), past: func(time.Duration, *pump.Status) {}, stream: goodStream(now),
		},
		{
			name: "paused", level: levelBad, says: "Paused since", also: []string{
				"publish to outbox.order.created: maximum bytes exceeded (10077)", "8 192 events wait, the oldest for 4 m", "look at the stream's limits", "47 times since", "of 1.0 GiB",
			},
			status: at(leadingStatus(now), func(s *pump.Status) {
				s.State, s.Since, s.WaitingSince, s.WaitingFor = pump.StateResuming, now.Add(-3*time.Second), now.Add(-4*time.Minute), "publish to outbox.order.created: maximum bytes exceeded (10077)"
				s.Events, s.Bytes, s.Oldest, s.LastStored = 8192, 9*mib, now.Add(-4*time.Minute), now.Add(-4*time.Minute)
				s.Slot.WALStatus = "extended"
				*s.Slot.RetainedBytes, *s.Slot.UnconfirmedBytes, *s.Slot.SafeWALBytes = 1300*mib, 1240*mib, 748*mib
			}),
			past: func(ago time.Duration, s *pump.Status) {
				stopped := 4 * time.Minute
				if ago >= stopped {
					*s = leadingStatus(now)
					busy(ago, s)
					s.SlotAt = now.Add(-ago)
					s.Counts.Published = wave(ago) - wave(stopped) + 1_204_331
					return
				}
				moved := int64(ago.Seconds() * 5 * mib)
				s.SlotAt, s.Oldest = now.Add(-ago), now.Add(-stopped)
				*s.Slot.RetainedBytes -= moved
				*s.Slot.UnconfirmedBytes -= moved
				*s.Slot.SafeWALBytes += moved
			},
			trouble: func(log *slog.Logger) {
				for range 47 {
					log.Warn("publishing is paused, trying again", "reason", "publish to outbox.order.created: maximum bytes exceeded (10077)", "code", "refused",
						"advice", "look at the stream's limits and state (nats stream info), and at the server's log")
				}
			},
			stream: func() publisher.Stream {
				s := goodStream(now)
				s.MaxBytes, s.Bytes, s.DuplicateWindow = 1<<30, 1<<30, time.Minute
				return s
			}(),
		},
		{
			name: "lagging", level: levelBad, says: "Delivering, and behind.", also: []string{"8 192 events wait, the oldest for 3 m 20 s.", "trying again timeout"},
			status: at(leadingStatus(now), func(s *pump.Status) {
				s.Events, s.Bytes, s.Oldest = 8192, 40*mib, now.Add(-200*time.Second)
				*s.Slot.RetainedBytes, *s.Slot.UnconfirmedBytes, *s.Slot.SafeWALBytes = 700*mib, 620*mib, 1348*mib
			}),
			past: func(ago time.Duration, s *pump.Status) {
				s.Counts.Published = wave(ago)
				lag := max(0, 200*time.Second-ago/3)
				if ago < 700*time.Second && ago > 640*time.Second {
					s.WaitingFor = "no answer"
				}
				s.Oldest, s.SlotAt = now.Add(-ago).Add(-lag), now.Add(-ago)
				*s.Slot.RetainedBytes -= int64(ago.Seconds()) * mib / 2
				*s.Slot.UnconfirmedBytes -= int64(ago.Seconds()) * mib / 2
				*s.Slot.SafeWALBytes += int64(ago.Seconds()) * mib / 2
			},
			trouble: func(log *slog.Logger) {
				log.Error("order broken: an event is in the stream and an earlier one is not", "event_id", "7b1c", "position", "0/1A2B")
				log.Warn("publishing is paused, trying again", "reason", "no answer for 10s", "code", "timeout", "advice", "")
			},
			streamErr: failed(errors.New("cannot connect to nats://nats:4222: no servers available for connection"), "see that NATS runs, and --nats-url"),
		},
		{
			name: "danger", level: levelBad, says: "Delivering, but the slot is in danger.", also: []string{"pg_stat_activity", "The slot is lost in about 18 m", "For the oldest transaction", "85 %"},
			status: at(leadingStatus(now), func(s *pump.Status) {
				s.Slot.WALStatus = "extended"
				*s.Slot.RetainedBytes, *s.Slot.UnconfirmedBytes, *s.Slot.SafeWALBytes = 1740*mib, 2048, 308*mib
				s.SlotAt = now
			}),
			past: func(ago time.Duration, s *pump.Status) {
				busy(ago, s)
				moved := int64(ago.Seconds() * 0.28 * mib)
				s.SlotAt = now.Add(-ago)
				*s.Slot.ConfirmedFlushLSN -= pglogrepl.LSN(moved)
				*s.Slot.RetainedBytes -= moved
				*s.Slot.SafeWALBytes += moved
			},
			stream: goodStream(now),
		},
		{
			name: "away", level: levelBad, says: "Not relaying since", also: []string{"connection refused", "PostgreSQL could not be asked yet"},
			status: func(time.Time) pump.Status {
				return pump.Status{State: pump.StateStandby, Since: now.Add(-time.Minute), WaitingFor: "connection refused", WaitingSince: now.Add(-time.Minute)}
			},
			past: func(time.Duration, *pump.Status) {},
			trouble: func(log *slog.Logger) {
				log.Warn("PostgreSQL cannot be used, trying again", "reason", "connection refused", "advice", "see that PostgreSQL runs at 10.0.0.9:5432")
			},
			streamErr: errors.New("not asked"),
		},
		{
			name: "starting", level: levelWarn, says: "Starting since", also: []string{"reads back"},
			status: at(leadingStatus(now), func(s *pump.Status) { s.State, s.Since = pump.StateResuming, now.Add(-time.Second) }),
			past:   func(time.Duration, *pump.Status) {}, stream: goodStream(now),
		},
		{
			name: "stopping", level: levelWarn, says: "Stopping since", also: []string{"draining"},
			status: at(leadingStatus(now), func(s *pump.Status) { s.State, s.Since, s.Events = pump.StateDraining, now.Add(-time.Second), 40 }),
			past:   func(time.Duration, *pump.Status) {}, stream: goodStream(now),
		},
	}
}

// page returns the page of the scene, its answer about the stream there.
func (s scene) page(t testing.TB, now time.Time) http.Handler {
	t.Helper()
	h, f := &history{}, &failures{}
	for ago := historySpan; ago >= 0; ago -= sampleEvery {
		status := s.status(now)
		if status.Slot != nil { // the past has a slot of its own
			copied := *status.Slot
			copied.RetainedBytes, copied.UnconfirmedBytes, copied.SafeWALBytes = copyOf(copied.RetainedBytes), copyOf(copied.UnconfirmedBytes), copyOf(copied.SafeWALBytes)
			copied.ConfirmedFlushLSN = copyOf(copied.ConfirmedFlushLSN)
			status.Slot = &copied
		}
		if ago > 0 {
			s.past(ago, &status)
		}
		for range 5 * min(status.Events%8192, 1) {
			h.observe(time.Duration(3+2*math.Sin(ago.Seconds()/30)) * time.Millisecond)
		}
		if status.Events%8192 > 0 {
			h.observe(time.Duration(9+7*math.Sin(ago.Seconds()/9)) * time.Millisecond)
		}
		h.add(status, now.Add(-ago))
	}
	if s.trouble != nil {
		s.trouble(f.watch(slog.New(slog.DiscardHandler)))
	}
	asked := make(chan struct{})
	watch, stop := newStreamWatch(t.Context(), func(context.Context) (publisher.Stream, error) {
		close(asked)
		return s.stream, s.streamErr
	})
	watch.wanted()
	<-asked
	stop() // waits for the answer
	facts := pageFacts{
		Version: "v0.4.0", Slot: "outbox_relay", Table: "public.outbox", Postgres: "db.example:5432/shop", Stream: "OUTBOX", Subject: "outbox.{topic}", NATS: "nats://nats:4222",
	}
	w := &told{status: s.status(now), turned: now}
	p := newPage(w, h, f, facts, watch)
	p.now = func() time.Time { return now }
	return p.over(handler(w, newMetrics()))
}

func copyOf[T any](v *T) *T {
	if v == nil {
		return nil
	}
	c := *v
	return &c
}
