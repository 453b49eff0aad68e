package pump

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/seed-1cfd9858/relay/checkpoint"
	"github.com/seed-1cfd9858/relay/outbox"
	"github.com/seed-1cfd9858/relay/publisher"
	"github.com/seed-1cfd9858/relay/replication"
	"github.com/seed-1cfd9858/relay/slot"
)

// leader is a relay that holds the slot, for one session. Its fields belong to the loop; awake is how others reach it.
type leader struct {
	*Pump
	session *replication.Session
	window  *checkpoint.Window
	delay   *checkpoint.Delay
	origin  outbox.Origin
	start   pglogrepl.LSN // the slot's confirmed LSN when the session began
	awake   chan struct{}

	resume  resume
	check   *task[slot.State] // a look at the catalogue, nil if none is under way
	checkAt time.Time

	halt    error // why it drains, apart from being asked to stop
	drain   time.Time
	blocked bool // the next event to be sent can never be, and all before it are stored

	reportAt  time.Time // when the next status update is due
	paused    bool      // the socket was not read because the window was full
	publishAt time.Time // when the status was last made public
	storedAt  time.Time // when an event was last stored in this session
	caughtUp  bool      // the server has said that it had nothing more to send
	short     bool      // the stream may have lost what an earlier session stored, and nothing was said about it yet
}

// resume is the way to the next epoch.
type resume struct {
	need    publisher.Need
	plan    *publisher.Resume
	task    *task[*publisher.Resumed] // nil if none is under way
	at      time.Time                 // when the next try begins
	retry   *retry
	attempt int // tries since something was stored

	unreachable bool // the last way to an epoch failed, so the stream could not be asked
}

// The rhythm of looks at the catalogue.
const (
	checkEvery       = 30 * time.Second
	checkEveryPaused = 5 * time.Second // while the window is full or publishing is paused: nothing else would tell
)

// lead relays until the session ends. It returns nil when ctx ended and what was read is stored, or the drain timeout
// has passed.
func (p *Pump) lead(ctx context.Context, session *replication.Session, confirmed pglogrepl.LSN) error {
	now := time.Now()
	l := &leader{
		Pump: p, session: session, window: checkpoint.New(confirmed), delay: checkpoint.NewDelay(p.cfg.ConfirmDelay),
		start: confirmed, awake: make(chan struct{}, 1), checkAt: now.Add(checkEvery),
		resume: resume{need: publisher.NeedSession, retry: newRetry(p.cfg.Random), at: now},
		origin: outbox.Origin{Slot: p.cfg.Slot.Slot, System: session.System()},
	}
	session.Confirm(confirmed)
	p.publisher.Begin(l.origin, l.wake)
	p.log.Info("leading", "slot", p.cfg.Slot.Slot, "confirmed_lsn", confirmed, "walsender_pid", session.PID())
	p.note(func(s *Status) { s.Sessions++ })
	p.setState(StateResuming, "")

	work, cancel := context.WithCancel(context.WithoutCancel(ctx)) // a stopping leader still needs its tasks
	unhook := context.AfterFunc(ctx, l.wake)
	defer func() {
		unhook()
		cancel()
		l.endTasks()
		p.publisher.Idle()
		_ = p.closeSession(ctx, session) // it has been logged
	}()
	return p.unreadable(ctx, l.loop(ctx, work))
}

func (l *leader) endTasks() {
	if t := l.resume.task; t != nil {
		t.stop()
		if t.err == nil {
			l.publisher.Discard(t.value)
		}
	}
	if l.check != nil {
		l.check.stop()
	}
}

// wake ends the loop's present wait, wherever it waits. It is safe from any goroutine.
func (l *leader) wake() {
	select {
	case l.awake <- struct{}{}:
	default:
	}
	l.session.Wake()
}

// loop goes through everything that may have changed, then waits for the next thing to happen.
func (l *leader) loop(ctx, work context.Context) error {
	for {
		now := time.Now()
		l.turn(now)
		l.stopping(ctx, now)
		if err := l.steer(work, now); err != nil {
			return err
		}
		if err := l.publish(now); err != nil {
			return err
		}
		if err := l.confirm(now); err != nil {
			return err
		}
		if done, err := l.finish(now); done {
			return err
		}
		if err := l.wait(now); err != nil {
			return err
		}
	}
}

// steer takes the results of tasks and the end of epochs, and starts what is due.
func (l *leader) steer(work context.Context, now time.Time) error {
	before := l.publisher.Stored()
	var position outbox.Position
	var committed time.Time
	if ev := l.publisher.Oldest(); ev != nil {
		position, committed = ev.Position, ev.CommitTime
	}
	err := l.publisher.Collect(now)
	if l.publisher.Stored() > before {
		l.stored(position, committed, now)
	}
	if err != nil {
		l.interrupted(err, now)
	}
	if err := l.resumed(now); err != nil {
		return err
	}
	if l.resumeDue(now) {
		plan := l.publisher.Resume(l.resume.need, l.start)
		l.resume.plan = plan
		l.resume.task = startTask(work, l.wake, plan.Run)
	}
	if err := l.checked(work, now); err != nil {
		return err
	}
	return l.yield(now)
}

// stored notes that events were stored, the oldest of which had this position and commit time.
func (l *leader) stored(oldest outbox.Position, committed, now time.Time) {
	l.storedAt = now
	if l.cfg.Observe != nil {
		l.cfg.Observe(max(0, now.Sub(committed)))
	}
	if l.short && oldest.CommitLSN < l.silence.end { // it was there before the session
		l.short = false
		l.log.Warn("the stream does not reach back to the slot's confirmed LSN: an event that was stored and removed since is stored again",
			"confirmed_lsn", l.start, "position", outbox.FormatPosition(l.origin, oldest))
	}
	l.progressed()
}

func (l *leader) resumeDue(now time.Time) bool {
	wanted := !l.publisher.Publishing() || l.resume.need == publisher.NeedTail
	return wanted && l.resume.task == nil && !now.Before(l.resume.at)
}

// progressed notes that something was stored or found stored, or that nothing waits: only that ends a pause.
func (l *leader) progressed() {
	if l.resume.attempt == 0 {
		return
	}
	l.log.Info("publishing goes on", "attempts", l.resume.attempt,
		"after", time.Since(l.Status().WaitingSince).Round(time.Millisecond))
	l.resume.retry.reset()
	l.resume.attempt = 0
	l.setState(l.Status().State, "")
}

// interrupted notes that publishing has stopped, and when to try again.
func (l *leader) interrupted(err error, now time.Time) {
	wait := l.resume.retry.next()
	l.resume.at = now.Add(wait)
	l.resume.attempt++
	l.setState(l.stateOr(StateResuming), err.Error())
	events, _ := l.publisher.Waiting()
	attrs := []any{
		"reason", err, "attempt", l.resume.attempt, "backoff", wait.Round(time.Millisecond), "events_waiting", events,
		"waiting_since", l.Status().WaitingSince.Format(time.RFC3339),
	}
	var epoch *publisher.EpochError
	if errors.As(err, &epoch) {
		l.note(func(s *Status) { s.Failures = s.Failures.with(epoch.Reason) })
		attrs = append(attrs, "code", epoch.Reason, "event_id", epoch.EventID)
	}
	if advice := publisher.Advice(err); advice != "" {
		attrs = append(attrs, "advice", advice)
	}
	l.log.Warn("publishing is paused, trying again", attrs...)
}

// resumed takes the result of the way to the next epoch.
func (l *leader) resumed(now time.Time) error {
	t := l.resume.task
	if t == nil || !t.ended() {
		return nil
	}
	l.resume.task = nil
	var shorter *publisher.RegressedError
	if errors.As(t.err, &shorter) {
		l.publisher.Regressed(shorter)
		l.note(func(s *Status) { s.Regressed++ })
		l.log.Error("the broker lost events that it had acked: sending again what PostgreSQL still has", "err", t.err,
			"confirmed_lsn", max(l.start, l.session.Confirmed()), "first_sequence", shorter.Last+1, "last_sequence", shorter.Acked)
		return t.err
	}
	err, before := t.err, l.publisher.Stored()
	if err == nil {
		err = l.publisher.Apply(l.resume.plan, t.value)
	}
	if err != nil {
		l.resume.unreachable = true
		l.interrupted(err, now)
		return nil
	}
	l.resume.unreachable = false
	if n := t.value.Foreign(); n > 0 && l.resume.need == publisher.NeedSession {
		l.log.Warn("the stream holds messages of others among this slot's events: they cost time and can cost order", "messages", n)
	}
	if l.resume.need == publisher.NeedSession {
		l.short = t.value.Short()
	}
	l.resume.need = publisher.NeedEpoch
	l.setState(l.stateOr(StatePublishing), l.Status().WaitingFor)
	if events, _ := l.publisher.Waiting(); events == 0 || l.publisher.Stored() > before {
		l.progressed()
	}
	return nil
}

// stateOr returns the state, unless the relay drains.
func (l *leader) stateOr(state State) State {
	if l.draining() {
		return StateDraining
	}
	return state
}

// publish sends what may be sent.
func (l *leader) publish(now time.Time) error {
	more, err := l.publisher.Publish(now)
	switch {
	case err != nil:
		return l.refused(err, now)
	case more && l.resume.task == nil && l.publisher.Flight() == 0:
		l.resume.need, l.resume.at = publisher.NeedTail, now
		l.wake() // start it in the next turn
	}
	return nil
}

// refused takes an event that can never be stored: the relay ends once all before it are.
func (l *leader) refused(err error, now time.Time) error {
	var poison *outbox.PoisonError
	if !errors.As(err, &poison) {
		return err
	}
	if l.halt == nil {
		l.halted(&HaltError{Event: poison, Position: outbox.FormatPosition(l.origin, poison.Position)}, now)
	}
	l.blocked = l.publisher.Flight() == 0
	return nil
}

// halted begins to drain because of an event that cannot be relayed.
func (l *leader) halted(err error, now time.Time) {
	l.halt = err
	l.log.Error("draining, then stopping", "err", err)
	l.beginDrain(now)
}

// confirm tells PostgreSQL what it may forget.
func (l *leader) confirm(now time.Time) error {
	l.window.Stored(l.publisher.Stored())
	l.delay.Put(l.window.Low(), now)
	if l.confirmable() {
		l.session.Confirm(l.delay.Low(now))
	}
	settled := l.window.Settled()
	due, err := l.session.Report(now, settled)
	if err != nil {
		return err
	}
	l.reportAt = due
	if now.Sub(l.publishAt) >= statusPace || settled {
		l.publishAt = now
		l.publishStatus()
	}
	return nil
}

// confirmable reports whether what is stored may be confirmed now. With a delay it may not while there is no epoch: a broker
// that is away may be losing what it acked, and how the next epoch begins tells.
func (l *leader) confirmable() bool { return l.cfg.ConfirmDelay == 0 || l.publisher.Publishing() }

// statusPace is how old a public status of a busy relay may be.
const statusPace = 100 * time.Millisecond

func (l *leader) publishStatus() {
	events, bytes := l.publisher.Waiting()
	now := l.status.Load()
	if now.Events == events && now.Confirmed == l.session.Confirmed() && now.Counts == l.publisher.Counts() && now.CaughtUp == l.caughtUp {
		return
	}
	l.note(func(s *Status) {
		s.Events, s.Bytes, s.Oldest = events, bytes, l.oldest()
		s.Confirmed, s.Counts, s.CaughtUp = l.session.Confirmed(), l.publisher.Counts(), l.caughtUp
		if !l.storedAt.IsZero() {
			s.LastStored = l.storedAt
		}
	})
}

// oldest returns when the oldest event that waits was committed, zero if none does.
func (l *leader) oldest() time.Time {
	if ev := l.publisher.Oldest(); ev != nil {
		return ev.CommitTime
	}
	return time.Time{}
}

// wait reads the stream until the next thing is due, or only waits while nothing may be read.
func (l *leader) wait(now time.Time) error {
	if !l.publisher.WakeWhen() {
		return nil // there is something to collect already
	}
	if !l.draining() && !l.publisher.Full() {
		if l.paused {
			l.paused = false
			l.session.Resumed()
		}
		return l.read(l.deadline(now))
	}
	l.paused = true
	timer := time.NewTimer(time.Until(l.deadline(now)))
	defer timer.Stop()
	select {
	case <-l.awake:
	case <-timer.C:
	}
	return nil
}

// deadline returns when the loop has something to do even if nothing happens.
func (l *leader) deadline(now time.Time) time.Time {
	at := l.checkAt
	delayed := l.delay.Next()
	if !l.confirmable() {
		delayed = time.Time{}
	}
	for _, t := range []time.Time{l.reportAt, delayed, l.publisher.AckDeadline(), l.drain} {
		if !t.IsZero() && t.Before(at) {
			at = t
		}
	}
	if !l.publisher.Publishing() && l.resume.task == nil && l.resume.at.Before(at) {
		at = l.resume.at
	}
	if y := l.yieldAt(); !y.IsZero() && y.Before(at) {
		at = y
	}
	return at
}

// turn bounds how many messages are read before the loop looks at everything else.
const turn = 256

// read takes messages until the deadline, as long as they come without waiting.
func (l *leader) read(deadline time.Time) error {
	for range turn {
		m, err := l.session.Next(deadline, l.publisher.Next())
		if err != nil {
			return l.unread(err)
		}
		switch m.Kind {
		case replication.Begin:
			l.window.Begin()
		case replication.Event:
			l.window.Event()
			l.publisher.Admit()
		case replication.Commit:
			l.window.Commit(m.EndLSN)
			l.silence.read(m.EndLSN)
		case replication.Keepalive:
			l.window.Keepalive(m.WALEnd)
			l.silence.read(m.WALEnd)
			l.caughtUp = true
		case replication.None:
			return nil
		case replication.Other:
		}
		if !l.session.Buffered() || l.publisher.Full() {
			return nil
		}
	}
	return nil
}

// unread takes an error of the stream: an undecodable row ends the relay once what came before it is stored, another
// one ends the session.
func (l *leader) unread(err error) error {
	var unfit *outbox.TableError
	if errors.As(err, &unfit) {
		l.halted(err, time.Now())
		return nil
	}
	return err
}

// checked looks at the catalogue from time to time: a dropped table or publication is not seen in the stream.
func (l *leader) checked(work context.Context, now time.Time) error {
	if l.check == nil {
		if pause := now.Add(checkEveryPaused); (l.publisher.Full() || !l.publisher.Publishing()) && l.checkAt.After(pause) {
			l.checkAt = pause
		}
		if !now.Before(l.checkAt) {
			l.checkAt = now.Add(checkEvery)
			l.check = startTask(work, l.wake, l.inspect)
		}
		return nil
	}
	if !l.check.ended() {
		return nil
	}
	state, err := l.check.value, l.check.err
	l.check = nil
	if err == nil {
		return l.fit(state)
	}
	if replication.ServerStopping(err) {
		return fmt.Errorf("look at the catalogue: %w", errors.Join(replication.ErrServerStopping, err))
	}
	l.log.Debug("the catalogue could not be looked at", "err", err)
	return nil
}

// yield gives the slot up when no broker could be reached for long while events wait.
func (l *leader) yield(now time.Time) error {
	if at := l.yieldAt(); !at.IsZero() && !now.Before(at) {
		return fmt.Errorf("%w: %s", errYield, l.Status().WaitingFor)
	}
	return nil
}

func (l *leader) yieldAt() time.Time {
	s := l.status.Load()
	events, _ := l.publisher.Waiting()
	if !l.resume.unreachable || l.cfg.YieldAfter < 0 || l.draining() || events == 0 || s.WaitingSince.IsZero() {
		return time.Time{}
	}
	return s.WaitingSince.Add(l.cfg.YieldAfter)
}
