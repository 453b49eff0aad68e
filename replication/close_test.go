package replication

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// closing closes the session in the background, and returns how that went.
func closing(ctx context.Context, s *Session) <-chan error {
	done := make(chan error, 1)
	go func() { done <- s.Close(ctx) }() // its owner is the test, which takes the result
	return done
}

// theEnd is how a walsender answers a CopyDone, with what was on its way before.
func theEnd() []pgproto3.BackendMessage {
	return []pgproto3.BackendMessage{
		walDataAt(0x1000, beginMessage(0x1800, time.Now())), keepaliveAt(0x1000, true),
		&pgproto3.NoticeResponse{Severity: "NOTICE", Code: "00000", Message: "m"},
		&pgproto3.CopyDone{}, &pgproto3.CommandComplete{CommandTag: []byte("COPY 0")}, &pgproto3.ReadyForQuery{TxStatus: 'I'},
	}
}

// wantSent checks that the client has sent a message of the same type as want, and nothing after it.
func wantSent(t testing.TB, srv *server, want ...any) {
	t.Helper()
	synctest.Wait()
	for _, w := range want {
		got := srv.next(t)
		switch w.(type) {
		case *pgproto3.CopyDone:
			if _, ok := got.(*pgproto3.CopyDone); !ok {
				t.Fatalf("the client sent %T, want the end of the stream", got)
			}
		case *pgproto3.Terminate:
			if _, ok := got.(*pgproto3.Terminate); !ok {
				t.Fatalf("the client sent %T, want the end of the connection", got)
			}
		}
	}
	if len(srv.got) > 0 {
		t.Fatalf("the client sent %T as well", <-srv.got)
	}
}

// TestClose: the stream ends first, then the connection, and in between everything that the server sends is read.
func TestClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, srv := open(t, testTimeout)
		done := closing(t.Context(), s)
		wantSent(t, srv, &pgproto3.CopyDone{})
		all := encode(t, theEnd()...)
		srv.writes <- all[:len(all)-1]
		wantSent(t, srv)
		srv.writes <- all[len(all)-1:]
		wantSent(t, srv, &pgproto3.Terminate{})
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.Wake() // no harm
	})
}

// TestClose_Late: the deadlines of earlier reads and writes are over.
func TestClose_Late(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, srv := open(t, testTimeout)
		if err := s.Flush(time.Now()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Next(time.Now().Add(step), nil); err != nil {
			t.Fatal(err)
		}
		srv.updates(t)
		<-time.After(2 * testTimeout)
		done := closing(t.Context(), s)
		<-time.After(2 * testTimeout)
		wantSent(t, srv, &pgproto3.CopyDone{})
		srv.send(t, theEnd()...)
		if err := <-done; err != nil {
			t.Error(err)
		}
		wantSent(t, srv, &pgproto3.Terminate{})
	})
}

// TestClose_Wake: others may wake the session until it is closed; that does not cut its end short.
func TestClose_Wake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, srv := open(t, testTimeout)
		s.Wake()
		done := closing(t.Context(), s)
		for range 3 {
			synctest.Wait()
			s.Wake()
		}
		wantSent(t, srv, &pgproto3.CopyDone{})
		srv.send(t, theEnd()...)
		if err := <-done; err != nil {
			t.Error(err)
		}
		wantSent(t, srv, &pgproto3.Terminate{})
	})
}

// TestClose_NoAnswer: the context bounds it, whenever it ends and however often the session is woken.
func TestClose_NoAnswer(t *testing.T) {
	t.Parallel()
	for _, bound := range []time.Duration{0, time.Nanosecond, time.Second, time.Hour} {
		for _, wake := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s, srv := open(t, testTimeout)
				ctx, cancel := context.WithTimeout(t.Context(), bound)
				defer cancel()
				start := time.Now()
				done := closing(ctx, s)
				if wake {
					s.Wake()
				}
				if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("error %v", err)
				}
				if took := time.Since(start); took != bound {
					t.Errorf("it took %s, want %s", took, bound)
				}
				for range srv.got { // until the connection ends
				}
			})
		}
	}
}

// TestClose_Cancelled: a context that has ended before is not missed.
func TestClose_Cancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 300 {
		s, _ := open(t, 0)
		select {
		case err := <-closing(ctx, s):
			if err == nil {
				t.Fatal("the server has not answered")
			}
		case <-time.After(limit):
			t.Fatal("Close hangs")
		}
	}
}

// TestClose_ServerError: what the server says instead is the error, and the connection is closed all the same.
func TestClose_ServerError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, srv := open(t, testTimeout)
		done := closing(t.Context(), s)
		srv.send(t, serverError("57P01"))
		wantCode(t, <-done, "57P01")
		wantSent(t, srv, &pgproto3.CopyDone{}, &pgproto3.Terminate{})
	})
}

// TestClose_Broken: there is no stream to end after an error.
func TestClose_Broken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, srv := open(t, testTimeout)
		srv.send(t, serverError("XX000"))
		if _, err := s.Next(time.Now().Add(time.Second), nil); err == nil {
			t.Fatal("no error")
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		wantSent(t, srv, &pgproto3.Terminate{})
	})
	synctest.Test(t, func(t *testing.T) {
		s, srv := open(t, testTimeout)
		if err := srv.conn.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Next(time.Now().Add(time.Second), nil); err == nil {
			t.Fatal("no error")
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
