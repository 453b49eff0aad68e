package replication

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/seed-1cfd9858/relay/outbox"
)

// DefaultTimeout is the session timeout of a Config that sets none.
const DefaultTimeout = 10 * time.Second

// MinTimeout is the shortest session timeout: status updates go out every third of it.
const MinTimeout = time.Second

// Config says what a session reads.
type Config struct {
	Slot        string // [a-z0-9_]{1,63}; the replication grammar takes it unquoted, so whoever fills it has checked it
	Publication string
	// Timeout is sent as the session's own wal_sender_timeout, so the server frees a dead relay's slot within it.
	// 0: DefaultTimeout.
	Timeout time.Duration
	// Patience is how long the server may be silent. 0: Timeout. A dead server and one that is busy with a large transaction
	// of other tables look the same.
	Patience time.Duration
}

// Session is one replication connection. It is owned by one goroutine; only Wake is safe from others.
type Session struct {
	conn    *pgconn.PgConn
	net     net.Conn
	front   *pgproto3.Frontend
	buffer  *bufio.Reader
	decoder *outbox.Decoder
	timeout time.Duration
	silence time.Duration // how long the server may be silent
	system  string

	woken    atomic.Bool
	deadline time.Time // read deadline that is set on the connection; zero when Wake may have moved it
	lastRead time.Time // when something was last received, or reading began again
	partial  int       // bytes of the message that was incomplete when a read last ended early
	status   status
	stopping stopDetector
	tx       transaction
	broken   bool // the connection failed, or the server ended the stream
}

// transaction is the one that is being read.
type transaction struct {
	open       bool
	commitLSN  pglogrepl.LSN
	commitTime time.Time
	events     uint32
}

// readBuffer is larger than what a walsender writes at once, so that one system call takes many messages.
const readBuffer = 64 << 10

// Open connects and starts to stream from the slot's confirmed LSN; on return the slot is held. base is how the catalogue
// is reached: the same, apart from what makes it a replication connection. Errors are those of the connection
// (*pgconn.ConnectError, *pgconn.PgError).
func Open(ctx context.Context, base *pgconn.Config, cfg Config, decoder *outbox.Decoder) (*Session, error) {
	s := &Session{decoder: decoder, timeout: cfg.Timeout}
	if s.timeout == 0 {
		s.timeout = DefaultTimeout
	}
	if s.silence = cfg.Patience; s.silence == 0 {
		s.silence = s.timeout
	}
	pg := base.Copy()
	pg.RuntimeParams["replication"] = "database"
	pg.RuntimeParams["client_encoding"] = "UTF8"
	pg.RuntimeParams["wal_sender_timeout"] = strconv.FormatInt(s.timeout.Milliseconds(), 10)
	pg.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		s.buffer = bufio.NewReaderSize(r, readBuffer)
		return pgproto3.NewFrontend(s.buffer, w)
	}
	conn, err := pgconn.ConnectConfig(ctx, pg)
	if err != nil {
		return nil, fmt.Errorf("connect for replication: %w", err)
	}
	s.conn, s.net, s.front = conn, conn.Conn(), conn.Frontend()
	if err := s.start(ctx, cfg); err != nil {
		_ = conn.Close(context.WithoutCancel(ctx)) // the error that counts is the first one
		return nil, err
	}
	now := time.Now()
	s.lastRead, s.status.sentAt = now, now
	return s, nil
}

func (s *Session) start(ctx context.Context, cfg Config) error {
	system, err := pglogrepl.IdentifySystem(ctx, s.conn)
	if err != nil {
		return fmt.Errorf("identify system: %w", err)
	}
	s.system = system.SystemID
	// 0/0 means the slot's own confirmed LSN. A position of ours could only skip something.
	err = pglogrepl.StartReplication(ctx, s.conn, cfg.Slot, 0, pglogrepl.StartReplicationOptions{
		Mode:       pglogrepl.LogicalReplication,
		PluginArgs: []string{"proto_version '1'", "publication_names " + quoteNames(cfg.Publication)},
	})
	if err != nil {
		return fmt.Errorf("start replication on slot %q: %w", cfg.Slot, err)
	}
	return nil
}

// quoteNames quotes a publication name twice: pgoutput parses the option's value as a list of identifiers.
func quoteNames(name string) string {
	identifier := `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
	return "'" + strings.ReplaceAll(identifier, "'", "''") + "'"
}

// System returns the system identifier of the cluster.
func (s *Session) System() string { return s.system }

// PID returns the process id of the session's walsender.
func (s *Session) PID() uint32 { return s.conn.PID() }

// Buffered reports whether Next can go on without asking the network.
func (s *Session) Buffered() bool { return s.front.ReadBufferLen() > 0 || s.buffer.Buffered() > 0 }

// Wake makes the present or next read of Next return at once. It is safe from any goroutine, until Close has returned.
func (s *Session) Wake() {
	// Next sets its deadline and then looks at the flag; this is the other way round, so one of the two ends the read.
	s.woken.Store(true)
	_ = s.net.SetReadDeadline(time.Unix(1, 0)) // a closed connection wakes by itself
}

// Kind is what a Message says.
type Kind uint8

// The kinds of messages. None means that the read was woken or its deadline passed.
const (
	None Kind = iota
	Begin
	Event
	Commit
	Keepalive
	Other // something that no relay needs: another table's row, a type, a logical message
)

// Message is one message of the stream.
type Message struct {
	Kind   Kind
	EndLSN pglogrepl.LSN // Commit: the end of the commit record
	WALEnd pglogrepl.LSN // Keepalive: the server has nothing for us up to there, apart from what it has sent
}

// Next reads one message, until the deadline. An event is decoded into ev. A *outbox.TableError means that the present row
// of the outbox table cannot be decoded; the session itself is sound then. Every other error ends the session.
func (s *Session) Next(deadline time.Time, ev *outbox.Event) (Message, error) {
	s.setDeadline(deadline)
	if s.woken.Load() {
		s.woken.Store(false)
		s.deadline = time.Time{}
		return Message{}, s.checkSilence()
	}
	msg, err := s.front.Receive()
	if err != nil {
		if timedOut(err) {
			s.deadline = time.Time{}
			return Message{}, s.checkSilence()
		}
		s.broken = true
		return Message{}, fmt.Errorf("receive: %w", err)
	}
	m, err := s.take(msg, ev)
	if err != nil {
		var unfit *outbox.TableError
		s.broken = !errors.As(err, &unfit)
	}
	return m, err
}

// setDeadline moves the read deadline only when it drifts: most reads find the one they need.
func (s *Session) setDeadline(want time.Time) {
	const drift = time.Millisecond
	if d := want.Sub(s.deadline); d > drift || d < -drift {
		s.deadline = want
		_ = s.net.SetReadDeadline(want) // a closed connection fails the read
	}
}

// Resumed tells the session that reading begins again after a pause, in which the silence was ours.
func (s *Session) Resumed() { s.lastRead = time.Now() }

func (s *Session) checkSilence() error {
	if n := s.front.ReadBufferLen() + s.buffer.Buffered(); n != s.partial {
		if s.partial = n; n > 0 { // a long message on a slow network is no silence
			s.lastRead = time.Now()
		}
	}
	if silent := time.Since(s.lastRead); silent > s.silence {
		s.broken = true
		return fmt.Errorf("%w (%s)", ErrSilent, silent.Round(time.Millisecond))
	}
	return nil
}

func (s *Session) take(msg pgproto3.BackendMessage, ev *outbox.Event) (Message, error) {
	switch msg := msg.(type) {
	case *pgproto3.CopyData:
		return s.copyData(msg.Data, ev)
	case *pgproto3.ErrorResponse:
		return Message{}, streamError(pgconn.ErrorResponseToPgError(msg))
	case *pgproto3.CopyDone, *pgproto3.CommandComplete:
		return Message{}, fmt.Errorf("the server ended the stream: %w", ErrServerStopping)
	}
	return Message{Kind: Other}, nil // notices and parameter changes
}

// Close ends the stream in an orderly way, so that the server has taken the last confirmation before the connection ends,
// and frees the connection. ctx bounds it.
func (s *Session) Close(ctx context.Context) error {
	if s.broken {
		return s.conn.Close(ctx)
	}
	// Before the context can set one: the last deadlines of reading and writing are none of this.
	if err := s.net.SetDeadline(time.Time{}); err != nil {
		return errors.Join(fmt.Errorf("end the stream: %w", err), s.conn.Close(ctx))
	}
	stop := context.AfterFunc(ctx, func() { _ = s.net.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	err := s.finish(ctx)
	return errors.Join(err, s.conn.Close(ctx))
}

func (s *Session) finish(ctx context.Context) error {
	s.front.Send(&pgproto3.CopyDone{})
	if err := s.front.Flush(); err != nil {
		return fmt.Errorf("end the stream: %w", err)
	}
	for { // what the server sent before it saw the end is still on its way
		msg, err := s.front.Receive()
		if timedOut(err) && s.net.SetReadDeadline(time.Time{}) == nil && ctx.Err() == nil {
			continue // woken. The context is asked last, for it ends before it sets its deadline
		}
		if err != nil {
			return fmt.Errorf("end the stream: %w", err)
		}
		switch msg := msg.(type) {
		case *pgproto3.ReadyForQuery:
			return nil
		case *pgproto3.ErrorResponse:
			return fmt.Errorf("end the stream: %w", streamError(pgconn.ErrorResponseToPgError(msg)))
		}
	}
}

func timedOut(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
