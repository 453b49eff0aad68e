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

	dwell time.Duration // how long it is kept there: longer than a busy relay goes without a status update
}

// steps lie on the path of an event.
func steps() []step {
	return []step{
		{name: "before the publish", arm: func(m *member) <-chan struct{} { return holdNATS(m, isPublish) }, dwell: 1200 * time.Millisecond},
		{name: "before the ack", arm: func(m *member) <-chan struct{} { return holdNATS(m, isAck) }},
		{name: "before the confirmation", arm: func(m *member) <-chan struct{} { return holdPg(m, confirms()) }},
		{name: "after the confirmation", arm: seenConfirmation},
		{name: "in the middle of a transaction", arm: func(m *member) <-chan struct{} { return holdPg(m, secondInsert()) }},
		{name: "while it resumes", arm: func(m *member) <-chan struct{} { return holdNATS(m, isTail) }, late: true},
		{name: "while it drains", arm: func(m *member) <-chan struct{} { return holdNATS(m, isAck) }, term: true},
	}
}

func isPublish(m sandbox.NATSMessage) bool {
	return m.ToServer && m.Op == "HPUB" && !strings.HasPrefix(m.Subject, "$")
}

func isAck(m sandbox.NATSMessage) bool {
	return !m.ToServer && strings.HasPrefix(string(m.Body), `{"stream":"`+streamName+`"`)
}

// isTail finds the relay's request for a message of the stream.
func isTail(m sandbox.NATSMessage) bool {
	return m.ToServer && strings.HasPrefix(m.Subject, "$JS.API.STREAM.MSG.GET.")
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
	hook, held := sandbox.HoldFirst(is)
	m.natsProxy.OnNATS(hook)
	return held
}

// seenConfirmation lets the confirmation pass.
func seenConfirmation(m *member) <-chan struct{} { return seenPg(m, confirms()) }

// seenPg tells when such a message passes.
func seenPg(m *member, is func(sandbox.PgMessage) bool) <-chan struct{} {
	hook, seen := sandbox.HoldFirst(is)
	m.onPg(func(msg sandbox.PgMessage) sandbox.Action {
		hook(msg)
		return sandbox.Forward
	})
	return seen
}

func holdPg(m *member, is func(sandbox.PgMessage) bool) <-chan struct{} {
	hook, held := sandbox.HoldFirst(is)
	m.onPg(hook)
	return held
}

const stepLimit = 5 * time.Second // until a relay comes to a step

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
	w.awaitStep(ctx, reached)
	sleep(ctx, s.dwell)
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
