package dialogue

import (
	"fmt"
	"strconv"
	"time"
)

func number(n int) string { return strconv.Itoa(n) }

// natsScripts are what a broker can be brought to show.
var natsScripts = []struct {
	name   string
	limits limits
	play   func(x *talk)
}{
	{"stored at the expected sequence", limits{}, func(x *talk) {
		for i := range 3 {
			x.send("s.a", msgID, number(i), expected, number(i))
		}
	}},
	{"refused at another", limits{}, func(x *talk) {
		x.send("s.a", msgID, "a", expected, "7")
		x.send("s.a", msgID, "a", expected, "0")
		x.send("s.a", msgID, "b", expected, "0")
	}},
	{"after a refusal nothing fits", limits{}, func(x *talk) {
		x.send("s.a", msgID, "a", expected, "0")
		x.send("s.a", msgID, "b", expected, "9")
		x.send("s.a", msgID, "c", expected, "2")
		x.send("s.a", msgID, "d", expected, "3")
	}},
	{"a foreign message takes a place", limits{}, func(x *talk) {
		x.send("s.a", msgID, "a", expected, "0")
		x.send("s.b")
		x.send("s.a", msgID, "b", expected, "1")
		x.send("s.a", msgID, "c", expected, "2")
	}},
	{"duplicate without a fence", limits{}, func(x *talk) {
		x.send("s.a", msgID, "a")
		x.send("s.a", msgID, "b")
		x.send("s.a", msgID, "a")
	}},
	{"duplicate with the old fence", limits{}, func(x *talk) {
		x.send("s.a", msgID, "a", expected, "0")
		x.send("s.a", msgID, "a", expected, "0")
	}},
	{"duplicate with the right fence", limits{}, func(x *talk) {
		x.send("s.a", msgID, "a", expected, "0")
		x.send("s.a", msgID, "a", expected, "1")
		x.send("s.a", msgID, "b", expected, "1")
	}},
	{"duplicate after the window", limits{window: 100 * time.Millisecond}, func(x *talk) {
		x.send("s.a", msgID, "a")
		<-time.After(300 * time.Millisecond)
		x.send("s.a", msgID, "a")
	}},
	{"no stream for the subject", limits{}, func(x *talk) { x.send("t.a", msgID, "a") }},
	{"expected stream", limits{}, func(x *talk) {
		x.send("s.a", "Nats-Expected-Stream", "S")
		x.send("s.a", "Nats-Expected-Stream", "T")
		x.send("s.a", "Nats-Expected-Stream", "T", expected, "9")
	}},
	{"full", limits{messages: 2}, func(x *talk) {
		for i := range 4 {
			x.send("s.a", msgID, number(i))
		}
	}},
	{"full and a wrong fence", limits{messages: 1}, func(x *talk) {
		x.send("s.a", msgID, "a", expected, "0")
		x.send("s.a", msgID, "b", expected, "0")
		x.send("s.a", msgID, "b", expected, "1")
	}},
	{"information of an empty stream", limits{}, func(x *talk) { x.info() }},
	{"information of a stream", limits{}, func(x *talk) {
		x.send("s.a", msgID, "a")
		x.send("s.b", msgID, "b")
		x.info()
	}},
	{"information of no stream", limits{}, func(x *talk) { x.ask("STREAM.INFO.T", "") }},
	{"message by sequence", limits{}, func(x *talk) {
		x.send("s.a", msgID, "a")
		x.send("s.b", msgID, "b")
		for _, seq := range []int{1, 2, 3} {
			x.get(fmt.Sprintf(`{"seq":%d}`, seq))
		}
	}},
	{"first message at or after a sequence", limits{}, func(x *talk) {
		x.send("s.a", msgID, "a")
		x.send("s.b")
		for _, seq := range []int{0, 1, 2, 3} {
			x.get(fmt.Sprintf(`{"seq":%d,"next_by_subj":">"}`, seq))
		}
	}},
	{"last message", limits{}, func(x *talk) {
		x.get(`{"last_by_subj":">"}`)
		x.send("s.a", msgID, "a")
		x.send("s.b", msgID, "b")
		x.get(`{"last_by_subj":">"}`)
	}},
	{"consumer of headers", limits{}, func(x *talk) {
		for i := range 5 {
			x.send("s.a", msgID, number(i), "Relay-Position", "x@1 0/1 "+number(i))
		}
		x.send("s.b")
		x.pull(2, 5)
	}},
	{"consumer of no stream", limits{}, func(x *talk) {
		x.b.remove(x.t)
		x.pull(1, 1)
	}},
	{"restart", limits{}, func(x *talk) {
		x.send("s.a", msgID, "a", expected, "0")
		x.b.restart(x.t)
		x.nc = x.b.dial(x.t)
		x.info()
		x.send("s.a", msgID, "a", expected, "1")
		x.send("s.a", msgID, "b", expected, "1")
	}},
	{"removed and made again", limits{}, func(x *talk) {
		x.send("s.a", msgID, "a")
		x.b.remove(x.t)
		x.send("s.a", msgID, "b")
		x.ask("STREAM.INFO.S", "")
		x.get(`{"seq":1}`)
		x.b.create(x.t)
		x.info()
		x.send("s.a", msgID, "a", expected, "0")
	}},
	{"connection ended with messages on the way", limits{}, func(x *talk) {
		for i := range 50 {
			if err := x.nc.PublishMsg(x.message("s.a", msgID, number(i), expected, number(i))); err != nil {
				x.t.Fatal(err)
			}
		}
		if err := x.nc.Flush(); err != nil {
			x.t.Fatal(err)
		}
		x.nc.Close()
		x.nc = x.b.dial(x.t)
		x.send("s.a", msgID, "last") // comes behind them
		x.info()
	}},
	{"answers come in order", limits{}, func(x *talk) {
		sub, err := x.nc.SubscribeSync(x.nc.NewInbox())
		if err != nil {
			x.t.Fatal(err)
		}
		for i := range 20 {
			m := x.message("s.a", msgID, number(i), expected, number(i+i/15)) // from the 16th on they do not fit
			m.Reply = sub.Subject
			if err := x.nc.PublishMsg(m); err != nil {
				x.t.Fatal(err)
			}
		}
		for range 20 {
			m, err := sub.NextMsg(5 * time.Second)
			if err != nil {
				x.t.Fatal(err)
			}
			x.add("%s", plain(m.Data))
		}
	}},
}
