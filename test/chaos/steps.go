package main

import (
	"context"
	"strings"
	"syscall"
	"time"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// step is a moment on the path of an event at which the leader is killed. It is reached from outside, by holding a message.
type step struct {
	name string
	arm  func(m *member) (reached <-chan struct{})
	term bool // it drains when it is killed
	late bool // only a relay that begins to lead comes here
}

// steps lie on the path of an event.
func steps() []step {
	publish := func(m sandbox.NATSMessage) bool {
		return m.ToServer && m.Op == "HPUB" && !strings.HasPrefix(m.Subject, "$")
	}
	ack := func(m sandbox.NATSMessage) bool {
		return !m.ToServer && strings.HasPrefix(string(m.Body), `{"stream":"`+streamName+`"`)
	}
	tail := func(m sandbox.NATSMessage) bool {
		return m.ToServer && strings.HasPrefix(m.Subject, "$JS.API.STREAM.MSG.GET.")
	}
	return []step{
		{name: "before the publish", arm: func(m *member) <-chan struct{} { return holdNATS(m, publish) }},
		{name: "before the ack", arm: func(m *member) <-chan struct{} { return holdNATS(m, ack) }},
		{name: "before the confirmation", arm: func(m *member) <-chan struct{} { return holdPg(m, confirms()) }},
		{name: "in the middle of a transaction", arm: func(m *member) <-chan struct{} { return holdPg(m, secondInsert()) }},
		{name: "while it resumes", arm: func(m *member) <-chan struct{} { return holdNATS(m, tail) }, late: true},
		{name: "while it drains", arm: func(m *member) <-chan struct{} { return holdNATS(m, ack) }, term: true},
	}
}

// confirms finds a status update that confirms more than the one before it.
func confirms() func(sandbox.PgMessage) bool {
	seen := false
	last := sandbox.PgMessage{}.Flush
	return func(m sandbox.PgMessage) bool {
		if !m.IsStatusUpdate() {
			return false
		}
		more := seen && m.Flush > last
		seen, last = true, m.Flush
		return more
	}
}

func secondInsert() func(sandbox.PgMessage) bool {
	n := 0
	return func(m sandbox.PgMessage) bool {
		switch m.Pgoutput {
		case 'B':
			n = 0
		case 'I':
			n++
		}
		return m.Pgoutput == 'I' && n == 2
	}
}

func holdNATS(m *member, is func(sandbox.NATSMessage) bool) <-chan struct{} {
	hook, held := holdFirst(is)
	m.natsProxy.OnNATS(hook)
	return held
}

func holdPg(m *member, is func(sandbox.PgMessage) bool) <-chan struct{} {
	hook, held := holdFirst(is)
	m.pgProxy.OnPg(hook)
	return held
}

// holdFirst makes a hook that holds the first message which the condition is true of, and what follows it, and says so.
func holdFirst[M any](is func(M) bool) (hook func(M) sandbox.Action, held <-chan struct{}) {
	signal := make(chan struct{})
	fired := false
	return func(m M) sandbox.Action {
		if fired || !is(m) {
			return sandbox.Forward
		}
		fired = true
		close(signal)
		return sandbox.Hold
	}, signal
}

// killAt kills the leader when it comes to the step. If it never does, because something else is wrong with it, it is
// killed where it is.
func (w *world) killAt(ctx context.Context, s step) error {
	m, err := w.waitLeader(ctx, leadLimit, anyRelay)
	if err != nil {
		return err
	}
	if s.late { // the standby is the one that will come there
		next := w.other(m)
		reached := s.arm(next)
		if err := m.proc().Kill(); err != nil {
			return err
		}
		m.cut()
		defer m.start(ctx) //nolint:errcheck // the end of the run starts them all
		m = next
		return w.killReached(ctx, m, reached, s)
	}
	return w.killReached(ctx, m, s.arm(m), s)
}

func (w *world) killReached(ctx context.Context, m *member, reached <-chan struct{}, s step) error {
	limit := time.NewTimer(5 * time.Second)
	defer limit.Stop()
	select {
	case <-reached:
	case <-limit.C:
		w.out.say("  (not reached)")
	case <-ctx.Done():
	}
	if s.term {
		if err := m.proc().Signal(syscall.SIGTERM); err != nil {
			return err
		}
		sleep(ctx, 50*time.Millisecond)
	}
	if err := m.proc().Kill(); err != nil {
		return err
	}
	m.cut()
	return m.start(ctx)
}
