package sandbox

import (
	"bytes"
	"strconv"
	"strings"
)

// NATSMessage is an operation on a NATS connection.
type NATSMessage struct {
	Connection int    // the number of the connection in this proxy, from 1
	ToServer   bool   // sent by the client
	Op         string // PUB, HPUB, MSG, HMSG, SUB, PING, +OK, ... in upper case
	SizeBytes  int    // on the wire

	// Of the operations that carry a message (PUB, HPUB, MSG, HMSG):

	Subject      string
	Reply        string
	HeaderBytes  int
	PayloadBytes int    // without the header
	Body         []byte // header and payload, their first 1 KiB at most; valid only during the hook
}

const (
	natsMaxBody = 1 << 10
	natsMaxLine = 64 << 10 // INFO and CONNECT are the longest
)

// natsProtocol reads the operations of one direction.
type natsProtocol struct{ splitter *splitter }

func (p *natsProtocol) frame(b []byte) (want, size int) {
	end := bytes.Index(b, []byte("\r\n"))
	if end < 0 {
		if len(b) > natsMaxLine {
			return 0, opaque // not the protocol we know
		}
		return len(b) + 1, 0
	}
	line := end + 2
	m, ok := parseNATS(string(b[:end]))
	if !ok {
		return line, line
	}
	body := m.HeaderBytes + m.PayloadBytes
	return line + min(body, natsMaxBody), line + body + 2
}

func (p *natsProtocol) judge(head []byte, size int) Action {
	if size == opaque {
		return Forward
	}
	line, body, _ := bytes.Cut(head, []byte("\r\n"))
	m, _ := parseNATS(string(line))
	m.Connection, m.ToServer, m.SizeBytes = p.splitter.connection, p.splitter.toServer, size
	m.Body = body[:min(len(body), m.HeaderBytes+m.PayloadBytes, natsMaxBody)]
	return p.splitter.proxy.askNATS(m)
}

// parseNATS reads a control line and says whether a message follows it.
//
//	PUB subject [reply] size                  HPUB subject [reply] header size
//	MSG subject sid [reply] size              HMSG subject sid [reply] header size
func parseNATS(line string) (NATSMessage, bool) {
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return NATSMessage{}, false
	}
	m := NATSMessage{Op: strings.ToUpper(fields[0])}
	names, sizes := 1, 1 // fields before the optional reply, numbers at the end
	switch m.Op {
	case "PUB":
	case "HPUB":
		sizes = 2
	case "MSG":
		names = 2
	case "HMSG":
		names, sizes = 2, 2
	default:
		return m, false
	}
	args := fields[1:]
	if len(args) < names+sizes || len(args) > names+1+sizes {
		return m, false
	}
	m.Subject = args[0]
	if len(args) == names+1+sizes {
		m.Reply = args[names]
	}
	total, err := strconv.Atoi(args[len(args)-1])
	if err != nil || total < 0 {
		return m, false
	}
	if sizes == 2 {
		m.HeaderBytes, err = strconv.Atoi(args[len(args)-2])
		if err != nil || m.HeaderBytes < 0 || m.HeaderBytes > total {
			return m, false
		}
	}
	m.PayloadBytes = total - m.HeaderBytes
	return m, true
}
