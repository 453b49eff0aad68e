package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// options is what the flags say.
type options struct {
	events     int
	crash      string // the name of a step
	json, keep bool
}

// demo is one performance. Its fields belong to the goroutine that plays, except where their types say otherwise.
type demo struct {
	opts  options
	story *story
	step  step

	world    *world
	orders   *orders
	consumer *consumer
	relays   []*relay // all that were started

	workers sync.WaitGroup          // all goroutines
	fail    context.CancelCauseFunc // ends the performance, from any goroutine

	progressAt time.Time
}

// play performs the demo and takes everything away again.
func play(ctx context.Context, opts options, stdout, stderr io.Writer) error {
	out := stdout
	if opts.json {
		out = stderr
	}
	at, err := stepNamed(opts.crash)
	if err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	d := &demo{opts: opts, story: newStory(out), step: at, orders: &orders{}, fail: fail}
	b, err := d.perform(ctx)
	if err == nil && opts.keep {
		d.keep(ctx)
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause // what ended the performance, not what it interrupted
	}
	err = errors.Join(err, d.close(ctx, err == nil))
	if b == nil || err != nil {
		return err
	}
	if opts.json {
		if err := b.printJSON(stdout); err != nil {
			return err
		}
	}
	if b.wrong() != "" {
		return errBalance
	}
	return nil
}

// perform is the plot: a shop with a relay, the crash, the next relay, the balance.
func (d *demo) perform(ctx context.Context) (*balance, error) {
	d.story.line(d.story.paint(bold, fmt.Sprintf("A shop, a relay that is killed, and %s", things(d.opts.events, "event"))))
	if err := d.setScene(ctx); err != nil {
		return nil, err
	}
	before := d.opts.events / 3 // committed and confirmed in the usual way
	first, err := d.openShop(ctx, before)
	if err != nil {
		return nil, err
	}
	loss, err := d.interrupt(ctx, first, before)
	if err != nil {
		return nil, err
	}
	if err := d.takeOver(ctx, loss); err != nil {
		return nil, err
	}
	b, err := d.takeBalance(ctx)
	if err != nil {
		return nil, err
	}
	b.tell(d.story, d.orders)
	return b, nil
}

func (d *demo) setScene(ctx context.Context) error {
	d.story.chapter("The scene")
	d.story.now("starting PostgreSQL and NATS")
	w, err := startWorld(ctx, d.story)
	if err != nil {
		return err
	}
	d.world = w
	d.story.say("PostgreSQL %s and NATS %s with JetStream run on free ports; both are thrown away at the end", w.pg.Version(), server.VERSION)
	if err := w.setUp(ctx, d.story); err != nil {
		return err
	}
	d.story.more("The stream forgets message ids after %v, so JetStream's own deduplication does none of the relay's work.", duplicateWindow)
	return w.makeRecord(ctx)
}

// openShop starts everybody, and waits for the first orders.
func (d *demo) openShop(ctx context.Context, n int) (*relay, error) {
	d.story.chapter("The shop is open")
	r, err := d.startRelay(ctx)
	if err != nil {
		return nil, err
	}
	d.story.say("relay 1 holds the slot (relay run, pid %d)", r.PID())
	if err := d.startConsumer(ctx); err != nil {
		return nil, err
	}
	if err := d.write(ctx, n); err != nil {
		return nil, err
	}
	if n > 0 {
		d.story.say("%s placed, each in one transaction with its event; %s and tried again", things(n, "order"),
			things(d.orders.rollbacks, "transaction")+were(d.orders.rollbacks)+" rolled back")
	}
	return r, nil
}

func (d *demo) startConsumer(ctx context.Context) error {
	var err error
	d.consumer, err = newConsumer(ctx, d.world, max(1, d.opts.events/4), func() {
		d.story.say("the shipping service was killed (SIGKILL): it had shipped an order (committed) and not acked the event. Another one goes on.")
	})
	if err != nil {
		return err
	}
	d.work(func() error { return d.consumer.run(ctx) })
	return nil
}

// work runs f beside the plot; its error ends the performance.
func (d *demo) work(f func() error) {
	d.workers.Go(func() {
		if err := f(); err != nil {
			d.fail(err)
		}
	})
}

// write has the writers commit n events and waits for them.
func (d *demo) write(ctx context.Context, n int) error {
	done := d.writeOn(ctx, n)
	return d.until(ctx, writeLimit, "the orders are written", func() (bool, error) { return done.Load(), nil })
}

// writeOn has the writers commit n events. It does not wait; the result says when they are done.
func (d *demo) writeOn(ctx context.Context, n int) *atomic.Bool {
	var done atomic.Bool
	d.work(func() error {
		err := d.orders.write(ctx, d.world.url(), n)
		done.Store(err == nil)
		return err
	})
	return &done
}

const (
	writeLimit = 30 * time.Minute // a million events
	stallLimit = 20 * time.Second // without anything stored, delivered or confirmed
)

// leftBehind is what a killed relay leaves.
type leftBehind struct {
	at      time.Time
	stored  int // messages in the stream
	writing *atomic.Bool
	passed  *atomic.Int64 // events that PostgreSQL sends to the next relay
}

// interrupt kills the relay at the step, in the middle of the day.
func (d *demo) interrupt(ctx context.Context, r *relay, before int) (*leftBehind, error) {
	d.story.chapter("The crash")
	at := d.step
	if at.again {
		var err error
		if at, err = stepNamed(defaultStep); err != nil {
			return nil, err
		}
	}
	if err := d.storedAtLeast(ctx, before); err != nil { // nothing of the morning is on its way any more
		return nil, err
	}
	reached, err := at.arm(ctx, d.world)
	if err != nil {
		return nil, err
	}
	l := &leftBehind{writing: d.writeOn(ctx, d.opts.events-before)}
	if err := reached(ctx); err != nil {
		return nil, err
	}
	if at.goesOn {
		if err := d.storedAtLeast(ctx, before+max(1, (d.opts.events-before)/2)); err != nil {
			return nil, err
		}
	}
	if at.term {
		if err := r.askToStop(ctx); err != nil {
			return nil, err
		}
		d.story.say("relay 1 was asked to stop (SIGTERM) and drains")
	}
	return l, d.killed(ctx, r, at, l)
}

func (d *demo) storedAtLeast(ctx context.Context, n int) error {
	return d.until(ctx, writeLimit, "the relay has stored more", func() (bool, error) {
		stored, err := d.world.stored(ctx)
		return stored >= n, err
	})
}

// killed kills the relay and tells what is left.
func (d *demo) killed(ctx context.Context, r *relay, at step, l *leftBehind) error {
	if err := d.crash(ctx, r); err != nil {
		return err
	}
	l.at, l.passed = time.Now(), &atomic.Int64{}
	d.story.say("%s", d.story.paint(red, fmt.Sprintf("relay %d was killed (SIGKILL), %s", len(d.relays), at.title)))
	return d.lookAround(ctx, at, l)
}

// lookAround tells what there is while nobody relays, and counts from now on what PostgreSQL sends.
func (d *demo) lookAround(ctx context.Context, at step, l *leftBehind) error {
	stream, err := d.world.readStream(ctx)
	if err != nil {
		return err
	}
	l.stored = len(stream)
	again, err := d.world.sentAgain(ctx)
	if err != nil {
		return err
	}
	unconfirmed := len(again) - compare(again, stream).lost
	d.story.say("%s", d.story.paint(bold, things(unconfirmed, "event")+" stored, not yet confirmed; "+
		things(len(again)-unconfirmed, "event")+" committed, not yet stored"))
	d.story.more("%s", at.left)
	d.story.more("Nothing else was left: the relay keeps no file and no table of its own.")
	d.world.proxy.OnPg(func(m sandbox.PgMessage) sandbox.Action {
		if m.Copy == 'w' && m.Pgoutput == 'I' {
			l.passed.Add(1)
		}
		return sandbox.Forward
	})
	return nil
}

// takeOver starts the next relay, and another one if that is killed too, and waits until nothing is left to do.
func (d *demo) takeOver(ctx context.Context, l *leftBehind) error {
	d.story.chapter("The next relay")
	if d.step.again {
		reached, err := d.step.arm(ctx, d.world)
		if err != nil {
			return err
		}
		r, err := d.nextRelay(ctx, l)
		if err != nil {
			return err
		}
		if err := reached(ctx); err != nil {
			return err
		}
		if err := d.killed(ctx, r, d.step, l); err != nil {
			return err
		}
	}
	if _, err := d.nextRelay(ctx, l); err != nil {
		return err
	}
	err := d.until(ctx, writeLimit, "the orders are written", func() (bool, error) { return l.writing.Load(), nil })
	if err != nil {
		return err
	}
	if err := d.settle(ctx); err != nil {
		return err
	}
	stored, err := d.world.stored(ctx)
	if err != nil {
		return err
	}
	sent, added := int(l.passed.Load()), stored-l.stored
	d.story.say("relay %d read the end of the stream first, so it knew what was there. PostgreSQL sent it %s:", len(d.relays), things(sent, "event"))
	d.story.more("%s were in the stream already and were left out, %s were stored.", count(sent-added), count(added))
	return nil
}

// nextRelay starts one in the place of the one that is gone.
func (d *demo) nextRelay(ctx context.Context, l *leftBehind) (*relay, error) {
	committed, _ := d.orders.count()
	r, err := d.startRelay(ctx)
	if err != nil {
		return nil, err
	}
	d.story.say("relay %d holds the slot (pid %d), %.1f s after the kill; %s had committed by then, %s in the stream", len(d.relays), r.PID(),
		time.Since(l.at).Seconds(), things(committed, "event"), count(l.stored))
	return r, nil
}

// settle waits until everything is stored, confirmed and shipped, or nothing moves any more: the balance then says what is
// missing.
func (d *demo) settle(ctx context.Context) error {
	end, err := d.world.lsn(ctx, "SELECT pg_current_wal_insert_lsn()")
	if err != nil {
		return err
	}
	var last [3]int
	moved := time.Now()
	return d.until(ctx, writeLimit, "everything is delivered", func() (bool, error) {
		confirmed, err := d.world.confirmed(ctx)
		if err != nil {
			return false, err
		}
		stored, err := d.world.stored(ctx)
		if err != nil {
			return false, err
		}
		delivered, idle, err := d.consumer.state(ctx)
		if err != nil {
			return false, err
		}
		if now := [3]int{int(confirmed), stored, delivered}; now != last {
			last, moved = now, time.Now()
		}
		return confirmed >= end && idle || time.Since(moved) > stallLimit, nil
	})
}

const progressEvery = 100 * time.Millisecond

// until waits, and shows on a terminal how far everybody is.
func (d *demo) until(ctx context.Context, limit time.Duration, what string, ask func() (bool, error)) error {
	return waitFor(ctx, limit, what, func() (bool, error) {
		if d.story.live && time.Since(d.progressAt) > progressEvery {
			d.progressAt = time.Now()
			stored, err := d.world.stored(ctx)
			if err != nil {
				return false, err
			}
			shipped, err := d.consumer.shipped(ctx)
			if err != nil {
				return false, err
			}
			committed, _ := d.orders.count()
			d.story.now(fmt.Sprintf("committed %s of %s, stored %s, shipped %s", count(committed), count(d.opts.events),
				count(stored), count(shipped)))
		}
		return ask()
	})
}
