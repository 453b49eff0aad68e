package publisher

import (
	"testing"

	"github.com/nats-io/nats.go"
)

// C22: only a whole acknowledgement of the relay's own stream gives a sequence.
func TestC22_Answers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		domain, text string
		seq          uint64
		reason       Reason // "": acknowledged
		code         int
	}{
		{text: `{"stream":"S","seq":2}`, seq: 2},
		{text: `{"stream":"S", "seq":2}`, seq: 2},
		{text: `{"seq":2,"stream":"S"}`, seq: 2},
		{text: `{"stream":"S","domain":"hub","seq":2}`, seq: 2},
		{domain: "hub", text: `{"stream":"S","domain":"hub","seq":2}`, seq: 2},
		{text: `{"stream":"S","seq":9999999999999999999}`, seq: 9999999999999999999},
		{text: `{"stream":"S","seq":18446744073709551615}`, seq: 1<<64 - 1},
		{text: `{"stream":"S","seq":18446744073709551618}`, reason: ReasonAnswer}, // 2 in 64 bits
		{text: `{"stream":"S","seq":100000000000000000000000000002}`, reason: ReasonAnswer},
		{text: `{"stream":"S","seq":}`, reason: ReasonAnswer},
		{text: `{"stream":"S","seq":-2}`, reason: ReasonAnswer},
		{text: `{"stream":"S","seq":2`, reason: ReasonAnswer},
		{text: `{"stream":"S","seq":2}}`, reason: ReasonAnswer},
		{text: `{"stream":"S","seq":2,"duplicate":true}`, reason: ReasonDuplicate},
		{text: `{"stream":"T","seq":2}`, reason: ReasonOtherStream},
		{text: `{"stream":"T","seq":2,"duplicate":true}`, reason: ReasonOtherStream},
		{text: `{"error":{"code":409,"err_code":10158,"description":"duplicate"},"stream":"S","seq":2}`, reason: ReasonRefused, code: 10158},
		{text: `{"error":{},"stream":"S","seq":2}`, reason: ReasonRefused},
		{text: `{}`, reason: ReasonAnswer},
		{text: `hello`, reason: ReasonAnswer},
		{text: ``, reason: ReasonAnswer},
	} {
		seq, failure := newAnswerParser("S", c.domain).parse(&nats.Msg{Data: []byte(c.text)})
		switch {
		case c.reason == "" && (failure != nil || seq != c.seq):
			t.Errorf("%s: sequence %d, %v, want %d", c.text, seq, failure, c.seq)
		case c.reason != "" && (failure == nil || failure.Reason != c.reason || failure.Code != c.code):
			t.Errorf("%s: sequence %d, %+v, want %s", c.text, seq, failure, c.reason)
		}
	}
}
