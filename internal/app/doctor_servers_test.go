package app

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// startPostgres starts a server of the test's own.
func startPostgres(t *testing.T, settings map[string]string) *sandbox.Postgres {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	pg, err := sandbox.StartPostgres(ctx, sandbox.PostgresConfig{Major: sandbox.PG(t).Major(), Settings: settings, Logger: sandbox.Logger(t)})
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

// TestDoctorSmallServer uses up what a server has few of, one thing after the other.
func TestDoctorSmallServer(t *testing.T) {
	t.Parallel()
	pg := startPostgres(t, map[string]string{
		"max_replication_slots": "2", "max_wal_senders": "1", "max_slot_wal_keep_size": "1GB", "max_wal_size": "32MB", "min_wal_size": "32MB",
	})
	role := newRole(t, pg, "REPLICATION")
	p := newPatient(t, sandbox.DatabaseOn(t, pg), role).settle()
	known := []string{"stream_replicas"}
	is := func(want string) { t.Helper(); p.diagnose(ailment{want: want}, known) }
	is("")

	config, err := pgconn.ParseConfig(p.database)
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["replication"] = "database"
	holder, err := pgconn.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	is("!wal_senders_exhausted")
	if err := holder.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	sandbox.WaitFor(t, 30*time.Second, "the walsender to end", func() (free bool, err error) {
		err = p.db.QueryRow(t.Context(), `SELECT count(*) = 0 FROM pg_stat_replication`).Scan(&free)
		return free, err
	})

	p.sql(`SELECT pg_create_physical_replication_slot('standby')`)
	is("slot_without_failover")
	p.relay("slot drop")
	p.sql(`SELECT pg_create_physical_replication_slot('more')`)
	is("!slot_missing !replication_slots_exhausted")
	p.sql(`SELECT pg_drop_replication_slot('more')`, `SELECT pg_create_physical_replication_slot('`+p.name+`')`)
	is("!slot_physical")
	p.sql(`SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots`)
	p.relay("slot create")

	if err := pg.Set(t.Context(), "max_slot_wal_keep_size", "1MB"); err != nil {
		t.Fatal(err)
	}
	p.sql(`CREATE TABLE noise (n int)`)
	sandbox.WaitFor(t, 30*time.Second, "the slot to be lost", func() (lost bool, err error) {
		p.sql(`INSERT INTO noise VALUES (1)`, `SELECT pg_switch_wal()`, `CHECKPOINT`)
		err = p.db.QueryRow(t.Context(), `SELECT wal_status = 'lost' FROM pg_replication_slots`).Scan(&lost)
		return lost, err
	})
	is("!slot_lost")
}

// TestDoctorOnlyReads has a user that may publish nothing and transactions that may write nothing: doctor learns all the same.
func TestDoctorOnlyReads(t *testing.T) {
	t.Parallel()
	role := newRole(t, sandbox.PG(t), "REPLICATION")
	p := newPatient(t, sandbox.Database(t), role).settle()
	p.signIn(startNATS(t, sandbox.NATSConfig{Configure: func(o *server.Options) { o.Accounts, o.Users = users(t) }}), "reader")
	p.flags = []string{"--subject", p.stream + ".{topic}"}
	p.publish(20, p.own())
	p.sql(`ALTER ROLE ` + role.Username() + ` SET default_transaction_read_only = on`)
	found, report, code := p.doctor(wellKnown...)
	if !slices.Equal(found, []string{"!nats_permission"}) || code != exitVerdict {
		t.Errorf("found %q, exit %d", found, code)
	}
	for _, check := range report.Checks {
		if check.Status == checkUnknown {
			t.Errorf("not looked at: %+v", check)
		}
	}
}

// TestDoctorOfALeader asks while a relay runs.
func TestDoctorOfALeader(t *testing.T) {
	t.Parallel()
	role := newRole(t, sandbox.PG(t), "REPLICATION")
	p := newPatient(t, sandbox.Database(t), role).settle()
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- Run(ctx, []string{"relay", "run"}, io.Discard, io.Discard, p.environ(p.as(role))) }()
	p.sql(`INSERT INTO outbox (id, topic, payload) VALUES (gen_random_uuid(), 'order.created', '{}')`)
	sandbox.WaitFor(t, 30*time.Second, "a message of the relay", func() (bool, error) {
		_, report, code := p.doctor()
		return code == exitOK && slices.ContainsFunc(report.Checks, func(c doctorCheck) bool {
			return c.Check == "writers" && strings.HasPrefix(c.Text, "the last messages (1)")
		}), nil
	})
	found, report, code := p.doctor(wellKnown...)
	if len(found) != 0 || code != exitOK {
		t.Errorf("found %q, exit %d", found, code)
	}
	if !slices.ContainsFunc(report.Checks, func(c doctorCheck) bool { return c.Check == "slot" && strings.Contains(c.Text, "held by relay, pid ") }) {
		t.Errorf("%+v", report)
	}
	cancel(errors.New("the test is over"))
	if code := <-ended; code != exitOK {
		t.Errorf("the relay ended with %d", code)
	}
}

// TestDoctorOtherServer asks one that is not set up for logical replication, and then makes it a standby of nobody.
func TestDoctorOtherServer(t *testing.T) {
	t.Parallel()
	pg := startPostgres(t, map[string]string{"wal_level": "replica", "max_slot_wal_keep_size": "1GB"})
	role := newRole(t, pg, "REPLICATION")
	p := newPatient(t, sandbox.DatabaseOn(t, pg), role)
	p.relay("stream create")
	p.sql(`CREATE PUBLICATION ` + p.name + ` FOR TABLE outbox WITH (publish = 'insert')`)
	known := []string{"stream_replicas"}
	p.diagnose(ailment{want: "!wal_level !slot_missing"}, known)

	var data string
	if err := p.db.QueryRow(t.Context(), `SHOW data_directory`).Scan(&data); err != nil {
		t.Fatal(err)
	}
	restart := func() {
		t.Helper()
		if err := errors.Join(pg.Stop(t.Context(), sandbox.Fast), pg.Start(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(data+"/standby.signal", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	restart()
	p.diagnose(ailment{want: "!in_recovery"}, known)
	if err := os.Remove(data + "/standby.signal"); err != nil {
		t.Fatal(err)
	}
	restart()
}
