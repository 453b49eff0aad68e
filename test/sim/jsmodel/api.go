package jsmodel

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// api answers a request of the JetStream API.
func (s *Server) api(c *client, m message) {
	subject := strings.TrimPrefix(m.subject, "$JS.API.")
	if s.faults.Mute > 0 {
		s.faults.Mute--
		s.log.Add("nats", "does not answer %s of %s", subject, c.name)
		return
	}
	verb, rest := subject, ""
	for _, v := range []string{"STREAM.INFO.", "STREAM.MSG.GET.", "CONSUMER.CREATE.", "CONSUMER.MSG.NEXT.", "CONSUMER.DELETE."} {
		if after, ok := strings.CutPrefix(subject, v); ok {
			verb, rest = v, after
		}
	}
	stream, name, _ := strings.Cut(rest, ".")
	var answer string
	switch {
	case verb == "CONSUMER.MSG.NEXT.":
		s.next(c, name, m)
		return
	case stream != s.cfg.Stream || !s.exists:
		answer = apiError(404, 10059, "stream not found")
	case !s.leader:
		answer = apiError(503, 10008, "JetStream system temporarily unavailable")
	case verb == "STREAM.INFO.":
		answer, c.told = s.info(), true
		s.log.Add("nats", "tells %s that the stream ends at %d", c.name, len(s.messages))
	case verb == "STREAM.MSG.GET.":
		answer = s.get(m.data)
	case verb == "CONSUMER.CREATE.":
		answer = s.createConsumer(name, m.data)
	case verb == "CONSUMER.DELETE.":
		delete(s.consumers, name)
		answer = `{"success":true}`
	default:
		answer = apiError(400, 10003, "bad request")
	}
	c.deliver(s.delay(), m.reply, m.reply, message{data: []byte(answer)})
}

func apiError(code, errCode int, text string) string {
	return fmt.Sprintf(`{"type":"error","error":{"code":%d,"err_code":%d,"description":%q}}`, code, errCode, text)
}

func (s *Server) info() string {
	replicas, cluster := 1, ""
	if s.cfg.Replicated {
		replicas, cluster = 3, `,"cluster":{"name":"c","leader":"n1"}`
	}
	first, last := 0, "0001-01-01T00:00:00Z"
	if n := len(s.messages); n > 0 {
		first, last = 1, s.messages[n-1].at.UTC().Format(time.RFC3339Nano)
	}
	return fmt.Sprintf(`{"type":"io.nats.jetstream.api.v1.stream_info_response","config":{"name":%q,"subjects":[%q],"retention":"limits",`+
		`"max_consumers":-1,"max_msgs":-1,"max_bytes":-1,"max_age":0,"max_msgs_per_subject":-1,"max_msg_size":-1,"discard":"new",`+
		`"storage":"file","num_replicas":%d,"duplicate_window":%d,"allow_direct":false,"sealed":false,"deny_delete":false,"deny_purge":false,`+
		`"allow_rollup_hdrs":false,"metadata":{"_nats.level":"5"}},"created":%q,"state":{"messages":%d,"bytes":%d,"first_seq":%d,"last_seq":%d,`+
		`"last_ts":%q,"consumer_count":%d}%s}`,
		s.cfg.Stream, s.cfg.Prefix+">", replicas, s.cfg.Window, s.created.UTC().Format(time.RFC3339Nano),
		len(s.messages), len(s.messages), first, len(s.messages), last, len(s.consumers), cluster)
}

// get is a read of one message: at a sequence, the first at or after it, or the last one.
func (s *Server) get(request []byte) string {
	var r struct {
		Seq  int    `json:"seq"`
		Next string `json:"next_by_subj"`
		Last string `json:"last_by_subj"`
	}
	if err := json.Unmarshal(request, &r); err != nil {
		return apiError(400, 10025, "invalid JSON")
	}
	seq := r.Seq
	if r.Last != "" {
		seq = len(s.messages)
	} else if r.Next != "" {
		seq = max(seq, 1)
	}
	if seq < 1 || seq > len(s.messages) {
		return apiError(404, 10037, "no message found")
	}
	m := s.messages[seq-1]
	hdrs := ""
	if len(m.header) > 0 {
		hdrs = fmt.Sprintf(`"hdrs":%q,`, base64.StdEncoding.EncodeToString(m.header))
	}
	return fmt.Sprintf(`{"type":"io.nats.jetstream.api.v1.stream_msg_get_response","message":{"subject":%q,"seq":%d,%s"data":%q,"time":%q}}`,
		m.subject, m.seq, hdrs, base64.StdEncoding.EncodeToString(m.data), m.at.UTC().Format(time.RFC3339Nano))
}

// consumer is one that reads headers in order and acks nothing.
type consumer struct {
	next      int // sequence
	delivered int
}

func (s *Server) createConsumer(name string, request []byte) string {
	if s.faults.NoConsumers {
		return apiError(503, 10023, "insufficient resources")
	}
	var r struct {
		Config json.RawMessage `json:"config"`
	}
	var config struct {
		Start int `json:"opt_start_seq"`
	}
	if json.Unmarshal(request, &r) != nil || json.Unmarshal(r.Config, &config) != nil {
		return apiError(400, 10025, "invalid JSON")
	}
	s.consumers[name] = &consumer{next: max(config.Start, 1)}
	return fmt.Sprintf(`{"type":"io.nats.jetstream.api.v1.consumer_create_response","stream_name":%q,"name":%q,"created":%q,"config":%s,`+
		`"delivered":{"consumer_seq":0,"stream_seq":0},"ack_floor":{"consumer_seq":0,"stream_seq":0},"num_ack_pending":0,"num_redelivered":0,`+
		`"num_waiting":0,"num_pending":%d}`,
		s.cfg.Stream, name, time.Now().UTC().Format(time.RFC3339Nano), r.Config, max(0, len(s.messages)-config.Start+1))
}

// next delivers what a pull consumer has. A request that finds nothing is left without an answer: a relay asks for what is
// there only.
func (s *Server) next(c *client, name string, m message) {
	consumer := s.consumers[name]
	if consumer == nil || s.faults.Stall || !s.exists || !s.leader {
		return
	}
	var r struct {
		Batch int `json:"batch"`
	}
	_ = json.Unmarshal(m.data, &r)
	for ; r.Batch > 0 && consumer.next <= len(s.messages); r.Batch-- {
		one := s.messages[consumer.next-1]
		consumer.next++
		consumer.delivered++
		ack := fmt.Sprintf("$JS.ACK.%s.%s.1.%d.%d.%d.%d", s.cfg.Stream, name, one.seq, consumer.delivered, one.at.UnixNano(), len(s.messages)-one.seq)
		header := one.header
		if len(header) == 0 {
			header = []byte("NATS/1.0\r\n\r\n")
		}
		header = fmt.Appendf(header[:len(header)-2:len(header)-2], "Nats-Msg-Size: %d\r\n\r\n", len(one.data))
		c.deliver(0, m.reply, one.subject, message{reply: ack, header: header})
	}
}
