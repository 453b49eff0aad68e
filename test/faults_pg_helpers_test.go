package test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// ownPostgres starts a PostgreSQL for one test that stops it or changes its settings, of the major that the others use.
func ownPostgres(t *testing.T, settings map[string]string) *sandbox.Postgres {
	t.Helper()
	return postgresOf(t, sandbox.PG(t).Major(), settings)
}

// postgresOf starts a PostgreSQL of a major for one test.
func postgresOf(t *testing.T, major int, settings map[string]string) *sandbox.Postgres {
	t.Helper()
	pg, err := sandbox.StartPostgres(t.Context(), sandbox.PostgresConfig{Major: major, Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := pg.Log()
			lines := strings.Split(log, "\n")
			t.Logf("PostgreSQL %s:\n%s", pg.Version(), strings.Join(lines[max(0, len(lines)-60):], "\n"))
		}
		if err := pg.Close(); err != nil {
			t.Error(err)
		}
	})
	return pg
}

// stopPostgres shuts a server down and returns how long that took. The test fails when it takes longer than limit.
func stopPostgres(t *testing.T, pg *sandbox.Postgres, mode sandbox.StopMode, limit time.Duration) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Limit)
	defer cancel()
	began := time.Now()
	if err := pg.Stop(ctx, mode); err != nil {
		t.Fatalf("it hangs: %v", err)
	}
	took := time.Since(began)
	if took > limit {
		t.Errorf("PostgreSQL stopped after %s, want at most %s", took, limit)
	}
	return took
}

// startPostgres starts a server again and connects the world to it anew.
func startPostgres(t *testing.T, pg *sandbox.Postgres, w *harness.World) {
	t.Helper()
	if err := pg.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Conn = connect(t, w)
}

// catalogue returns the slots and publications of the world's server, without what moves by itself.
func catalogue(t *testing.T, conn *pgx.Conn, slot string) string {
	t.Helper()
	var text string
	err := conn.QueryRow(t.Context(), `SELECT concat_ws(E'\n',
		(SELECT string_agg(format('slot %s %s %s %s %s %s', slot_name, plugin, slot_type, database, temporary, confirmed_flush_lsn), E'\n' ORDER BY slot_name)
			FROM pg_replication_slots WHERE database = current_database() OR database IS NULL OR slot_name = $1),
		(SELECT string_agg(format('publication %s %s %s %s %s %s', oid, pubname, pubinsert, pubupdate, pubdelete, puballtables), E'\n' ORDER BY oid)
			FROM pg_publication),
		(SELECT string_agg(format('member %s %s', prpubid, prrelid), E'\n' ORDER BY oid) FROM pg_publication_rel))`, slot).Scan(&text)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// refuses fails the test unless a new relay refuses to stream: within 5 s, with this exit code and these texts, and with
// the catalogue left as it is.
func refuses(t *testing.T, w *harness.World, code int, texts ...string) {
	t.Helper()
	before, began := catalogue(t, w.Conn, w.Slot), time.Now()
	relay := w.Start()
	exits(t, relay, code, texts...)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it ended after %s", took)
	}
	if after := catalogue(t, w.Conn, w.Slot); after != before {
		t.Errorf("the catalogue was\n%s\nand is\n%s", before, after)
	}
	if strings.Contains(relay.Log(), "trying again") {
		t.Errorf("it has tried again:\n%s", relay.Log())
	}
}

// exits fails the test unless a relay ends with this exit code and says these texts.
func exits(t *testing.T, relay *harness.Relay, code int, texts ...string) {
	t.Helper()
	if got := relay.Exit(); got != code {
		t.Errorf("exit %d, want %d", got, code)
	}
	says(t, "the relay", relay.Log(), texts...)
}

// says fails the test unless an output holds all the texts.
func says(t *testing.T, what, output string, texts ...string) {
	t.Helper()
	output = strings.ReplaceAll(output, `\"`, `"`)
	for _, text := range texts {
		if !strings.Contains(output, text) {
			t.Errorf("%s does not say %q:\n%s", what, text, output)
		}
	}
}

// lines counts the lines of a text that hold all the words.
func lines(text string, words ...string) int {
	n := 0
next:
	for line := range strings.Lines(text) {
		for _, word := range words {
			if !strings.Contains(line, word) {
				continue next
			}
		}
		n++
	}
	return n
}

// cpuOf returns the processor time that a relay has used.
func cpuOf(t *testing.T, relay *harness.Relay) time.Duration {
	t.Helper()
	usage, err := relay.Usage()
	if err != nil {
		t.Fatal(err)
	}
	return usage.CPU
}

// passes waits for a time in which something must not happen.
func passes(t testing.TB, d time.Duration) { moment(t, d, d+time.Millisecond) }

// connectTo opens a connection that ends with the test.
func connectTo(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}
