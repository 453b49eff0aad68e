package dialogue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// short is long enough for a message to come, on any machine that is not in trouble.
const short = 300 * time.Millisecond

// postgresScripts are what a PostgreSQL can be brought to show.
var postgresScripts = []struct {
	name string
	play func(r *reader)
}{
	{"a transaction", func(r *reader) {
		r.stream()
		r.commit("a", "b", "c")
		r.read(1)
	}},
	{"a table is announced once", func(r *reader) {
		r.stream()
		r.commit("a")
		r.commit("b")
		r.read(2)
	}},
	{"a table that changes between two rows is announced again", func(r *reader) {
		r.stream()
		r.commit("a")
		r.db.commit(r.t, []string{"b", "c"}, 0, true)
		r.commit("d")
		r.read(3)
	}},
	{"rows of another table between", func(r *reader) {
		r.stream()
		r.db.commit(r.t, []string{"a", "b", "c"}, 2, false)
		r.read(1)
	}},
	{"a transaction without rows", func(r *reader) {
		r.stream()
		r.commit()
		r.commit("a")
		r.read(1)
		r.silence(short)
	}},
	{"what was written before the session", func(r *reader) {
		r.commit("a")
		r.commit("b")
		r.stream()
		r.read(2)
	}},
	{"nothing confirmed, all again", func(r *reader) {
		r.stream()
		r.commit("a")
		r.commit("b")
		r.read(2)
		r.reopen()
		r.read(2)
	}},
	{"the end confirmed, nothing again", func(r *reader) {
		r.stream()
		r.commit("a")
		r.read(1)
		r.confirm(0)
		r.confirmed()
		r.reopen()
		r.silence(short)
	}},
	{"the start of the commit record confirmed, again", func(r *reader) {
		r.stream()
		r.commit("a")
		r.read(1)
		r.update(r.at[0], true)
		r.keepalive(false)
		r.reopen()
		r.read(1)
	}},
	{"confirmed in the middle, the rest again", func(r *reader) {
		r.stream()
		for _, id := range []string{"a", "b", "c"} {
			r.commit(id)
		}
		r.read(3)
		r.confirm(1)
		r.confirmed()
		r.reopen()
		r.read(1)
		r.silence(short)
	}},
	{"a lower confirmation changes nothing", func(r *reader) {
		r.stream()
		r.commit("a")
		r.commit("b")
		r.read(2)
		r.confirm(1)
		r.confirm(0)
		r.confirmed()
	}},
	{"a confirmation of zero changes nothing", func(r *reader) {
		r.stream()
		r.commit("a")
		r.read(1)
		r.confirm(0)
		r.update(0, true)
		r.keepalive(false)
		r.confirmed()
	}},
	{"the slot is held", func(r *reader) {
		r.stream()
		first := r.conn
		r.open(time.Minute, names.Slot)
		r.conn = first
		r.commit("a")
		r.read(1)
	}},
	{"no such slot", func(r *reader) { r.open(time.Minute, "nobody") }},
	{"an answer that was asked for", func(r *reader) {
		r.stream()
		r.update(0, true)
		r.keepalive(false)
	}},
	{"an answer tells of WAL without rows", func(r *reader) {
		r.stream()
		r.commit("a")
		r.read(1)
		r.confirm(0)
		r.commit()
		r.silence(short)
		r.update(r.ends[0], true)
		r.add("beyond the last commit: %v", r.keepalive(false) > r.ends[0])
	}},
	{"a silent client is asked, then its session ends", func(r *reader) {
		r.open(2*time.Second, names.Slot)
		r.keepalive(true)
		r.end()
		r.free()
		r.add("the slot is free")
	}},
	{"a client that answers keeps its session", func(r *reader) {
		r.open(time.Second, names.Slot)
		for range 3 {
			r.keepalive(true)
			r.update(0, false)
		}
		r.commit("a")
		r.read(1)
	}},
	{"the client ends the stream", func(r *reader) {
		r.stream()
		r.commit("a")
		r.read(1)
		r.update(r.ends[0], false)
		r.conn.Frontend().Send(&pgproto3.CopyDone{})
		if err := r.conn.Frontend().Flush(); err != nil {
			r.t.Fatal(err)
		}
		r.end()
		r.free()
		r.confirmed()
	}},
	{"the client goes without a word", func(r *reader) {
		r.stream()
		r.leave()
		r.add("the slot is free")
		r.open(time.Minute, names.Slot)
		r.commit("a")
		r.read(1)
	}},
	{"an administrator ends the session", func(r *reader) {
		r.stream()
		r.commit("a")
		r.read(1)
		r.db.endSession(r.t)
		r.end()
		r.free()
		r.add("the slot is free")
	}},
	{"a shutdown waits for confirmations and asks again and again", func(r *reader) {
		r.stream()
		r.commit("a")
		r.read(1)
		r.db.stop(r.t)
		for range 12 {
			r.keepalive(true)
			r.update(0, false)
		}
		r.obey()
	}},
	{"a shutdown with everything confirmed", func(r *reader) {
		r.stream()
		r.commit("a")
		r.read(1)
		r.confirm(0)
		r.db.stop(r.t)
		r.obey()
	}},
	{"a crash may forget confirmations, and nothing else", func(r *reader) { r.forgetful(func() {}) }},
	{"a checkpoint may keep them", func(r *reader) { r.forgetful(func() { r.db.checkpoint(r.t) }) }},
	{"a crash keeps commits", func(r *reader) {
		r.commit("a")
		r.db.crash(r.t)
		r.db.start(r.t)
		r.stream()
		r.read(1)
	}},
}

// forgetful confirms, crashes, and notes what comes afterwards for certain. Whether confirmations are on disk by then is the
// server's affair: it writes them when the slot's restart LSN moves, and before version 17 not even each checkpoint does.
func (r *reader) forgetful(before func()) {
	r.t.Helper()
	r.stream()
	r.commit("a")
	r.read(1)
	r.confirm(0)
	before()
	r.leave()
	r.db.crash(r.t)
	r.db.start(r.t)
	r.commit("b")
	r.open(time.Minute, names.Slot)
	const last = "insert tb tt t{} n n n"
	for r.read(1); !slices.Contains(*r.transcript, last); {
		r.read(1)
	}
	r.silence(short)
	*r.transcript = slices.DeleteFunc(*r.transcript, func(line string) bool { return line != last && line != "silence" })
}

func (r *reader) stream() { r.open(time.Minute, names.Slot) }

func (r *reader) commit(ids ...string) { r.db.commit(r.t, ids, 0, false) }

// confirm confirms the end of a commit that was read, and waits until the server has taken it.
func (r *reader) confirm(i int) {
	r.t.Helper()
	r.update(r.ends[i], true)
	r.keepalive(false)
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	for _, major := range sandbox.Majors(t) {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			t.Parallel()
			real := newRealDatabase(t, major)
			for _, s := range postgresScripts {
				t.Run(s.name, func(t *testing.T) {
					play := func(db database) transcript {
						var x transcript
						s.play(&reader{transcript: &x, t: t, db: db})
						return x
					}
					real.reset(t)
					same(t, play(newModelDatabase(major)), play(real))
				})
			}
		})
	}
}
