package replication

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// TestStopDetector: a server that shuts down asks again after each answer, while what it waits for does not come.
func TestStopDetector(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, test := range []struct {
		name      string
		every     time.Duration
		requests  int
		walEnd    func(i int) pglogrepl.LSN
		confirmed func(i int) pglogrepl.LSN
		want      int // the request at which it is seen to stop, 0 for never
	}{
		{"behind, at once", 0, 100, fixed(200), fixed(100), 10},
		{"behind, in five seconds", 5 * time.Second / 9, 100, fixed(200), fixed(100), 10},
		{"behind, nothing confirmed yet", ms, 100, fixed(200), fixed(0), 10},
		{"behind a WAL that grows", ms, 100, growing(200), fixed(100), 10},
		{"nine requests", ms, 9, fixed(200), fixed(100), 0},
		{"slower", 5*time.Second/9 + ms, 1000, fixed(200), fixed(100), 0},
		{"idle", 5 * time.Second, 1000, fixed(200), fixed(100), 0},
		{"it keeps up", ms, 1000, fixed(200), fixed(200), 0},
		{"it is ahead", ms, 1000, fixed(200), fixed(300), 0},
		{"it keeps up with a WAL that grows", ms, 1000, growing(200), growing(200), 0},
		{"it moves", ms, 1000, fixed(1 << 40), growing(100), 0},
		{"it moves every ninth request", ms, 1000, fixed(1 << 40), func(i int) pglogrepl.LSN { return pglogrepl.LSN(100 + i/9) }, 0},
		{"it moves, then no more", ms, 1000, fixed(1 << 40), func(i int) pglogrepl.LSN { return pglogrepl.LSN(min(i, 50)) }, 59},
		{"it keeps up, then no more", ms, 1000, func(i int) pglogrepl.LSN { return pglogrepl.LSN(100 + max(0, i-20)) }, fixed(100), 30},
		{"it keeps up now and then", ms, 1000, func(i int) pglogrepl.LSN { return pglogrepl.LSN(100 + i%10) }, fixed(100), 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var d stopDetector
			now := time.Unix(1_700_000_000, 0)
			got := 0
			for i := 1; i <= test.requests && got == 0; i++ {
				if d.requested(test.walEnd(i), test.confirmed(i), now) {
					got = i
				}
				now = now.Add(test.every)
			}
			if got != test.want {
				t.Errorf("stopping at request %d, want %d", got, test.want)
			}
		})
	}
}

func fixed(at pglogrepl.LSN) func(int) pglogrepl.LSN { return func(int) pglogrepl.LSN { return at } }

func growing(from pglogrepl.LSN) func(int) pglogrepl.LSN {
	return func(i int) pglogrepl.LSN { return from + pglogrepl.LSN(i) }
}

// TestNext_ServerStopping: a walsender that asks after every answer ends the session; one whose client keeps up does not.
func TestNext_ServerStopping(t *testing.T) {
	t.Parallel()
	for _, keepsUp := range []bool{false, true} {
		t.Run(fmt.Sprint("keeps up ", keepsUp), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, srv := open(t, testTimeout)
				s.Confirm(0x1000)
				answers := 0
				for answers < 100 {
					srv.send(t, keepaliveAt(0x2000, true))
					_, err := s.Next(time.Now().Add(time.Second), nil)
					if err != nil {
						if !errors.Is(err, ErrServerStopping) || !s.broken {
							t.Errorf("error %v", err)
						}
						break
					}
					if keepsUp {
						s.Confirm(0x2000)
					}
					if _, err := s.Report(time.Now(), false); err != nil {
						t.Fatal(err)
					}
					answers += len(srv.updates(t))
				}
				if want := map[bool]int{false: stopRequests - 1, true: 100}[keepsUp]; answers != want {
					t.Errorf("ended after %d answers, want %d", answers, want)
				}
			})
		})
	}
}

// TestNext_StreamEnds: what ends the stream, and what it means.
func TestNext_StreamEnds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		message pgproto3.BackendMessage
		want    error  // nil: none of the sentinels
		code    string // of the error that is kept
	}{
		"no publication":     {serverError("42704"), ErrPublicationUnknown, "42704"},
		"admin shutdown":     {serverError("57P01"), ErrServerStopping, "57P01"},
		"crash shutdown":     {serverError("57P02"), ErrServerStopping, "57P02"},
		"cannot connect now": {serverError("57P03"), ErrServerStopping, "57P03"},
		"copy done":          {&pgproto3.CopyDone{}, ErrServerStopping, ""},
		"command complete":   {&pgproto3.CommandComplete{CommandTag: []byte("COPY 0")}, ErrServerStopping, ""},
		"a removed segment":  {serverError("58P01"), nil, "58P01"},
		"an internal error":  {serverError("XX000"), nil, "XX000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, srv := open(t, 0)
			srv.send(t, keepaliveAt(1, false), test.message)
			if m, err := s.Next(time.Now().Add(limit), nil); err != nil || m.Kind != Keepalive {
				t.Fatalf("%+v, %v", m, err)
			}
			m, err := s.Next(time.Now().Add(limit), nil)
			if err == nil || m.Kind != None || !s.broken {
				t.Fatalf("%+v, %v", m, err)
			}
			for _, sentinel := range []error{ErrPublicationUnknown, ErrServerStopping, ErrSilent} {
				if errors.Is(err, sentinel) != errors.Is(test.want, sentinel) {
					t.Errorf("error %v, want %v", err, test.want)
				}
			}
			if test.code != "" {
				wantCode(t, err, test.code)
			}
		})
	}
}

// TestNext_Notices: what a server may send at any time is no message of the stream.
func TestNext_Notices(t *testing.T) {
	t.Parallel()
	s, srv := open(t, 0)
	srv.send(t, &pgproto3.NoticeResponse{Severity: "NOTICE", Code: "00000", Message: "m"},
		&pgproto3.ParameterStatus{Name: "TimeZone", Value: "UTC"}, keepaliveAt(1, false))
	for _, want := range []Kind{Other, Other, Keepalive} {
		if m, err := s.Next(time.Now().Add(limit), nil); err != nil || m.Kind != want {
			t.Fatalf("%+v, %v", m, err)
		}
	}
}

// TestNext_Disconnected: a connection that ends is an error of Next, and of a report.
func TestNext_Disconnected(t *testing.T) {
	t.Parallel()
	s, srv := open(t, 0)
	if err := srv.conn.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Next(time.Now().Add(limit), nil); err == nil || !s.broken || errors.Is(err, ErrSilent) {
		t.Errorf("Next gives %v", err)
	}
	s.broken = false
	if _, err := s.Report(time.Now().Add(time.Minute), false); err == nil || !s.broken {
		t.Errorf("Report gives %v", err)
	}
}

func TestServerStopping(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]bool{"57P01": true, "57P02": true, "57P03": true, "57P05": false, "55006": false, "42704": false} {
		if got := ServerStopping(fmt.Errorf("look: %w", &pgconn.PgError{Code: code})); got != want {
			t.Errorf("%s: %t", code, got)
		}
	}
	if ServerStopping(nil) || ServerStopping(errors.New("57P01")) {
		t.Error("not every error is one of the server")
	}
}
