package main

import (
	"fmt"
	"sort"
	"time"

	"github.com/seed-1cfd9858/relay/test/sim/history"
	"github.com/seed-1cfd9858/relay/test/sim/jsmodel"
	"github.com/seed-1cfd9858/relay/test/sim/pgmodel"
	"github.com/seed-1cfd9858/relay/test/sim/simnet"
)

func sortSteps(steps []Step) {
	sort.SliceStable(steps, func(i, j int) bool { return steps[i].At < steps[j].At })
}

// do makes one step happen.
func (w *world) do(s Step) {
	if s.Kind != "commit" && s.Kind != "neighbours" && s.Kind != "empty" {
		w.log.Add("STEP", "%s", s)
	}
	for _, group := range []func(Step) bool{w.work, w.relayFault, w.networkFault, w.postgresFault, w.natsFault, w.refusals} {
		if group(s) {
			return
		}
	}
	panic("no such step: " + s.Kind)
}

// work is what happens without any fault.
func (w *world) work(s Step) bool {
	switch s.Kind {
	case "commit", "poison":
		if w.pg.Proc.Frozen() {
			return true
		}
		tx := &pgmodel.Tx{Others: w.events % 3 / 2}
		for range s.N {
			w.events++
			tx.Rows = append(tx.Rows, pgmodel.Row{
				ID: eventID(w.events), Topic: fmt.Sprintf("topic%d", w.events%3), Payload: fmt.Sprintf(`{"n": %d}`, w.events),
				Aggregate: fmt.Sprintf("a%d", w.events%7), Sequence: fmt.Sprint(w.events),
			})
			if w.events%5 == 0 {
				tx.Rows[len(tx.Rows)-1].Headers = fmt.Sprintf(`{"Trace": "t%d", "Many": ["a", "b"]}`, w.events)
			}
			if s.Kind == "poison" && len(tx.Rows) == 1+s.N/2 {
				tx.Rows[s.N/2].Topic = poisonTopic
				if s.Lose {
					tx.Rows[s.N/2].Topic = refusedTopic
				}
			}
		}
		w.trapMu.Lock()
		for _, row := range tx.Rows {
			w.rows[row.ID] = row
		}
		w.trapMu.Unlock()
		w.pg.Commit(tx)
	case "empty":
		w.pg.Commit(&pgmodel.Tx{Others: s.N % 2})
	case "neighbours":
		w.pg.Neighbours()
	case "checkpoint":
		w.pg.Checkpoint()
	default:
		return false
	}
	return true
}

func (w *world) relayFault(s Step) bool {
	kill := func() {
		w.kill(w.relay(s.Who), s.Lose)
		w.later(s.For, func() { w.revive(s.Who) })
	}
	freeze := func() {
		r := w.relay(s.Who)
		proc := r.proc
		w.log.Add(proc.Name, "is frozen for %s", s.For)
		proc.Freeze()
		w.later(s.For, func() {
			w.log.Add(proc.Name, "goes on")
			r.thawed.Store(time.Now().UnixNano())
			proc.Thaw()
		})
	}
	switch s.Kind {
	case "kill":
		kill()
	case "kill-at-store":
		w.set(&w.onStore, s.N, kill)
	case "kill-at-confirm":
		w.set(&w.onMark, s.N, kill)
	case "freeze":
		freeze()
	case "freeze-at-store":
		w.set(&w.onStore, s.N, freeze)
	case "stop":
		r := w.relay(s.Who)
		w.stop(r)
		w.pending.Go(func() {
			<-r.done
			w.revive(s.Who)
		})
	default:
		return false
	}
	return true
}

func (w *world) networkFault(s Step) bool {
	proc := w.relay(s.Who).proc
	hold := func(conns []*simnet.Conn) {
		for _, c := range conns {
			c.Hold(true)
		}
		w.later(s.For, func() {
			for _, c := range conns {
				c.Hold(false)
			}
		})
	}
	switch s.Kind {
	case "cut-postgres":
		w.pg.Proc.CutAll(s.Lose)
	case "cut-nats":
		w.js.Proc.CutAll(s.Lose)
	case "cut-nats-at-store":
		w.set(&w.onStore, s.N, func() {
			w.log.Add("network", "cuts all connections to NATS")
			w.js.Proc.CutAll(s.Lose)
		})
	case "hold-nats":
		if s.Lose { // one of the two directions
			hold(w.js.Proc.Conns())
		} else {
			hold(w.between(proc, w.js.Proc))
		}
	case "hold-postgres":
		if s.Lose {
			hold(w.pg.Proc.Conns())
		} else {
			hold(w.between(proc, w.pg.Proc))
		}
	case "partition-nats":
		w.js.Proc.SetDials(simnet.Hang)
		w.js.Proc.CutAll(s.Lose)
		w.later(s.For, func() { w.js.Proc.SetDials(simnet.Accept) })
	case "partition-relay": // both directions, to both servers; the connections survive if it is short
		hold(proc.Conns())
		for _, server := range []*simnet.Process{w.js.Proc, w.pg.Proc} {
			hold(w.between(server, proc))
		}
	default:
		return false
	}
	return true
}

// between returns the ends that one process has of its connections with another.
func (w *world) between(of, with *simnet.Process) []*simnet.Conn {
	var found []*simnet.Conn
	for _, c := range of.Conns() {
		if c.Peer() == with {
			found = append(found, c)
		}
	}
	return found
}

func (w *world) postgresFault(s Step) bool {
	crash := func() {
		w.log.Add("postgres", "crashes")
		w.pg.Crash()
		w.later(s.For, w.pg.Start)
	}
	switch s.Kind {
	case "postgres-crash":
		crash()
	case "postgres-crash-at-confirm":
		w.set(&w.onMark, s.N, crash)
	case "postgres-stop":
		w.pending.Go(func() { w.shutdown(s.For) })
	case "postgres-session":
		code := "57P01"
		if s.Lose {
			code = ""
		}
		w.pg.EndSession(code)
	case "postgres-freeze":
		w.pg.Proc.Freeze()
		w.later(s.For, w.pg.Proc.Thaw)
	case "occupy":
		w.pg.Occupy(s.For)
	case "failover":
		w.pg.Failover(s.N)
		w.later(s.For, w.pg.Start)
	case "slot-lost", "slot-missing", "column-dropped":
		w.trapMu.Lock()
		w.ended = true
		w.trapMu.Unlock()
		if s.Kind == "column-dropped" {
			w.pg.DropColumn()
		} else {
			w.pg.LoseSlot(s.Kind == "slot-missing")
		}
	default:
		return false
	}
	return true
}

// stopPatience is how long a shutdown of PostgreSQL may wait for relays: they let it go.
const stopPatience = 45 * time.Second

// shutdown stops PostgreSQL in an orderly way and starts it again.
func (w *world) shutdown(down time.Duration) {
	if !w.pg.Up() {
		return // somebody else is at it
	}
	w.pg.Stop()
	for waited := time.Duration(0); w.pg.Stopping(); waited += 100 * time.Millisecond {
		if waited > stopPatience {
			w.check.Fail(history.NotStuck, "PostgreSQL has not been able to stop for %s", waited)
			w.pg.Crash()
			break
		}
		time.Sleep(100 * time.Millisecond) //nolint:forbidigo // simulated
	}
	time.Sleep(down) //nolint:forbidigo // simulated
	w.pg.Start()
}

func (w *world) natsFault(s Step) bool {
	switch s.Kind {
	case "leaderless":
		w.js.Leaderless(s.For)
	case "nats-down", "nats-outage":
		w.js.Down(s.Lose)
		w.later(s.For, w.js.Start)
	case "nats-freeze":
		w.js.Proc.Freeze()
		w.later(s.For, w.js.Proc.Thaw)
	case "power-cut":
		w.js.PowerCut(s.N)
		w.later(s.For, w.js.Start)
	case "recreate":
		w.js.Delete()
		w.later(s.For, w.js.Create)
	case "foreign":
		w.js.Foreign("")
	case "foreign-id": // of an event that comes soon
		if id := eventID(w.events + s.N); w.js.Foreign(id) {
			w.check.Foreign(id)
		}
	default:
		return false
	}
	return true
}

func (w *world) refusals(s Step) bool {
	change := func(do, undo func(*jsmodel.Faults)) {
		w.js.Fault(do)
		if undo != nil {
			w.later(s.For, func() { w.js.Fault(undo) })
		}
	}
	switch s.Kind {
	case "drop-acks":
		change(func(f *jsmodel.Faults) { f.DropAcks = s.N }, nil)
	case "swallow":
		change(func(f *jsmodel.Faults) { f.Swallow = s.N }, nil)
	case "refuse":
		change(func(f *jsmodel.Faults) { f.Refuse, f.Code = s.N, jsmodel.Codes[s.N%len(jsmodel.Codes)] }, nil)
	case "late":
		change(func(f *jsmodel.Faults) { f.Late = s.For }, nil)
	case "mute":
		change(func(f *jsmodel.Faults) { f.Mute = s.N }, nil)
	case "full":
		change(func(f *jsmodel.Faults) { f.Full = true }, func(f *jsmodel.Faults) { f.Full = false })
	case "no-consumers":
		change(func(f *jsmodel.Faults) { f.NoConsumers = true }, func(f *jsmodel.Faults) { f.NoConsumers = false })
	case "stall":
		change(func(f *jsmodel.Faults) { f.Stall = true }, func(f *jsmodel.Faults) { f.Stall = false })
	default:
		return false
	}
	return true
}

func (w *world) slotGone() bool {
	w.trapMu.Lock()
	defer w.trapMu.Unlock()
	return w.ended
}
