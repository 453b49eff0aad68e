package dialogue

import (
	"context"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-1cfd9858/relay/slot"
	"github.com/seed-1cfd9858/relay/test/sim/history"
	"github.com/seed-1cfd9858/relay/test/sim/pgmodel"
	"github.com/seed-1cfd9858/relay/test/sim/simnet"
)

type modelDatabase struct {
	server *pgmodel.Server
	client *simnet.Process
}

type quiet struct{}

func (quiet) Committed(*pgmodel.Tx)   {}
func (quiet) Forgotten(pglogrepl.LSN) {}
func (quiet) SessionBegan(string) func(history.Update, pglogrepl.LSN) {
	return func(history.Update, pglogrepl.LSN) {}
}

func newModelDatabase(major int) *modelDatabase {
	return &modelDatabase{
		server: pgmodel.New(pgmodel.Config{Slot: names, Major: major, Polite: true}, quiet{}, history.NewLog(),
			rand.New(rand.NewPCG(1, 1))), //nolint:gosec // repeatable on purpose
		client: simnet.NewProcess("client", nil),
	}
}

func (d *modelDatabase) config(t *testing.T) *pgconn.Config {
	cfg, err := pgconn.ParseConfig("postgres://relay@127.0.0.1:5432/app?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	cfg.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.client.Dial(ctx, d.server.Proc, simnet.Link{Buffer: 1 << 20})
	}
	return cfg
}

func (d *modelDatabase) commit(t *testing.T, ids []string, others int, ddl bool) {
	tx := &pgmodel.Tx{Others: others}
	if ddl {
		tx.DDL = 1
	}
	for _, id := range ids {
		tx.Rows = append(tx.Rows, pgmodel.Row{ID: id, Topic: "t", Payload: "{}"})
	}
	if !d.server.Commit(tx) {
		t.Fatal("the model takes no transaction")
	}
}

func (d *modelDatabase) state(t *testing.T) slot.State {
	s, err := d.server.Inspect(t.Context(), d.client)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (d *modelDatabase) checkpoint(*testing.T) { d.server.Checkpoint() }
func (d *modelDatabase) crash(*testing.T)      { d.server.Crash() }
func (d *modelDatabase) stop(*testing.T)       { d.server.Stop() }
func (d *modelDatabase) start(*testing.T)      { d.server.Start() }
func (d *modelDatabase) endSession(*testing.T) { d.server.EndSession("57P01") }

func (d *modelDatabase) explain(t *testing.T) { t.Logf("the model's slot: %+v", d.state(t).Slot) }
