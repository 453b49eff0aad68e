package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// pair is a primary with a hot standby that keeps a copy of the failover slots.
type pair struct {
	primary, standby *sandbox.Postgres
}

// standbySlot is the physical slot that the standby reads from.
const standbySlot = "standby_1"

// startPair makes a pair of the newest version that has failover slots (17 and later). The standby is a copy of the stopped
// primary: no other tool is needed.
func startPair(t *testing.T) pair {
	t.Helper()
	majors := sandbox.Majors(t)
	major := majors[len(majors)-1]
	if major < 17 {
		t.Skipf("PostgreSQL %d is the newest here: it has no failover slots", major)
	}
	p := pair{primary: postgresOf(t, major, nil), standby: postgresOf(t, major, nil)}
	conn := connectTo(t, p.primary.URL("postgres"))
	if _, err := conn.Exec(t.Context(), `SELECT pg_create_physical_replication_slot($1)`, standbySlot); err != nil {
		t.Fatal(err)
	}
	for _, pg := range []*sandbox.Postgres{p.standby, p.primary} {
		stopPostgres(t, pg, sandbox.Fast, 5*time.Second)
	}
	from, to := dataFolder(p.primary), dataFolder(p.standby)
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	copyFolder(t, from, to)
	appendTo(t, filepath.Join(to, "standby.signal"), "")
	appendTo(t, filepath.Join(to, "postgresql.conf"), fmt.Sprintf(`
primary_conninfo = 'host=%s port=%d user=%s password=%s dbname=postgres'
primary_slot_name = '%s'
hot_standby_feedback = on
wal_receiver_status_interval = 1s
unix_socket_directories = '%s'
`, p.primary.Host(), p.primary.Port(), sandbox.Superuser, p.primary.Password(), standbySlot, p.standby.SocketDir()))
	for _, pg := range []*sandbox.Postgres{p.primary, p.standby} {
		if err := pg.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func dataFolder(pg *sandbox.Postgres) string {
	return filepath.Join(filepath.Dir(pg.LogPath()), "data")
}

// copyFolder copies a folder with its modes and owners.
func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		if d.IsDir() {
			err = os.Mkdir(target, info.Mode().Perm())
		} else {
			var data []byte
			if data, err = os.ReadFile(path); err == nil {
				err = os.WriteFile(target, data, info.Mode().Perm())
			}
		}
		if owner, ok := info.Sys().(*syscall.Stat_t); ok && err == nil {
			err = os.Chown(target, int(owner.Uid), int(owner.Gid))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// appendTo adds text to a file, which belongs to the owner of its folder then.
func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(text)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	info, statErr := os.Stat(filepath.Dir(path))
	if err == nil {
		err = statErr
	}
	if err == nil {
		owner := info.Sys().(*syscall.Stat_t)
		err = os.Chown(path, int(owner.Uid), int(owner.Gid))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// world is one on the primary, without a slot.
func (p pair) world(t *testing.T) *harness.World {
	t.Helper()
	w := harness.New(t, harness.Config{Postgres: p.primary, Stream: window100ms, NoSlot: true})
	t.Cleanup(func() { // for what tidies up after the world
		if err := p.primary.Start(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return w
}

// connect opens a connection to a database of the primary on the standby, as soon as that has it. It has the primary's
// passwords.
func (p pair) connect(t *testing.T, database string) *pgx.Conn {
	t.Helper()
	url := strings.Replace(database, p.primary.Addr(), p.standby.Addr(), 1)
	sandbox.WaitFor(t, harness.Limit, "the standby has the database", func() (bool, error) {
		conn, err := pgx.Connect(t.Context(), url)
		if err == nil {
			err = conn.Close(t.Context())
		}
		return err == nil, err
	})
	return connectTo(t, url)
}

// waitSynced waits until the standby has a copy of the slot that survives a promotion.
func (p pair) waitSynced(t *testing.T, w *harness.World, standby *pgx.Conn) {
	t.Helper()
	sandbox.WaitFor(t, harness.Limit, "the standby has the slot", func() (bool, error) {
		w.Exec(`SELECT pg_log_standby_snapshot()`) // its position moves only with such a record
		// The standby's own worker does this too, after naps of up to 30 s.
		if _, err := standby.Exec(t.Context(), `SELECT pg_sync_replication_slots()`); err != nil {
			return false, err
		}
		var n int
		err := standby.QueryRow(t.Context(), `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1 AND synced AND NOT temporary`,
			w.Slot).Scan(&n)
		return n == 1, err
	})
}

// promote makes the standby the primary, and leads the relay's connections there.
func (p pair) promote(t *testing.T, w *harness.World, standby *pgx.Conn) {
	t.Helper()
	var done bool
	if err := standby.QueryRow(t.Context(), `SELECT pg_promote()`).Scan(&done); err != nil || !done {
		t.Fatalf("promote: %t, %v", done, err)
	}
	w.Conn = standby
}

// The primary dies and its standby is promoted: with a failover slot the relay goes on there, and nothing is lost, doubled
// or reordered.
func TestFailoverSlot(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	w := p.world(t)
	w.MustDo("slot", "create", "--failover")
	if err := p.primary.Set(t.Context(), "synchronized_standby_slots", standbySlot); err != nil {
		t.Fatal(err)
	}
	standby := p.connect(t, w.Database)
	relay := w.Start("--session-timeout=2s")
	insert(w, 1, 50)
	w.WaitCount(50)
	p.waitSynced(t, w, standby)
	insert(w, 51, 100) // the copy is behind now
	w.WaitCount(100)

	stopPostgres(t, p.primary, sandbox.Immediate, 5*time.Second)
	w.PGProxy.SetTarget(p.standby.Addr())
	relay.WaitLog("is a standby in recovery")
	began := time.Now()
	p.promote(t, w, standby)
	insert(w, 101, 150)
	w.ExpectIDs(eventIDs(1, 150))
	t.Logf("all events were stored %s after the promotion began", time.Since(began).Round(time.Millisecond))
	w.WaitConfirmed()
	stopped(t, relay)
}

// Events that the old primary had sent to the relay and not to its standby are gone from the database after a failover,
// and in the stream. New events at the same LSNs are other events: they are not taken for those.
func TestFailoverThatLostTransactions(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	w := p.world(t)
	w.MustDo("slot", "create", "--failover") // synchronized_standby_slots is not set: what allows it
	standby := p.connect(t, w.Database)
	relay := w.Start("--session-timeout=2s")
	insert(w, 1, 50)
	w.WaitCount(50)
	p.waitSynced(t, w, standby)
	_ = standby.Close(t.Context())
	stopPostgres(t, p.standby, sandbox.Fast, 10*time.Second)
	insert(w, 51, 100)
	w.WaitCount(100)
	w.WaitConfirmed()

	stopPostgres(t, p.primary, sandbox.Immediate, 5*time.Second)
	if err := p.standby.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	standby = p.connect(t, w.Database)
	p.promote(t, w, standby)
	w.PGProxy.SetTarget(p.standby.Addr())
	insert(w, 201, 300)
	w.ExpectIDs(slices.Concat(eventIDs(1, 100), eventIDs(201, 300)))
	w.WaitConfirmed()
	stopped(t, relay)
	var rows int
	if err := w.Conn.QueryRow(t.Context(), `SELECT count(*) FROM outbox WHERE id BETWEEN $1 AND $2`, eventID(51), eventID(100)).Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d of the lost events are in the database, %v: the test proves nothing", rows, err)
	}
}
