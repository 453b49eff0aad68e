package sandbox

import (
	"encoding/binary"
	"fmt"
	"testing"
)

func pgMsg(kind byte, body string) string {
	return string(kind) + string(binary.BigEndian.AppendUint32(nil, uint32(len(body)+4))) + body
}

func pgStart(code uint32, body string) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(body)+8))
	return string(binary.BigEndian.AppendUint32(b, code)) + body
}

func status(flush uint64) string {
	b := []byte{'r'}
	for _, n := range []uint64{flush, flush, flush, 0} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return pgMsg('d', string(append(b, 1)))
}

// TestSplitterIgnoresChunks feeds the same bytes in chunks of every size: the hook must see the same, and the same must pass.
func TestSplitterIgnoresChunks(t *testing.T) {
	t.Parallel()
	long := fmt.Sprintf("%0*d", 3*natsMaxBody, 7)
	for name, c := range map[string]struct {
		toServer bool
		in       []string
		drop     int // the number of the message that is dropped
		saw      string
	}{
		"pg client": {
			toServer: true, drop: 4,
			in:  []string{pgStart(codeSSL, ""), pgStart(196608, "user\x00me\x00\x00"), pgMsg('p', "secret"), status(5), status(6), pgMsg('c', "")},
			saw: "[\x00 8 0][\x00 17 0][p 11 0][d 39 5][d 39 6][c 5 0]",
		},
		"pg server": {
			in:   []string{pgMsg('R', "1234"), pgMsg('d', "w"+long), pgMsg('d', ""), pgMsg('d', "k1234567812345678\x01")},
			saw:  "[R 9 0][d 3078 0][d 5 0][d 23 0]",
			drop: 1,
		},
		"nats client": {
			toServer: true, drop: 1,
			in:  []string{"CONNECT {}\r\n", "PUB a.b 3\r\nx\r\n\r\n", "HPUB c r 2 " + fmt.Sprint(len(long)+2) + "\r\n\r\n" + long + "\r\n", "pub d  0\r\n\r\n", "PING\r\n"},
			saw: "[CONNECT 0 12][PUB 3 16][HPUB 3074 3093][PUB 0 12][PING 0 6]",
		},
		"nats server": {
			in:   []string{"INFO {}\r\n", "MSG a 1 r 2\r\nhi\r\n", "HMSG a 1 2 4\r\n\r\nhi\r\n", "-ERR 'x'\r\n"},
			saw:  "[INFO 0 9][MSG 2 17][HMSG 4 20][-ERR 0 10]",
			drop: 2,
		},
	} {
		whole, want := "", ""
		for i, m := range c.in {
			whole += m
			if i != c.drop {
				want += m
			}
		}
		for size := 1; size <= len(whole); size++ {
			p := &Proxy{}
			saw, n := "", 0
			verdict := func() Action {
				n++
				if n-1 == c.drop {
					return Drop
				}
				return Forward
			}
			p.OnPg(func(m PgMessage) Action {
				saw += fmt.Sprintf("[%c %d %d]", m.Type, m.SizeBytes, uint64(m.Flush))
				return verdict()
			})
			p.OnNATS(func(m NATSMessage) Action {
				saw += fmt.Sprintf("[%s %d %d]", m.Op, m.HeaderBytes+m.PayloadBytes, m.SizeBytes)
				return verdict()
			})
			s := splitter{proxy: p, toServer: c.toServer, shared: &pgShared{}}
			got := ""
			for rest := whole; rest != ""; {
				chunk := rest[:min(size, len(rest))]
				rest = rest[len(chunk):]
				for _, out := range s.feed([]byte(chunk)) {
					got += string(out.data)
				}
			}
			if got != want || saw != c.saw {
				t.Fatalf("%s, chunks of %d: passed\n%.200q, saw\n%q, want\n%.200q,\n%q", name, size, got, saw, want, c.saw)
			}
		}
	}
}

func TestSplitterPassesOnWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for _, in := range []string{pgMsg('x', "")[:1] + "\x00\x00\x00\x01abc", "INFO" + fmt.Sprintf("%0*d", natsMaxLine+1, 1), "R\xff\xff\xff\xffabc", "hello", "\x00"} {
		s := splitter{proxy: &Proxy{}, shared: &pgShared{}}
		got := ""
		for _, out := range s.feed([]byte(in)) {
			got += string(out.data)
		}
		if got != in {
			t.Errorf("%.20q passed as %.20q", in, got)
		}
	}
}
