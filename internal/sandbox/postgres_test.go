package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

const limit = 20 * time.Second

func startPostgres(t *testing.T, cfg sandbox.PostgresConfig) *sandbox.Postgres {
	t.Helper()
	cfg.Logger = sandbox.Logger(t)
	pg, err := sandbox.StartPostgres(t.Context(), cfg)
	if errors.Is(err, sandbox.ErrNoPostgres) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pg.Close(); err != nil {
			t.Error(err)
		}
	})
	return pg
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func show(t *testing.T, conn *pgx.Conn, sql string, args ...any) (text string) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&text); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return text
}

func TestPostgresKeepsDataAcrossRestarts(t *testing.T) {
	t.Parallel()
	start := time.Now()
	pg := startPostgres(t, sandbox.PostgresConfig{Settings: map[string]string{"application_name": "it's"}})
	t.Logf("PostgreSQL %s started in %v", pg.Version(), time.Since(start))

	conn := connect(t, pg.URL("postgres"))
	exec(t, conn, "CREATE TABLE kept (n int)")
	for _, want := range [][2]string{{"wal_level", "logical"}, {"fsync", "off"}, {"server_encoding", "UTF8"}} {
		if got := show(t, conn, "SELECT current_setting($1)", want[0]); got != want[1] {
			t.Errorf("%s is %s, not %s", want[0], got, want[1])
		}
	}

	for _, mode := range []sandbox.StopMode{sandbox.Fast, sandbox.Immediate, sandbox.Smart} {
		exec(t, conn, "INSERT INTO kept VALUES (1)")
		if mode == sandbox.Smart { // waits for us
			_ = conn.Close(t.Context())
		}
		pid := pg.PID()
		if err := pg.Stop(t.Context(), mode); err != nil {
			t.Fatal(err)
		}
		if err := pg.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if pg.PID() == pid {
			t.Error("the same process after a restart")
		}
		conn = connect(t, pg.URL("postgres"))
	}
	if got := show(t, conn, "SELECT count(*)::text FROM kept"); got != "3" {
		t.Errorf("%s rows after three restarts, not 3", got)
	}
	if text, err := pg.Log(); err != nil || !strings.Contains(text, "connection received") {
		t.Errorf("no connections in the log: %v\n%s", err, text)
	}
}

func TestPostgresComesBackAfterKill(t *testing.T) {
	t.Parallel()
	pg := startPostgres(t, sandbox.PostgresConfig{})
	conn := connect(t, pg.URL("postgres"))
	exec(t, conn, "CREATE TABLE kept (n int)")
	if err := syscall.Kill(pg.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := pg.Stop(t.Context(), sandbox.Fast); err != nil {
		t.Fatal(err)
	}
	if err := pg.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	exec(t, connect(t, pg.URL("postgres")), "INSERT INTO kept VALUES (1)")
}

func TestPostgresWantsThePassword(t *testing.T) {
	t.Parallel()
	pg := sandbox.PG(t)
	wrong := strings.Replace(pg.URL("postgres"), pg.Password(), "wrong", 1)
	_, err := pgx.Connect(t.Context(), wrong)
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != "28P01" {
		t.Errorf("a wrong password gives %v, not 28P01", err)
	}
	conn := connect(t, fmt.Sprintf("host=%s port=%d", pg.SocketDir(), pg.Port())+" user=postgres dbname=postgres password="+pg.Password())
	if got := show(t, conn, "SELECT coalesce(inet_client_addr()::text, 'socket')"); got != "socket" {
		t.Errorf("connected from %s, not by the socket", got)
	}
}

func TestPostgresCloseLeavesNothing(t *testing.T) {
	t.Parallel()
	pg := startPostgres(t, sandbox.PostgresConfig{})
	conn := connect(t, pg.URL("postgres"))
	_ = conn.Close(t.Context())
	for range 2 {
		if err := pg.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Dir(pg.SocketDir())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
	if err := syscall.Kill(pg.PID(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the server is still there: %v", err)
	}
	if err := pg.Start(t.Context()); err == nil {
		t.Error("a closed server started")
	}
}

func TestPostgresSet(t *testing.T) {
	t.Parallel()
	pg := startPostgres(t, sandbox.PostgresConfig{Settings: map[string]string{"wal_sender_timeout": "7s"}})
	for _, step := range [][2]string{{"3s", "3s"}, {"", "7s"}} {
		if err := pg.Set(t.Context(), "wal_sender_timeout", step[0]); err != nil {
			t.Fatal(err)
		}
		if got := show(t, connect(t, pg.URL("postgres")), "SHOW wal_sender_timeout"); got != step[1] {
			t.Errorf("after setting %q it is %s", step[0], got)
		}
	}
	if err := pg.Set(t.Context(), "no_such_setting", "1"); err == nil {
		t.Error("an unknown setting was accepted")
	}
}

func TestDatabaseGoesWithItsSlots(t *testing.T) {
	t.Parallel()
	pg := sandbox.PG(t)
	name, slot := sandbox.Name(t), sandbox.Name(t)
	if err := pg.CreateDatabase(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	exec(t, connect(t, pg.URL(name)), "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", slot)
	replicate(t, pg.URL(name), slot)
	for range 2 {
		if err := pg.DropDatabase(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	conn := connect(t, pg.URL("postgres"))
	if got := show(t, conn, "SELECT count(*)::text FROM pg_replication_slots WHERE slot_name = $1", slot); got != "0" {
		t.Error("the slot outlived its database")
	}
}

func TestMajors(t *testing.T) {
	t.Parallel()
	majors := sandbox.Majors(t)
	if os.Getenv("RELAY_TEST_MAJORS") == "" {
		majors = majors[:1] // one shows that the choice works
	}
	for _, major := range majors {
		pg := startPostgres(t, sandbox.PostgresConfig{Major: major})
		if pg.Major() != major {
			t.Errorf("asked for %d, got %d", major, pg.Major())
		}
		got := show(t, connect(t, pg.URL("postgres")), "SHOW server_version")
		if !strings.HasPrefix(got, pg.Version()) {
			t.Errorf("the server is %s, not %s", got, pg.Version())
		}
	}
}

// TestDownload needs the network once: the result stays in the user's cache.
func TestDownload(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("downloads 20 MB")
	}
	pg := startPostgres(t, sandbox.PostgresConfig{Major: 17})
	if pg.Major() != 17 {
		t.Errorf("got version %s", pg.Version())
	}
	conn := connect(t, pg.URL("postgres"))
	exec(t, conn, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", sandbox.Name(t))
}
