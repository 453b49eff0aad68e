package slot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

func TestC36_ClassifyByCode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code      string
		permanent bool
		advice    string
	}{
		{"28000", true, "pg_hba.conf"},
		{"28P01", true, "password"},
		{"28ABC", true, "login"},
		{"3D000", true, "database"},
		{"42501", true, "REPLICATION"},
		{"08P01", true, "directly"},
		{"55000", true, "wal_level"},
		{"53400", true, "max_replication_slots"},
		{"53300", false, "max_wal_senders"},
		{"55006", false, "another relay"},
		{"57P01", false, "stopping"},
		{"57P02", false, "stopping"},
		{"57P03", false, "starting"},
		{"08006", false, "network"},
		{"42704", false, "doctor"},
		{"25006", false, "primary"},
		{"XX000", false, ""},
	} {
		err := fmt.Errorf("open: %w", &pgconn.PgError{Code: c.code, Message: "secret"})
		permanent, advice := Classify(err)
		if permanent != c.permanent || !strings.Contains(advice, c.advice) || strings.Contains(advice, "secret") || strings.Contains(advice, "\n") {
			t.Errorf("%s: %v, %q", c.code, permanent, advice)
		}
	}
}

func TestClassifyOthers(t *testing.T) {
	t.Parallel()
	_, parse := pgx.ParseConfig("postgres://u:hunter2@h:notaport/db")
	for name, c := range map[string]struct {
		err       error
		permanent bool
		advice    bool
	}{
		"nil":       {nil, false, false},
		"cancelled": {context.Canceled, false, false},
		"deadline":  {context.DeadlineExceeded, false, true},
		"refused":   {&net.OpError{Op: "dial", Err: errors.New("x")}, false, true},
		"url":       {parse, true, true},
		"unknown":   {errors.New("x"), false, false},
		"wait":      {&WaitError{Cause: context.DeadlineExceeded}, false, true},
		"drop":      {&DropError{Reason: ErrSlotActive, Fix: "stop it"}, true, true},
	} {
		permanent, advice := Classify(c.err)
		if permanent != c.permanent || (advice != "") != c.advice || strings.Contains(advice, "hunter2") {
			t.Errorf("%s: %v, %q", name, permanent, advice)
		}
	}
}

func TestC36_RealRefusals(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	refuse := func(change func(*pgx.ConnConfig)) (bool, string) {
		t.Helper()
		cc := b.cc.Copy()
		change(cc)
		_, err := Create(b.ctx(), cc, b.cfg, CreateOptions{})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Fatalf("error = %v", err)
		}
		return Classify(err)
	}
	if permanent, advice := refuse(func(c *pgx.ConnConfig) { c.Password = "hunter2" }); !permanent || !strings.Contains(advice, "password") {
		t.Errorf("wrong password: %v, %q", permanent, advice)
	}
	if permanent, advice := refuse(func(c *pgx.ConnConfig) { c.Database = "nowhere" }); !permanent || !strings.Contains(advice, "database") {
		t.Errorf("no database: %v, %q", permanent, advice)
	}
	if permanent, advice := refuse(func(c *pgx.ConnConfig) { c.Port, c.Fallbacks = 1, nil }); permanent || !strings.Contains(advice, "reached") {
		t.Errorf("no server: %v, %q", permanent, advice)
	}
	b.wantNothingLeft()
}

// A pooler that does not know the parameter refuses the replication connection after the normal one was let through.
func TestC42_Pooler(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed by the test
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			backend := pgproto3.NewBackend(conn, conn)
			if _, err := backend.ReceiveStartupMessage(); err == nil {
				backend.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: replication"})
				_ = backend.Flush()
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = listener.Close(); <-done })
	cc := b.cc.Copy()
	cc.Fallbacks = nil
	cc.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	pooled := cc.Copy()
	port := listener.Addr().(*net.TCPAddr).Port
	pooled.Host, pooled.Port = "127.0.0.1", uint16(port)
	_, err = (&creation{cc: pooled, cfg: b.cfg, conn: b.conn, started: time.Now()}).makeSlot(b.ctx())
	if permanent, advice := Classify(err); !permanent || !strings.Contains(advice, "directly") {
		t.Errorf("%v: %v, %q", err, permanent, advice)
	}
	b.wantNothingLeft()
}

func TestLeastPrivileges(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	role := sandbox.Name(t)
	b.exec(`CREATE ROLE `+role+` LOGIN PASSWORD 'pw'`, `INSERT INTO outbox (id, topic, payload) VALUES (gen_random_uuid(), 'x', '{}')`)
	t.Cleanup(func() { b.exec(`DROP OWNED BY `+role, `DROP ROLE `+role) })
	cc := b.cc.Copy()
	cc.User, cc.Password = role, "pw"
	conn := connect(t, cc)

	s, err := Inspect(b.ctx(), conn, b.cfg)
	if err != nil || s.SystemID == "" || s.CanReplicate || s.Role != role {
		t.Fatalf("inspect without any right: %+v, %v", s, err)
	}
	_, err = Create(b.ctx(), cc, b.cfg, CreateOptions{})
	if permanent, advice := Classify(err); sqlState(err) != "42501" || !permanent || !strings.Contains(advice, "CREATE on the database") {
		t.Errorf("create a publication without right: %v, %q", err, advice)
	}
	b.exec(`CREATE PUBLICATION ` + b.cfg.Publication + ` FOR TABLE outbox WITH (publish = 'insert')`)
	_, err = Create(b.ctx(), cc, b.cfg, CreateOptions{})
	if permanent, advice := Classify(err); sqlState(err) != "42501" || !permanent || !strings.Contains(advice, "REPLICATION") {
		t.Errorf("create a slot without right: %v, %q", err, advice)
	}
	b.exec(`ALTER ROLE ` + role + ` REPLICATION`)
	created, err := Create(b.ctx(), cc, b.cfg, CreateOptions{})
	if err != nil || created.EarlierRows != nil || sqlState(created.EarlierUnknown) != "42501" {
		t.Errorf("create without SELECT: %+v, %v", created, err)
	}
	if err := Drop(b.ctx(), conn, b.cfg, DropOptions{}); err != nil {
		t.Error(err)
	}
	b.exec(`GRANT SELECT ON outbox TO ` + role)
	if created, err = Create(b.ctx(), cc, b.cfg, CreateOptions{}); err != nil || created.EarlierRows == nil || *created.EarlierRows != 1 {
		t.Errorf("create with SELECT: %+v, %v", created, err)
	}
	if err := Drop(b.ctx(), conn, b.cfg, DropOptions{}); err != nil {
		t.Error(err)
	}
	// With the publication: the owner of the table, CREATE on the database.
	b.exec(`DROP PUBLICATION `+b.cfg.Publication, `ALTER TABLE outbox OWNER TO `+role, `GRANT CREATE ON DATABASE "`+b.cc.Database+`" TO `+role)
	if created, err = Create(b.ctx(), cc, b.cfg, CreateOptions{}); err != nil || !created.PublicationCreated {
		t.Errorf("create as the owner: %+v, %v", created, err)
	}
	if _, err := conn.Exec(b.ctx(), created.ResendSQL); err != nil {
		t.Errorf("resend as the owner: %v", err)
	}
	if err := Drop(b.ctx(), conn, b.cfg, DropOptions{Publication: true}); err != nil {
		t.Error(err)
	}
	b.wantNothingLeft()
}
