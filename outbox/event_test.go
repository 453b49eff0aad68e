package outbox

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// headerBlock is an event's header block as it goes over the wire, by the protocol's definition: a version line, one line
// for each header, an empty line.
func headerBlock(ev *Event, origin string, expected uint64) string {
	var b strings.Builder
	line := func(name, value string) { b.WriteString(name + ": " + value + "\r\n") }
	b.WriteString("NATS/1.0\r\n")
	line("Nats-Msg-Id", ev.ID)
	line("Nats-Expected-Last-Sequence", fmt.Sprint(expected))
	line("Relay-Position", origin+" "+ev.Position.String())
	line("Relay-Committed-At", ev.CommitTime.Format(time.RFC3339Nano))
	if ev.AggregateID != "" {
		line("Relay-Aggregate-Id", ev.AggregateID)
	}
	if ev.Sequence != "" {
		line("Relay-Sequence", ev.Sequence)
	}
	for _, h := range ev.Headers {
		line(h.Name, h.Value)
	}
	b.WriteString("\r\n")
	return b.String()
}

// TestEvent_WireHeaderBytes: the bound is never below the real header block, whatever its numbers turn out to be, and
// not far above it.
func TestEvent_WireHeaderBytes(t *testing.T) {
	t.Parallel()
	d := newDecoder(t, DefaultTemplate, standard(typeText))
	origin := Origin{Slot: "outbox_relay", System: "7412345678901234567"}.String()
	smallest, largest := math.MaxInt, 0
	for _, values := range [][]any{
		{"1", "t", "p", nil, nil, nil, nil},
		{"7b1c9f3e-0000-4000-8000-1234567890ab", "t", "p", "order-7", nil, nil, nil},
		{"1", "t", "p", nil, "-9223372036854775808", nil, nil},
		{"über", "t", "p", "straße", "1", `{"a": "1"}`, nil},
		{"1", "t", "p", "a", "1", `{"a": ["1", "22", ""], "b": "é", "empty": [], "c": "x y"}`, nil},
		{strings.Repeat("i", 300), "t", "p", strings.Repeat("a", 5000), "1", `{"a": "` + strings.Repeat("v", 9000) + `"}`, nil},
	} {
		for _, position := range []Position{{}, {0x1A2B3C8, 3}, {math.MaxUint64, math.MaxUint32}} {
			for _, at := range []time.Time{
				time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
				time.Date(2026, 1, 2, 3, 4, 5, 123456000, time.UTC),
				time.Date(2026, 1, 2, 3, 4, 5, 123456789, time.UTC),
			} {
				for _, expected := range []uint64{0, 12345, math.MaxUint64} {
					ev := decode(t, d, values...)
					ev.Position, ev.CommitTime = position, at
					real, bound := len(headerBlock(&ev, origin, expected)), ev.wireHeaderBytes(len(origin))
					smallest, largest = min(smallest, bound-real), max(largest, bound-real)
				}
			}
		}
	}
	if smallest != 0 || largest > 80 {
		t.Errorf("the bound is %d to %d bytes above the header block, want 0 to 80 at most", smallest, largest)
	}
}

func TestEvent_CheckLimits(t *testing.T) {
	t.Parallel()
	d := newDecoder(t, DefaultTemplate, standard(typeText))
	at := Position{CommitLSN: 0x1A2B3C8, Index: 3}

	ev := decode(t, d, "the-id", "t", strings.Repeat("p", 1000), "a", "1", `{"a": "b"}`, nil)
	ev.Position = at
	size := ev.wireHeaderBytes(10) + 1000
	for _, limits := range []Limits{{}, {OriginBytes: 10}, {MessageBytes: size, OriginBytes: 10}, {MessageBytes: size + 1, OriginBytes: 11}} {
		if err := ev.Check(limits); err != nil {
			t.Errorf("%+v: %v", limits, err)
		}
	}
	for _, limits := range []Limits{{MessageBytes: size - 1, OriginBytes: 10}, {MessageBytes: size, OriginBytes: 11}, {MessageBytes: 1}} {
		err := ev.Check(limits)
		var poison *PoisonError
		if !errors.As(err, &poison) || poison.ID != "the-id" || poison.Subject != "outbox.t" || poison.Position != at {
			t.Fatalf("%+v: %v", limits, err)
		}
		if !strings.Contains(err.Error(), fmt.Sprintf("over the limit of %d ", limits.MessageBytes)) || !strings.Contains(err.Error(), "0/1A2B3C8 3") {
			t.Error(err)
		}
	}

	// The bound on headers holds with no other limit known.
	room := MaxHeaderBytes - ev.wireHeaderBytes(10) + len(ev.AggregateID)
	for extra, legal := range []bool{true, false} {
		ev := decode(t, d, "the-id", "t", nil, strings.Repeat("a", room+extra), "1", `{"a": "b"}`, nil)
		if err := ev.Check(Limits{OriginBytes: 10}); (err == nil) != legal {
			t.Errorf("with %d bytes of headers: %v", ev.wireHeaderBytes(10), err)
		}
		big := decode(t, d, "the-id", "t", nil, "a", "1", `{"a": "b`+strings.Repeat("b", room-len("a")+extra)+`"}`, nil)
		if err := big.Check(Limits{OriginBytes: 10, MessageBytes: 1 << 20}); (err == nil) != legal {
			t.Errorf("with %d bytes of headers: %v", big.wireHeaderBytes(10), err)
		}
	}
}

func TestEvent_Refuse(t *testing.T) {
	t.Parallel()
	d := newDecoder(t, DefaultTemplate, standard(typeText))
	ev := decode(t, d, "the-id", "t", "p", nil, nil, nil, nil)
	ev.Refuse("the broker said so")
	if why := reason(t, &ev); why != "the broker said so" {
		t.Errorf("reason %q", why)
	}
	if ev = decode(t, d, "the-id", "t", "p", nil, nil, nil, nil); reason(t, &ev) != "" {
		t.Errorf("the refusal sticks to the next event: %q", reason(t, &ev))
	}
	if got, want := ev.Poison("no").Error(), `event id="the-id" subject="outbox.t" at 0/0 0 can never be stored: no`; got != want {
		t.Errorf("error %q", got)
	}
}
