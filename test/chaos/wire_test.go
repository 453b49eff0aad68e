package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

// seconds is a moment.
func seconds(n int) time.Time { return time.Unix(1_700_000_000+int64(n), 0) }

// timed is a record of events that commit at 0, 10, 20, ... seconds, at LSNs 10, 20, ..., and of when they are stored; below
// zero: never.
func timed(stored ...int) ([]commit, []message) {
	var record []commit
	var stream []message
	for i, at := range stored {
		id := fmt.Sprint(i)
		record = append(record, commit{id: id, end: pglogrepl.LSN(10 * (i + 1)), at: seconds(10 * i)})
		if at >= 0 {
			stream = append(stream, message{seq: uint64(len(stream) + 1), id: id, at: seconds(at)})
		}
	}
	return record, stream
}

func TestEarlyOnWireSeesWhatIsWrong(t *testing.T) {
	t.Parallel()
	record, stream := timed(1, 12, 25, -1)
	for _, test := range []struct {
		at    int
		flush pglogrepl.LSN
		early int
	}{
		{0, 0, 0},
		{0, 9, 0},
		{0, 10, 1},
		{1, 10, 0},
		{11, 20, 1},
		{12, 29, 0},
		{24, 30, 1},
		{25, 39, 0},
		{99, 40, 1}, // it is not stored at all
	} {
		r := &result{}
		r.earlyOnWire(record, stream, []confirmation{{at: seconds(test.at), flush: test.flush, from: "relay0"}})
		if r.ConfirmedEarly != test.early || (r.verdict() == nil) != (test.early == 0) {
			t.Errorf("%+v: %d", test, r.ConfirmedEarly)
		}
	}
}

func TestBackwardsSeesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		confirmed []pglogrepl.LSN
		forgets   []int64
		back      int
	}{
		{[]pglogrepl.LSN{1, 2, 2, 3}, []int64{0, 0, 0, 0}, 0},
		{[]pglogrepl.LSN{1, 3, 2, 3}, []int64{0, 0, 0, 0}, 1},
		{[]pglogrepl.LSN{1, 3, 2, 3}, []int64{0, 0, 1, 1}, 0},
		{[]pglogrepl.LSN{1, 3, 2, 1}, []int64{0, 0, 1, 1}, 1},
	} {
		var samples []sample
		for i := range test.confirmed {
			samples = append(samples, sample{confirmed: test.confirmed[i], forgets: test.forgets[i]})
		}
		r := &result{}
		r.backwards(samples)
		if r.ConfirmedBack != test.back || (r.verdict() == nil) != (test.back == 0) {
			t.Errorf("%+v: %d", test, r.ConfirmedBack)
		}
	}
}

func TestStall(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		stored []int // commits are at 0, 10, 20, ...
		want   time.Duration
	}{
		{[]int{1, 12, 23}, 3 * time.Second},
		{[]int{9, 12, 23}, 9 * time.Second},
		{[]int{15, 16, 24}, 15 * time.Second},
		{[]int{30, 31, 32}, 30 * time.Second}, // since the first commit, whatever followed
		{[]int{1, 40, 70}, 30 * time.Second},
		{[]int{}, 0},
		{[]int{-1, -1}, 100 * time.Second},
		{[]int{1, 12, -1}, 80 * time.Second},
		{[]int{1, -1, 23, 60}, 40 * time.Second},
	} {
		record, stream := timed(test.stored...)
		if got, _ := stall(record, stream, seconds(100)); got != test.want {
			t.Errorf("%v: %v, want %v", test.stored, got, test.want)
		}
	}
}

// What a foreign writer can bring about is excused only if a relay has reported it, and his messages are nobody's phantoms.
func TestForeignIsExcusedWhenReported(t *testing.T) {
	t.Parallel()
	record, stream := history("a b c", "a c x b")
	stream[2].foreign = true
	for _, test := range []struct {
		reported map[string]bool
		right    bool
	}{
		{nil, false},
		{map[string]bool{"b": true}, false},
		{map[string]bool{"c": true}, true},
	} {
		r := &result{}
		r.balance(record, stream, test.reported)
		if r.Reordered != 1 || r.Foreign != 1 || r.Phantoms != 0 || (r.verdict() == nil) != test.right {
			t.Errorf("%v: %+v", test.reported, r)
		}
	}
}

// After a purge an event may be stored twice, and still may not be lost.
func TestAfterAPurge(t *testing.T) {
	t.Parallel()
	for stream, right := range map[string]bool{"a b c b c d": true, "a b b c": false} {
		r := &result{again: true}
		record, messages := history("a b c d", stream)
		r.balance(record, messages, nil)
		if r.Doubled == 0 || (r.verdict() == nil) != right {
			t.Errorf("%q: %+v", stream, r)
		}
	}
}
