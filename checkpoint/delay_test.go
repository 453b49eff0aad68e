package checkpoint

import (
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

// moment is a time of the test's own clock.
func moment(d time.Duration) time.Time { return time.Unix(1_000_000, 0).Add(d) }

func TestDelay(t *testing.T) {
	t.Parallel()
	const by = 10 * time.Second
	type put struct {
		at  time.Duration
		lsn pglogrepl.LSN
	}
	type look struct {
		at  time.Duration
		lsn pglogrepl.LSN
	}
	for _, test := range []struct {
		name  string
		by    time.Duration
		puts  []put
		looks []look
	}{
		{"none", 0, []put{{0, 100}, {1, 300}, {2, 200}}, []look{{2, 300}}},
		{"a negative one is none", -by, []put{{0, 100}}, []look{{0, 100}}},
		{"nothing put", by, nil, []look{{0, 0}, {time.Hour, 0}}},
		{"one", by, []put{{0, 100}}, []look{{0, 0}, {by - 1, 0}, {by, 100}, {by + 1, 100}}},
		{
			"two that are far apart", by,
			[]put{{0, 100}, {5 * time.Second, 200}},
			[]look{{5 * time.Second, 0}, {by, 100}, {by + 5*time.Second - 1, 100}, {by + 5*time.Second, 200}},
		},
		{
			"the same again does not begin anew", by,
			[]put{{0, 100}, {3 * time.Second, 100}, {9 * time.Second, 100}},
			[]look{{by, 100}},
		},
		{
			"a lower one is passed over", by,
			[]put{{0, 100}, {1 * time.Second, 50}},
			[]look{{by, 100}, {2 * by, 100}},
		},
		{
			"what joins a sample is not confirmed with its first part", by,
			[]put{{0, 100}, {20 * time.Millisecond, 200}, {80 * time.Millisecond, 300}},
			[]look{{by + 20*time.Millisecond, 100}, {by + 80*time.Millisecond - 1, 100}, {by + 80*time.Millisecond, 300}},
		},
		{
			"a sample that was not full does not hold its LSN back once the next comes late", by,
			[]put{{0, 100}, {50 * time.Millisecond, 200}, {8 * time.Second, 300}},
			[]look{{by, 100}, {by + 150*time.Millisecond, 200}, {by + 8*time.Second, 300}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := NewDelay(test.by)
			for _, p := range test.puts {
				d.Put(p.lsn, moment(p.at))
			}
			for _, l := range test.looks {
				if low := d.Low(moment(l.at)); low != l.lsn {
					t.Errorf("Low is %d at %s, want %d", uint64(low), l.at, uint64(l.lsn))
				}
			}
		})
	}
}

func TestDelay_ZeroValue(t *testing.T) {
	t.Parallel()
	var d Delay
	d.Put(100, moment(0))
	if low, next := d.Low(moment(0)), d.Next(); low != 100 || !next.IsZero() {
		t.Errorf("Low is %s, Next %s", low, next)
	}
}

// TestDelay_Next waits exactly as long as Next says, and Low rises each time.
func TestDelay_Next(t *testing.T) {
	t.Parallel()
	d := NewDelay(10 * time.Second)
	if next := d.Next(); !next.IsZero() {
		t.Errorf("Next is %s with nothing put", next)
	}
	for i := range 5 {
		d.Put(pglogrepl.LSN(100+i), moment(time.Duration(i)*time.Second))
	}
	for i := range 5 {
		next := d.Next()
		if want := moment(time.Duration(i)*time.Second + 10*time.Second); !next.Equal(want) {
			t.Fatalf("Next is %s, want %s", next, want)
		}
		before := d.Low(next.Add(-1))
		if low := d.Low(next); low <= before {
			t.Errorf("Low stays at %s when Next has come", low)
		}
	}
	if next := d.Next(); !next.IsZero() {
		t.Errorf("Next is %s at the end", next)
	}
}

func TestDelay_Flush(t *testing.T) {
	t.Parallel()
	d := NewDelay(10 * time.Second)
	d.Flush()
	d.Put(100, moment(0))
	d.Put(200, moment(time.Second))
	d.Flush()
	if low, next := d.Low(moment(time.Second)), d.Next(); low != 200 || !next.IsZero() {
		t.Errorf("Low is %s, Next %s", low, next)
	}
	d.Put(150, moment(2*time.Second)) // already confirmed
	if next := d.Next(); !next.IsZero() {
		t.Errorf("Next is %s for what is confirmed", next)
	}
	d.Put(300, moment(3*time.Second))
	if low := d.Low(moment(4 * time.Second)); low != 200 {
		t.Errorf("Low is %s: what is put after a flush waits like all else", low)
	}
}

// TestDelay_Bounded puts a new LSN every millisecond for an hour: the samples are bounded by the delay, and no LSN is
// confirmed too early or much too late.
func TestDelay_Bounded(t *testing.T) {
	t.Parallel()
	const by = 30 * time.Second
	d := NewDelay(by)
	most := 0
	for ms := range time.Hour.Milliseconds() {
		now := moment(time.Duration(ms) * time.Millisecond)
		d.Put(pglogrepl.LSN(ms+1), now)
		most = max(most, len(d.samples))
		if ms%37 != 0 {
			continue
		}
		due := pglogrepl.LSN(max(0, ms+1-by.Milliseconds()))
		if low := d.Low(now); low > due || low+pglogrepl.LSN(sampling.Milliseconds()) < due {
			t.Fatalf("Low is %d after %d ms", uint64(low), ms)
		}
	}
	if bound := 2*int((by+time.Second)/sampling) + 4; most > bound || cap(d.samples) > 2*bound {
		t.Errorf("up to %d samples, room for %d", most, cap(d.samples))
	}
}

// FuzzDelay plays puts and looks against every put that there was. Two bytes are one step: how long to wait, and what to
// do then.
func FuzzDelay(f *testing.F) {
	f.Add(uint16(10_000), []byte{0, 1, 5, 2, 250, 3, 255, 0, 255, 0, 255, 0})
	f.Add(uint16(300), []byte{1, 1, 1, 1, 1, 1, 1, 1, 9, 0, 9, 0, 9, 1, 30, 9, 30, 9, 30, 0})
	f.Add(uint16(0), []byte{0, 1, 5, 2, 250, 3})
	f.Add(uint16(1000), []byte{0, 1, 5, 2, 255, 255, 255, 3, 100, 0, 100, 0})
	f.Add(uint16(1000), []byte{0, 1, 5, 1, 6, 1, 31, 0, 2, 0})
	f.Fuzz(func(t *testing.T, ms uint16, steps []byte) {
		by := time.Duration(ms) * time.Millisecond
		d := NewDelay(by)
		var puts []sample
		highest := func(until time.Time) pglogrepl.LSN {
			var lsn pglogrepl.LSN
			for _, p := range puts {
				if !p.at.After(until) {
					lsn = max(lsn, p.lsn)
				}
			}
			return lsn
		}
		now, last := moment(0), pglogrepl.LSN(0)
		var put byte
		check := func() {
			low := d.Low(now)
			if early := highest(now.Add(-by)); low > early {
				t.Fatalf("Low is %d, but only %d had been put a delay of %s ago", uint64(low), uint64(early), by)
			}
			if late := highest(now.Add(-by - sampling)); low < late {
				t.Fatalf("Low is %d, but %d was put %s before a delay of %s", uint64(low), uint64(late), sampling, by)
			}
			if low < last {
				t.Fatalf("Low went down from %d to %d", uint64(last), uint64(low))
			}
			last = low
			if next := d.Next(); !next.IsZero() && !next.After(now) {
				t.Fatalf("Next is %s before now", now.Sub(next))
			}
		}
		for ; len(steps) >= 2 && len(puts) < 1000; steps = steps[2:] {
			now = now.Add(time.Duration(steps[0]) * time.Duration(steps[0]) * time.Millisecond) // up to a minute
			if steps[1] == 0 {
				check()
				continue
			}
			put += steps[1] // wraps: lower ones come too
			d.Put(pglogrepl.LSN(put), now)
			puts = append(puts, sample{at: now, lsn: pglogrepl.LSN(put)})
		}
		check()
		now = now.Add(by + 200*time.Millisecond)
		if check(); d.Low(now) != highest(now) || !d.Next().IsZero() {
			t.Fatalf("Low is %d at last, want %d; Next is %s", uint64(d.Low(now)), uint64(highest(now)), d.Next())
		}
	})
}
