package app

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-1cfd9858/relay/outbox"
)

// runConfig is what `relay run` was told, checked.
type runConfig struct {
	common

	window         int             // events read and not yet stored, at most
	windowBytes    int             // their bytes, payload and headers and what an event costs besides
	ackTimeout     time.Duration   // the oldest event unanswered for this long ends the epoch
	drainTimeout   time.Duration   // storing what is read after a signal takes at most this long
	sessionTimeout time.Duration   // wal_sender_timeout of the replication session
	yieldAfter     time.Duration   // waiting for a broker this long gives the slot to a standby; 0 = never
	confirmDelay   time.Duration   // what is stored is confirmed this much later; 0 = at once
	retention      time.Duration   // rows that are older and delivered are deleted; 0 = never
	listen         string          // where health and metrics are answered; "" = nowhere
	listenGiven    bool            // the operator chose it
	skip           map[string]bool // events that are not stored, by their Relay-Position
}

func (a *app) runCommand() *cli.Command {
	own := func(name, def, help string) *setting {
		return &setting{name: name, def: def, help: help, env: []string{envName(name)}}
	}
	window := own("window", "8192", "`number` of events that may be read and not yet stored")
	windowBytes := own("window-bytes", "64MiB", "`size` of the events that may be read and not yet stored")
	ackTimeout := own("ack-timeout", "10s", "`time` without an answer after which the relay stops and looks at the stream")
	drainTimeout := own("drain-timeout", "10s", "`time` for storing what is read, after SIGTERM")
	sessionTimeout := own("session-timeout", "10s", "`time` after which PostgreSQL drops a silent relay and a standby can take over")
	yieldAfter := own("yield-after", "60s", "`time` without a broker after which the slot is offered to a standby; 0 = never")
	confirmDelay := own("confirm-delay", "0s", "`time` that a stored event waits before PostgreSQL may forget it, for brokers that can lose what they acked: their sync interval and 10 s more")
	retain := own("retention", "0s", "`age` by created_at from which delivered rows are deleted, and partitions made for the days to come; 0 = never")
	onPoison := own("on-poison", "halt", "what to do about an event that can never be stored: `halt`")
	skip := own("skip-event", "", "`position` of one event that is not to be stored, as the halted relay printed it; may be given several times")
	skip.repeat = true
	listen := own("listen", defaultListen, "`address` for the page (/), health and metrics (/livez, /readyz, /status, /metrics); empty = none")
	listen.optional = true
	groups := groupPostgres | groupTable | groupSlot | groupNATS | groupStream
	return a.command("run", "relay events until told to stop", groups,
		[]*setting{window, windowBytes, ackTimeout, drainTimeout, sessionTimeout, yieldAfter, confirmDelay, retain, onPoison, skip, listen},
		func(ctx context.Context, c common) error {
			r := a.reader
			cfg := runConfig{
				common: c,
				window: r.number(window, 1, 1<<20), windowBytes: int(r.bytes(windowBytes, 1)),
				ackTimeout: r.duration(ackTimeout, time.Nanosecond), drainTimeout: r.duration(drainTimeout, time.Nanosecond),
				sessionTimeout: r.duration(sessionTimeout, time.Second), yieldAfter: r.duration(yieldAfter, 0),
				confirmDelay: r.duration(confirmDelay, 0), retention: r.duration(retain, 0),
			}
			cfg.listen, cfg.listenGiven = readListen(r, listen)
			cfg.skip = readSkip(r, skip, c.slot.Slot)
			switch policy := r.text(onPoison); policy {
			case "halt", "":
			case "park":
				r.wrong(onPoison, policy, "comes in a later version, want halt")
			default:
				r.wrong(onPoison, policy, "want halt")
			}
			if err := a.checked(); err != nil {
				return err
			}
			if a.ownsProcess {
				cfg.tune(a.reader.env)
			}
			return cfg.run(ctx)
		})
}

// readListen reads an address. Given as nothing it means none; not given, the default.
func readListen(r *reader, s *setting) (address string, given bool) {
	values, given := r.raw(s)
	switch {
	case given:
		address = values[len(values)-1]
	case r.none(s):
		return "", true
	default:
		return s.def, false
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		r.wrong(s, address, "want host:port, :port for all addresses, or nothing")
	}
	return address, true
}

// readSkip reads positions. One of another slot would never be met, which is not what its giver expects.
func readSkip(r *reader, s *setting, slot string) map[string]bool {
	skip := map[string]bool{}
	for _, text := range r.texts(s) {
		origin, position, err := outbox.ParsePosition(text)
		switch {
		case err != nil:
			r.wrong(s, text, outbox.ErrPosition.Error()+", as the halted relay printed it")
		case origin.Slot != slot:
			r.wrong(s, text, fmt.Sprintf("the position is of slot %q, this relay's is %q", origin.Slot, slot))
		default:
			skip[outbox.FormatPosition(origin, position)] = true
		}
	}
	return skip
}
