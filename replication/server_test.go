package replication

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"go.uber.org/goleak"

	"github.com/seed-1cfd9858/relay/outbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testDSN    = "postgres://u@127.0.0.1:5432/db?sslmode=disable"
	testSystem = "7555555555555555555"
	// limit is how long a test waits for what must happen.
	limit = 5 * time.Second
)

// server is a scripted PostgreSQL with one walsender. It reads all the time, as the kernel's buffers would, and writes what
// the test gives it, write by write.
type server struct {
	conn    net.Conn
	client  *client
	backend *pgproto3.Backend
	writes  chan []byte
	got     chan any // what the client sent: update, *pgproto3.Query, *pgproto3.CopyDone, *pgproto3.Terminate, and then it is closed

	parameters map[string]string // of the start-up message
	refuse     string            // how a query begins that is answered with an error; set before the client connects
}

// client is the client's end. around, if it is set, is called with what sets a read deadline.
type client struct {
	net.Conn
	around func(deadline time.Time, set func())
}

func (c *client) SetReadDeadline(deadline time.Time) (err error) {
	if c.around == nil {
		return c.Conn.SetReadDeadline(deadline)
	}
	c.around(deadline, func() { err = c.Conn.SetReadDeadline(deadline) })
	return err
}

// update is a status update as it arrived.
type update struct {
	Write, Flush, Apply pglogrepl.LSN
	Sent                time.Time
	Ask                 bool
	At                  time.Time // when it arrived
}

// newServer starts a server and returns it with the configuration that reaches it.
func newServer(t testing.TB, dsn string) (*server, *pgconn.Config) {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	s := &server{
		conn: far, client: &client{Conn: near}, backend: pgproto3.NewBackend(far, far),
		writes: make(chan []byte, 1024), got: make(chan any, 4096),
	}
	cfg.DialFunc = func(context.Context, string, string) (net.Conn, error) { return s.client, nil }
	var wg sync.WaitGroup
	wg.Go(func() { s.read(t) })
	wg.Go(s.write)
	t.Cleanup(func() {
		close(s.writes)
		_ = near.Close()
		_ = far.Close()
		wg.Wait()
	})
	return s, &cfg.Config
}

func (s *server) write() {
	for b := range s.writes {
		_, _ = s.conn.Write(b) // if the client has gone, so be it
	}
}

func (s *server) read(t testing.TB) {
	defer close(s.got)
	start, err := s.backend.ReceiveStartupMessage()
	if err != nil {
		return
	}
	s.parameters = start.(*pgproto3.StartupMessage).Parameters
	ready := &pgproto3.ReadyForQuery{TxStatus: 'I'}
	s.reply(t, &pgproto3.AuthenticationOk{}, &pgproto3.BackendKeyData{ProcessID: 4711, SecretKey: []byte{1, 2, 3, 4}}, ready)
	for {
		msg, err := s.backend.Receive()
		if err != nil {
			return
		}
		switch msg := msg.(type) {
		case *pgproto3.Query:
			s.got <- &pgproto3.Query{String: msg.String}
			if s.refuse != "" && strings.HasPrefix(msg.String, s.refuse) {
				s.reply(t, serverError("55006"), ready)
				continue
			}
			if msg.String != "IDENTIFY_SYSTEM" {
				s.reply(t, &pgproto3.CopyBothResponse{ColumnFormatCodes: []uint16{}})
				continue
			}
			var fields []pgproto3.FieldDescription
			for _, name := range []string{"systemid", "timeline", "xlogpos", "dbname"} {
				fields = append(fields, pgproto3.FieldDescription{Name: []byte(name), DataTypeOID: 25, DataTypeSize: -1, TypeModifier: -1})
			}
			s.reply(t, &pgproto3.RowDescription{Fields: fields},
				&pgproto3.DataRow{Values: [][]byte{[]byte(testSystem), []byte("1"), []byte("7/89ABCDEF"), []byte("db")}},
				&pgproto3.CommandComplete{CommandTag: []byte("IDENTIFY_SYSTEM")}, ready)
		case *pgproto3.CopyData:
			s.got <- parseUpdate(t, msg.Data)
		case *pgproto3.CopyDone:
			s.got <- &pgproto3.CopyDone{}
		case *pgproto3.Terminate:
			s.got <- &pgproto3.Terminate{}
		default:
			t.Errorf("the client sent %T", msg)
		}
	}
}

func (s *server) reply(t testing.TB, messages ...pgproto3.BackendMessage) {
	for _, m := range messages {
		s.backend.Send(m)
	}
	if err := s.backend.Flush(); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Logf("reply: %v", err)
	}
}

func parseUpdate(t testing.TB, b []byte) update {
	if len(b) != 34 || b[0] != 'r' || b[33] > 1 {
		t.Errorf("the client sent % x, want a status update", b)
		return update{}
	}
	return update{
		Write: lsn(b[1:]), Flush: lsn(b[9:]), Apply: lsn(b[17:]),
		Sent: pgTime(binary.BigEndian.Uint64(b[25:])), Ask: b[33] == 1, At: time.Now(),
	}
}

// send gives the client messages of the server in one write.
func (s *server) send(t testing.TB, messages ...pgproto3.BackendMessage) {
	s.writes <- encode(t, messages...)
}

func encode(t testing.TB, messages ...pgproto3.BackendMessage) []byte {
	t.Helper()
	var b []byte
	for _, m := range messages {
		var err error
		if b, err = m.Encode(b); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// next returns what the client sent next.
func (s *server) next(t testing.TB) any {
	t.Helper()
	select {
	case msg, ok := <-s.got:
		if !ok {
			t.Fatal("the client closed the connection")
		}
		return msg
	case <-time.After(limit):
		t.Fatal("the client sent nothing")
	}
	return nil
}

// nextUpdate returns the next status update.
func (s *server) nextUpdate(t testing.TB) update {
	t.Helper()
	u, ok := s.next(t).(update)
	if !ok {
		t.Fatal("not a status update")
	}
	return u
}

// open starts a session with a new server and takes the two queries off it.
func open(t testing.TB, timeout time.Duration) (*Session, *server) {
	t.Helper()
	srv, cfg := newServer(t, testDSN)
	s, err := Open(t.Context(), cfg, Config{Slot: "relay", Publication: "relay", Timeout: timeout}, newDecoder(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // whatever a test left, and also if it closed the session
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Close(ctx)
	})
	for range 2 {
		if _, ok := srv.next(t).(*pgproto3.Query); !ok {
			t.Fatal("not a query")
		}
	}
	return s, srv
}

func newDecoder(t testing.TB) *outbox.Decoder {
	t.Helper()
	template, err := outbox.ParseTemplate(outbox.DefaultTemplate)
	if err != nil {
		t.Fatal(err)
	}
	return outbox.NewDecoder(outbox.Table{Schema: "public", Name: "outbox"}, template)
}

func serverError(code string) *pgproto3.ErrorResponse {
	return &pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: code, Message: "the server's own words"}
}

// wantCode checks that an error carries what the server said.
func wantCode(t testing.TB, err error, code string) {
	t.Helper()
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != code {
		t.Errorf("error %v, want SQLSTATE %s", err, code)
	}
}

// updates returns the status updates that have arrived in a bubble.
func (s *server) updates(t testing.TB) []update {
	t.Helper()
	synctest.Wait()
	var all []update
	for len(s.got) > 0 {
		all = append(all, s.nextUpdate(t))
	}
	return all
}
