package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-1cfd9858/relay/test/sim/history"
)

// result is what came of a schedule.
type result struct {
	log       *history.Log
	violation *history.Violation
	events    int           // in the stream at the end
	took      time.Duration // simulated
	steps     int           // done before the first violation
}

// settleTime bounds how long it may take, once every fault has ended, until all is stored and confirmed.
const settleTime = 3 * time.Minute

// run plays a plan in a bubble of its own.
func run(t *testing.T, plan Plan) result {
	var res result
	synctest.Test(t, func(*testing.T) {
		began := time.Now()
		w := newWorld(plan)
		res.log = w.log
		for _, step := range plan.Step {
			time.Sleep(time.Until(began.Add(step.At))) //nolint:forbidigo // simulated
			if w.check.Violation() != nil {
				break
			}
			w.do(step)
			res.steps++
		}
		w.settle()
		w.end()
		res.took = time.Since(began)
		time.Sleep(time.Minute) //nolint:forbidigo // simulated: what libraries do in the background ends
		res.violation, res.events = w.check.Violation(), w.check.Stored()
	})
	return res
}

// settle ends all faults and waits until everything is stored and confirmed.
func (w *world) settle() {
	w.trapMu.Lock()
	w.onStore, w.onMark = nil, nil
	w.trapMu.Unlock()
	if w.check.Violation() != nil {
		return
	}
	w.pending.Wait()
	w.log.Add("STEP", "all faults end")
	w.js.Heal()
	w.pg.Heal()
	for i, r := range w.present() {
		r.proc.Thaw()
		w.revive(i)
	}
	began := time.Now()
	for w.check.Violation() == nil {
		missing, settled := w.check.Settled(w.pg.Confirmed())
		if settled || w.slotGone() {
			w.log.Add("STEP", "settled")
			return
		}
		if time.Since(began) > settleTime {
			w.check.Loss(w.pg.Confirmed())
			for _, r := range w.present() {
				w.log.Add(r.proc.Name, "status: %+v", r.pump.Status())
			}
			w.check.Fail(history.NotStuck, "after %s without a fault: %s", settleTime, missing)
			return
		}
		time.Sleep(100 * time.Millisecond) //nolint:forbidigo // simulated
	}
}

// end stops everything that runs.
func (w *world) end() {
	w.closing.Store(true)
	if w.check.Violation() == nil && !w.slotGone() {
		for _, r := range w.present() {
			w.stop(r)
		}
		time.Sleep(time.Microsecond) //nolint:forbidigo // simulated
		for _, r := range w.present() {
			w.awaitEnd(r)
		}
		w.check.Loss(w.pg.Confirmed())
	}
	if w.check.Violation() == nil && w.slotGone() {
		for _, r := range w.present() {
			w.awaitEnd(r)
		}
	}
	w.pg.Heal() // whoever waits for a frozen server is let go
	w.js.Proc.Thaw()
	w.startMu.Lock() // whoever is about to start has started
	all := w.all
	w.startMu.Unlock()
	for _, r := range all {
		w.kill(r, true)
		<-r.done
	}
	w.pending.Wait()
	w.pg.Crash()
	w.js.Down(true)
	w.pg.Proc.CutAll(true)
	w.js.Proc.CutAll(true)
	w.pg.Proc.Wait()
	w.js.Proc.Wait()
}

// awaitEnd waits for a relay that was told to stop, or that has no slot any more.
func (w *world) awaitEnd(r *relay) {
	timer := time.NewTimer(stopTime)
	defer timer.Stop()
	select {
	case <-r.done:
	case <-timer.C:
		w.check.Fail(history.Orderly, "%s has not ended %s later: %+v", r.proc.Name, stopTime, r.pump.Status())
	}
}
