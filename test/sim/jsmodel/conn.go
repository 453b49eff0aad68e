package jsmodel

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-1cfd9858/relay/test/sim/simnet"
)

// client is one connection. https://docs.nats.io/reference/reference-protocols/nats-protocol
type client struct {
	server *Server
	conn   *simnet.Conn
	name   string
	told   bool // where the stream ends; guarded by the server's lock

	mu   sync.Mutex
	subs map[string]string // subject by sid
	out  []output
	last time.Time // when the last output goes
	more chan struct{}
	gone bool
}

type output struct {
	at   time.Time
	data []byte
}

// serve is one connection from its beginning to its end.
func (s *Server) serve(conn *simnet.Conn) {
	c := &client{server: s, conn: conn, name: conn.Peer().Name, subs: map[string]string{}, more: make(chan struct{}, 1)}
	written := make(chan struct{})
	go func() {
		defer close(written)
		c.writer()
	}()
	c.send(0, []byte(`INFO {"server_id":"SIM","server_name":"sim","version":"2.15.2","proto":1,"headers":true,`+
		`"max_payload":1048576,"jetstream":true,"client_id":1}`+"\r\n"))
	c.reader()
	c.mu.Lock()
	c.gone = true
	c.mu.Unlock()
	c.nudge()
	_ = conn.Close()
	<-written
}

func (c *client) nudge() {
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// send queues bytes that go after a delay, and never before what was queued earlier.
func (c *client) send(delay time.Duration, data []byte) {
	c.mu.Lock()
	at := time.Now().Add(delay)
	if at.Before(c.last) {
		at = c.last
	}
	c.last = at
	c.out = append(c.out, output{at: at, data: data})
	c.mu.Unlock()
	c.nudge()
}

func (c *client) writer() {
	for {
		c.mu.Lock()
		gone := c.gone
		var data []byte
		wait := time.Duration(-1)
		for len(c.out) > 0 && wait < 0 {
			if wait = time.Until(c.out[0].at); wait <= 0 {
				data = append(data, c.out[0].data...)
				c.out, wait = c.out[1:], -1
			}
		}
		c.mu.Unlock()
		switch {
		case gone:
			return
		case len(data) > 0:
			if _, err := c.conn.Write(data); err != nil {
				_ = c.conn.SetReadDeadline(time.Unix(1, 0))
				return
			}
		case wait < 0:
			<-c.more
		default:
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-c.more:
			}
			timer.Stop()
		}
	}
}

func (c *client) reader() {
	r := bufio.NewReaderSize(c.conn, 4096)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		switch f[0] {
		case "PING":
			c.send(0, []byte("PONG\r\n"))
		case "SUB":
			c.mu.Lock()
			c.subs[f[len(f)-1]] = f[1]
			c.mu.Unlock()
		case "UNSUB":
			if len(f) == 2 { // one with a maximum ends by itself
				c.mu.Lock()
				delete(c.subs, f[1])
				c.mu.Unlock()
			}
		case "PUB", "HPUB":
			m, err := readMessage(r, f)
			if err != nil {
				return
			}
			c.server.publish(c, m)
		}
	}
}

// message is one message, in or out.
type message struct {
	subject, reply string
	header, data   []byte
}

func readMessage(r *bufio.Reader, f []string) (message, error) {
	m := message{subject: f[1]}
	numbers := f[len(f)-1:]
	if f[0] == "HPUB" {
		numbers = f[len(f)-2:]
	}
	if len(f)-len(numbers) == 3 {
		m.reply = f[2]
	}
	header := 0
	if len(numbers) == 2 {
		header, _ = strconv.Atoi(numbers[0])
	}
	total, err := strconv.Atoi(numbers[len(numbers)-1])
	if err != nil {
		return m, err
	}
	b := make([]byte, total+2)
	if _, err := io.ReadFull(r, b); err != nil {
		return m, err
	}
	m.header, m.data = b[:header], b[header:total]
	return m, nil
}

// deliver sends a message to whoever has subscribed to a subject on this connection. as is the subject that it carries.
func (c *client) deliver(delay time.Duration, to, as string, m message) bool {
	c.mu.Lock()
	sid := ""
	for id, subject := range c.subs {
		if subject == to || strings.HasSuffix(subject, "*") && strings.HasPrefix(to, subject[:len(subject)-1]) {
			sid = id
			break
		}
	}
	c.mu.Unlock()
	if sid == "" {
		return false
	}
	var b bytes.Buffer
	reply := m.reply
	if reply != "" {
		reply += " "
	}
	if len(m.header) > 0 {
		fmt.Fprintf(&b, "HMSG %s %s %s%d %d\r\n", as, sid, reply, len(m.header), len(m.header)+len(m.data))
	} else {
		fmt.Fprintf(&b, "MSG %s %s %s%d\r\n", as, sid, reply, len(m.data))
	}
	b.Write(m.header)
	b.Write(m.data)
	b.WriteString("\r\n")
	c.send(delay, b.Bytes())
	return true
}

// head returns the first value of a header, "" if it is not there.
func (m message) head(name string) string {
	for line := range strings.SplitSeq(string(m.header), "\r\n") {
		if value, ok := strings.CutPrefix(line, name+": "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
