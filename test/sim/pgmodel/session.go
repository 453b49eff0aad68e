package pgmodel

import (
	"encoding/binary"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/seed-1cfd9858/relay/test/sim/history"
	"github.com/seed-1cfd9858/relay/test/sim/simnet"
)

// session is one connection's backend. Its fields are guarded by the server's lock, apart from what only one of its two
// goroutines uses.
type session struct {
	server  *Server
	conn    *simnet.Conn
	backend *pgproto3.Backend
	pid     uint32
	client  string
	timeout time.Duration

	dead       bool   // no longer counts
	fatal      []byte // the server's last words
	reply      bool   // the client has asked for an answer
	done       bool   // the client has ended the stream
	heard      time.Time
	asked      bool // a keepalive that asks is out since heard
	flushed    pglogrepl.LSN
	took       func(history.Update, pglogrepl.LSN)
	write      sync.Mutex
	senderDone chan struct{}
}

var ready = &pgproto3.ReadyForQuery{TxStatus: 'I'}

// serve is the backend of one connection.
func (s *Server) serve(conn *simnet.Conn) {
	defer func() { _ = conn.Close() }()
	backend := pgproto3.NewBackend(conn, conn)
	start, err := backend.ReceiveStartupMessage()
	if err != nil {
		return
	}
	params, ok := start.(*pgproto3.StartupMessage)
	if !ok {
		return // a cancel request, which cancels nothing here
	}
	s.mu.Lock()
	s.nextPID++
	se := &session{server: s, conn: conn, backend: backend, pid: s.nextPID, client: conn.Peer().Name, heard: time.Now()}
	ms, _ := strconv.Atoi(params.Parameters["wal_sender_timeout"])
	se.timeout = time.Duration(ms) * time.Millisecond
	refuse := s.state != up
	s.mu.Unlock()
	if refuse {
		se.send(errorResponse("57P03", "the database system is shutting down"))
		return
	}
	se.send(&pgproto3.AuthenticationOk{}, &pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"},
		&pgproto3.BackendKeyData{ProcessID: se.pid, SecretKey: []byte{1, 2, 3, 4}}, ready)
	se.queries()
	se.release()
}

func errorResponse(code, message string) *pgproto3.ErrorResponse {
	severity := "ERROR"
	if strings.HasPrefix(code, "57P") {
		severity = "FATAL"
	}
	return &pgproto3.ErrorResponse{Severity: severity, SeverityUnlocalized: severity, Code: code, Message: message}
}

// send writes messages whole: two goroutines of a session may write.
func (se *session) send(messages ...pgproto3.BackendMessage) bool {
	var b []byte
	for _, m := range messages {
		var err error
		if b, err = m.Encode(b); err != nil {
			panic(err)
		}
	}
	se.write.Lock()
	defer se.write.Unlock()
	_, err := se.conn.Write(b)
	return err == nil
}

// queries answers the client until it goes.
func (se *session) queries() {
	for {
		msg, err := se.backend.Receive()
		if err != nil {
			return
		}
		switch msg := msg.(type) {
		case *pgproto3.Query:
			se.query(msg.String)
		case *pgproto3.CopyData:
			se.update(msg.Data)
		case *pgproto3.CopyDone:
			se.endStream()
		case *pgproto3.Terminate:
			return
		}
	}
}

func (se *session) query(text string) {
	switch {
	case text == "IDENTIFY_SYSTEM":
		var fields []pgproto3.FieldDescription
		for _, name := range []string{"systemid", "timeline", "xlogpos", "dbname"} {
			fields = append(fields, pgproto3.FieldDescription{Name: []byte(name), DataTypeOID: 25, DataTypeSize: -1, TypeModifier: -1})
		}
		se.server.mu.Lock()
		end := se.server.end.String()
		se.server.mu.Unlock()
		se.send(&pgproto3.RowDescription{Fields: fields},
			&pgproto3.DataRow{Values: [][]byte{[]byte(System), []byte("1"), []byte(end), []byte("app")}},
			&pgproto3.CommandComplete{CommandTag: []byte("IDENTIFY_SYSTEM")}, ready)
	case strings.HasPrefix(text, "START_REPLICATION SLOT "):
		se.start(text)
	default:
		se.send(errorResponse("42601", "syntax error"), ready)
	}
}

// start gives the slot to the session and begins to stream.
func (se *session) start(text string) {
	s := se.server
	s.mu.Lock()
	name := s.cfg.Slot.Slot
	var refusal *pgproto3.ErrorResponse
	switch {
	case !strings.HasPrefix(text, "START_REPLICATION SLOT "+name+" LOGICAL 0/0 "), s.missing:
		refusal = errorResponse("42704", "replication slot does not exist")
	case s.lost:
		refusal = errorResponse("55000", "can no longer get changes from this replication slot")
	case s.state != up || se.dead:
		refusal = errorResponse("57P03", "the database system is shutting down")
	case s.holder != nil:
		refusal = errorResponse("55006", "replication slot is active")
	default:
		s.holder, se.flushed, se.heard = se, s.confirmed, time.Now()
		se.patience()
		s.sessions = append(s.sessions, se)
		se.took = s.obs.SessionBegan(se.client)
		se.senderDone = make(chan struct{})
	}
	from := s.confirmed
	s.mu.Unlock()
	if refusal != nil {
		se.send(refusal, ready)
		return
	}
	s.log.Add("postgres", "session %d of %s streams from %s", se.pid, se.client, from)
	se.send(&pgproto3.CopyBothResponse{ColumnFormatCodes: []uint16{}})
	go func() {
		defer close(se.senderDone)
		se.stream(from)
	}()
}

// update takes a status update.
func (se *session) update(data []byte) {
	if len(data) != 34 || data[0] != 'r' {
		se.send(errorResponse("08P01", "unexpected message type"))
		return
	}
	u := history.Update{Write: lsn(data[1:]), Flush: lsn(data[9:]), Apply: lsn(data[17:])}
	s := se.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder != se || se.dead {
		return
	}
	se.heard, se.asked = time.Now(), false
	se.patience()
	se.reply = se.reply || data[33] != 0
	if u.Flush > s.confirmed {
		s.log.Add("postgres", "%s confirms %s", se.client, u.Flush)
	}
	if u != (history.Update{}) {
		se.took(u, s.end)
	}
	s.confirmed = max(s.confirmed, u.Flush)
	se.flushed = max(se.flushed, u.Flush)
	s.signal()
}

func lsn(b []byte) pglogrepl.LSN { return pglogrepl.LSN(binary.BigEndian.Uint64(b)) }

func (se *session) endStream() {
	se.server.mu.Lock()
	se.done = true
	se.server.signal()
	se.server.mu.Unlock()
	if se.senderDone != nil {
		<-se.senderDone
	}
	se.free()
	se.send(&pgproto3.CopyDone{}, &pgproto3.CommandComplete{CommandTag: []byte("COPY 0")},
		&pgproto3.CommandComplete{CommandTag: []byte("START_REPLICATION")}, ready)
}

// patience bounds a write to a client that reads nothing by what it has last said.
func (se *session) patience() {
	if se.timeout > 0 {
		_ = se.conn.SetWriteDeadline(se.heard.Add(se.timeout))
	}
}

// kill ends the session from the server's side. The lock is held.
func (se *session) kill(code, message string) {
	se.dead = true
	if se.conn != nil {
		_ = se.conn.SetWriteDeadline(time.Unix(1, 0)) // ends a write that hangs
	}
	if code != "" {
		se.fatal, _ = errorResponse(code, message).Encode(nil)
	}
	se.server.log.Add("postgres", "ends session %d of %s (%s)", se.pid, se.client, code)
}

// free gives the slot back.
func (se *session) free() {
	s := se.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder == se {
		s.holder = nil
		s.log.Add("postgres", "session %d of %s gives the slot back", se.pid, se.client)
	}
	s.stopIfIdle()
	s.signal()
}

// release is what is left to do when the connection has ended.
func (se *session) release() {
	s := se.server
	s.mu.Lock()
	if !se.dead { // the connection has ended, and with it a write that hangs
		se.dead = true
		_ = se.conn.SetWriteDeadline(time.Unix(1, 0))
	}
	s.signal()
	s.mu.Unlock()
	if se.senderDone == nil {
		return
	}
	<-se.senderDone
	s.mu.Lock()
	words := se.fatal
	s.mu.Unlock()
	if words != nil {
		_ = se.conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = se.conn.Write(words)
	}
	_ = se.conn.Close()
	if s.cfg.ReleaseTime > 0 {
		time.Sleep(s.cfg.ReleaseTime) //nolint:forbidigo // simulated
	}
	se.free()
}
