package slot

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// hold starts streaming from the slot, as a relay does, until the test ends or the returned function is called.
func (b *bed) hold() (release func()) {
	b.Helper()
	cc := b.cc.Copy()
	cc.RuntimeParams["replication"] = "database"
	cc.RuntimeParams["application_name"] = "relay on host1"
	repl, err := pgconn.ConnectConfig(b.ctx(), &cc.Config)
	if err != nil {
		b.Fatal(err)
	}
	release = func() { closeConn(b.ctx(), repl) }
	b.Cleanup(release)
	reader := repl.Exec(b.ctx(), `START_REPLICATION SLOT `+b.cfg.Slot+` LOGICAL 0/0
		(proto_version '1', publication_names '"`+b.cfg.Publication+`"')`)
	_ = reader // never read to its end: the connection stays in copy mode
	sandbox.WaitFor(b, testLimit, "the slot to be held", func() (bool, error) { return b.inspect().Slot.Active, nil })
	return release
}

func TestDropRefusesAHeldSlot(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.create()
	release := b.hold()
	s := b.inspect().Slot
	if s.ActivePID == nil || s.Holder == nil || s.Holder.PID != *s.ActivePID || s.Holder.ApplicationName != "relay on host1" ||
		s.Holder.Address == "" || s.Holder.Since == nil || s.Holder.State == "" {
		t.Errorf("slot %+v, holder %+v", s, s.Holder)
	}
	err := Drop(b.ctx(), b.conn, b.cfg, DropOptions{Publication: true})
	var refused *DropError
	if !errors.As(err, &refused) || !errors.Is(err, ErrSlotActive) || !strings.Contains(err.Error(), "relay on host1") {
		t.Errorf("error = %v", err)
	}
	b.wantProblems()
	release()
	sandbox.WaitFor(t, testLimit, "the slot to be free", func() (bool, error) {
		err := Drop(b.ctx(), b.conn, b.cfg, DropOptions{Publication: true})
		return err == nil, err
	})
	b.wantNothingLeft()
}

func TestDropRefusals(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	want := func(reason error) {
		t.Helper()
		err := Drop(b.ctx(), b.conn, b.cfg, DropOptions{})
		var refused *DropError
		if !errors.As(err, &refused) || !errors.Is(err, reason) || refused.Advice() == "" {
			t.Errorf("error = %v, want %v with advice", err, reason)
		}
	}
	want(ErrSlotMissing)
	for _, sql := range []string{
		`SELECT pg_create_physical_replication_slot($1)`,
		`SELECT pg_create_logical_replication_slot($1, 'test_decoding')`,
	} {
		if _, err := b.conn.Exec(b.ctx(), sql, b.cfg.Slot); err != nil {
			t.Fatal(err)
		}
		want(ErrSlotForeign)
		b.exec(`SELECT pg_drop_replication_slot('` + b.cfg.Slot + `')`)
	}
	other := newBed(t)
	other.create()
	b.cfg.Slot = other.cfg.Slot
	want(ErrSlotForeign)
	other.wantProblems()
}

func TestDropLeavesThePublicationUnlessAsked(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.create()
	if err := Drop(b.ctx(), b.conn, b.cfg, DropOptions{}); err != nil {
		t.Fatal(err)
	}
	b.wantProblems("!slot_missing")
	if err := Drop(b.ctx(), b.conn, b.cfg, DropOptions{Publication: true}); err != nil {
		t.Errorf("drop of what a first drop left: %v", err)
	}
	b.wantNothingLeft()
}

func TestList(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.create()
	b.insert(10)
	slots, err := List(b.ctx(), b.conn)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range slots {
		if i > 0 && slots[i-1].Name > s.Name {
			t.Errorf("%s stands before %s", slots[i-1].Name, s.Name)
		}
		if s.Name != b.cfg.Slot {
			continue
		}
		if s.Plugin != "pgoutput" || s.Database != b.cc.Database || s.WALStatus != "reserved" || s.Active ||
			s.RetainedBytes == nil || *s.RetainedBytes == 0 || s.UnconfirmedBytes == nil || *s.UnconfirmedBytes == 0 {
			t.Errorf("slot %+v", s)
		}
		return
	}
	t.Errorf("%q is not among %d slots", b.cfg.Slot, len(slots))
}
