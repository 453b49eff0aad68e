package inbox

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// What happens to an event whose number shows that one before it is missing, or that it is late, is the application's choice.
func TestRunGap(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg    Config
		stored []string // id:number
		want   []string
		dead   []string
	}{
		"accept":               {Config{}, []string{"a:1", "c:3", "d:4", "b:2"}, []string{"a", "c", "d", "b"}, nil},
		"fail":                 {Config{OnGap: GapFail}, []string{"a:1", "c:3", "d:4", "b:2"}, []string{"a", "d"}, []string{"c", "b"}},
		"wait, and it comes":   {Config{OnGap: GapWait}, []string{"a:1", "c:3", "d:4", "b:2"}, []string{"a", "b", "c", "d"}, nil},
		"wait, in vain":        {Config{OnGap: GapWait, GapPatience: 50 * time.Millisecond}, []string{"a:1", "c:3", "d:4"}, []string{"a", "d"}, []string{"c"}},
		"wait, in a batch":     {Config{OnGap: GapWait, Batch: 10}, []string{"a:1", "c:3", "d:4", "b:2"}, []string{"a", "b", "c", "d"}, nil},
		"begins in the middle": {Config{OnGap: GapFail}, []string{"g:7", "h:8"}, []string{"g", "h"}, nil},
		"no numbers":           {Config{OnGap: GapFail}, []string{"a:0", "b:0"}, []string{"a", "b"}, nil},
		"a number twice":       {Config{OnGap: GapFail}, []string{"a:1", "b:1", "c:2"}, []string{"a", "c"}, []string{"b"}},
		"several missing, out of order": {
			Config{OnGap: GapWait}, []string{"a:1", "e:5", "d:4", "c:3", "b:2"}, []string{"a", "b", "c", "d", "e"}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := openMarket(t)
			for _, s := range c.stored {
				id, number, _ := strings.Cut(s, ":")
				m.publish(id, "a0", int(number[0]-'0'))
			}
			r := m.start(c.cfg)
			m.settled()
			if got := m.effects(""); !slices.Equal(got, c.want) {
				t.Errorf("effects of %v, want %v", got, c.want)
			}
			dead, err := Dead(t.Context(), m.pool, m.name, 10)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range dead {
				got = append(got, d.ID)
			}
			if !slices.Equal(got, c.dead) {
				t.Errorf("dead %v, want %v", got, c.dead)
			}
			if said := strings.Contains(r.log.String(), "one after the other"); said != (name == "accept") {
				t.Errorf("a gap is told: %t", said)
			}
		})
	}
}

// An event that waits for another one holds up nobody else, and goes on when the other one comes much later.
func TestRunGapLate(t *testing.T) {
	t.Parallel()
	m := openMarket(t)
	r := m.start(Config{OnGap: GapWait, FirstPause: time.Minute, MaxPause: time.Minute, GapPatience: time.Hour})
	m.publish("a", "a0", 1)
	m.publish("c", "a0", 3)
	r.log.wait(t, "an event waits for one before it")
	m.publish("x", "a1", 1)
	m.publish("b", "a0", 2)
	m.settled()
	if got := m.effects("a0"); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("effects of %v", got)
	}
	if got := m.effects("a1"); !slices.Equal(got, []string{"x"}) {
		t.Errorf("effects of %v", got)
	}
}
