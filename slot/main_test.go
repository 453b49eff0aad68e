package slot

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/outbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.Run(m)) }

const testLimit = 30 * time.Second

// bed is a database of the test's own with a connection, and names for a relay in it.
type bed struct {
	testing.TB
	cc   *pgx.ConnConfig
	conn *pgx.Conn
	cfg  Config
}

// newBed makes the bed with an outbox table.
func newBed(t testing.TB) *bed {
	t.Helper()
	b := bedAt(t, sandbox.Database(t))
	b.table()
	return b
}

func bedAt(t testing.TB, url string) *bed {
	t.Helper()
	cc, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	name := sandbox.Name(t)
	return &bed{TB: t, cc: cc, conn: connect(t, cc), cfg: Config{
		Slot: name, Publication: name, Table: outbox.Table{Schema: "public", Name: "outbox"},
	}}
}

func (b *bed) table() {
	b.Helper()
	if _, err := outbox.Create(b.ctx(), b.conn, b.cfg.Table, outbox.DDLOptions{}); err != nil {
		b.Fatal(err)
	}
}

func connect(t testing.TB, cc *pgx.ConnConfig) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testLimit)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, cc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeConn(context.WithoutCancel(t.Context()), conn) })
	return conn
}

func (b *bed) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.Context()), testLimit) // also for a cleanup
	b.Cleanup(cancel)
	return ctx
}

func (b *bed) exec(statements ...string) {
	b.Helper()
	for _, sql := range statements {
		if _, err := b.conn.Exec(b.ctx(), sql); err != nil {
			b.Fatalf("%s: %v", sql, err)
		}
	}
}

func (b *bed) insert(n int) (ids []string) {
	b.Helper()
	rows, err := b.conn.Query(b.ctx(), `INSERT INTO `+b.cfg.Table.SQL()+` (id, topic, payload)
		SELECT gen_random_uuid(), 't.x', '{}' FROM generate_series(1, $1::int) RETURNING id::text`, n)
	if err != nil {
		b.Fatal(err)
	}
	if ids, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		b.Fatal(err)
	}
	return ids
}

func (b *bed) create() Created {
	b.Helper()
	created, err := Create(b.ctx(), b.cc, b.cfg, CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return created
}

func (b *bed) inspect() State {
	b.Helper()
	state, err := Inspect(b.ctx(), b.conn, b.cfg)
	if err != nil {
		b.Fatal(err)
	}
	return state
}

// problems returns the codes of what is wrong now, "!" before the broken ones.
func (b *bed) problems() (codes []string) {
	b.Helper()
	for _, p := range b.inspect().Problems(b.cfg) {
		code := string(p.Code)
		if p.Severity == Broken {
			code = "!" + code
		}
		codes = append(codes, code)
		b.Log(code + ": " + p.Text + "  -> " + p.Fix)
	}
	return codes
}

func (b *bed) wantProblems(want ...string) {
	b.Helper()
	if got := b.problems(); !slices.Equal(got, want) {
		b.Errorf("problems = %q, want %q", got, want)
	}
}

// through returns the ids that the slot delivers, in their order.
func (b *bed) through() (ids []string) {
	b.Helper()
	rows, err := b.conn.Query(b.ctx(), `SELECT data FROM pg_logical_slot_peek_binary_changes($1::name, NULL, NULL,
		'proto_version', '1', 'publication_names', quote_ident($2))`, b.cfg.Slot, b.cfg.Publication)
	if err != nil {
		b.Fatal(err)
	}
	messages, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		b.Fatal(err)
	}
	for _, m := range messages {
		msg, err := pglogrepl.Parse(m)
		if err != nil {
			b.Fatal(err)
		}
		if insert, ok := msg.(*pglogrepl.InsertMessage); ok {
			ids = append(ids, string(insert.Tuple.Columns[0].Data))
		}
	}
	return ids
}

func (b *bed) count(sql string, args ...any) (n int) {
	b.Helper()
	if err := b.conn.QueryRow(b.ctx(), sql, args...).Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

func (b *bed) wantNothingLeft() {
	b.Helper()
	if n := b.count(`SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1`, b.cfg.Slot); n != 0 {
		b.Errorf("a slot is left")
	}
	if n := b.count(`SELECT count(*) FROM pg_publication WHERE pubname = $1`, b.cfg.Publication); n != 0 {
		b.Errorf("a publication is left")
	}
}
