package slot

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

func wantMismatch(t *testing.T, err error, codes ...Code) {
	t.Helper()
	var mismatch *MismatchError
	if !errors.As(err, &mismatch) || !errors.Is(err, ErrMismatch) || mismatch.Error() == "" {
		t.Fatalf("error = %v, want a mismatch", err)
	}
	for _, code := range codes {
		if !slices.ContainsFunc(mismatch.Problems, func(p Problem) bool { return p.Code == code }) {
			t.Errorf("error = %v, want code %s", err, code)
		}
	}
}

func TestCreateTwice(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	first := b.create()
	if first.Existed || !first.PublicationCreated || first.StartLSN == 0 || first.EarlierRows == nil || *first.EarlierRows != 0 ||
		first.ResendSQL != "" || first.EarlierUnknown != nil {
		t.Errorf("first = %+v", first)
	}
	if confirmed := b.inspect().Slot.ConfirmedFlushLSN; *confirmed != first.StartLSN {
		t.Errorf("confirmed %s, start %s", confirmed, first.StartLSN)
	}
	if again := b.create(); !again.Existed || again.PublicationCreated || again.StartLSN != first.StartLSN {
		t.Errorf("again = %+v", again)
	}
}

func TestCreateOnPublicationWithoutSlot(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.exec(`CREATE PUBLICATION ` + b.cfg.Publication + ` FOR TABLE outbox WITH (publish = 'insert')`)
	if created := b.create(); created.Existed || created.PublicationCreated {
		t.Errorf("created = %+v", created)
	}
	b.wantProblems()
}

func TestCreateRefusesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	b := bedAt(t, sandbox.Database(t))
	_, err := Create(b.ctx(), b.cc, b.cfg, CreateOptions{})
	wantMismatch(t, err, CodeTableMissing)
	b.wantNothingLeft()
	b.table()
	b.exec(`CREATE PUBLICATION ` + b.cfg.Publication + ` FOR TABLE outbox WITH (publish = 'update')`)
	_, err = Create(b.ctx(), b.cc, b.cfg, CreateOptions{})
	wantMismatch(t, err, CodePublicationWithoutInsert)
	if _, advice := Classify(err); !strings.Contains(advice, "SET (publish = 'insert')") {
		t.Errorf("advice = %q", advice)
	}
}

func TestCreateFailover(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.create()
	version := b.inspect().ServerVersion
	_, err := Create(b.ctx(), b.cc, b.cfg, CreateOptions{Failover: true})
	if version < failoverVersion {
		if !errors.Is(err, ErrFailoverVersion) {
			t.Errorf("error = %v", err)
		}
		return
	}
	wantMismatch(t, err, CodeSlotFailover)
	if err := Drop(b.ctx(), b.conn, b.cfg, DropOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(b.ctx(), b.cc, b.cfg, CreateOptions{Failover: true}); err != nil {
		t.Fatal(err)
	}
	if f := b.inspect().Slot.Failover; f == nil || !*f {
		t.Error("the slot is no failover slot")
	}
}

func TestCreateConcurrently(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	type answer struct {
		created Created
		err     error
	}
	answers := make(chan answer)
	for range 4 {
		go func() {
			created, err := Create(b.ctx(), b.cc, b.cfg, CreateOptions{})
			answers <- answer{created, err}
		}()
	}
	made := 0
	for range 4 {
		a := <-answers
		switch {
		case a.err == nil && !a.created.Existed:
			made++
		case a.err != nil:
			wantMismatch(t, a.err, CodeSlotUnfinished)
		}
	}
	if made != 1 {
		t.Errorf("%d calls made the slot", made)
	}
	b.wantProblems()
}

// openTransaction leaves a write transaction open; the returned function ends it. A slot on the same server waits for it,
// so tests that use it do not run beside others.
func (b *bed) openTransaction() (end func()) {
	b.Helper()
	cc := b.cc.Copy()
	cc.RuntimeParams["application_name"] = "the slow job"
	tx, err := connect(b, cc).Begin(b.ctx())
	if err != nil {
		b.Fatal(err)
	}
	if _, err := tx.Exec(b.ctx(), `INSERT INTO outbox (id, topic, payload) VALUES (gen_random_uuid(), 'slow', '{}')`); err != nil {
		b.Fatal(err)
	}
	return func() {
		if err := tx.Commit(b.ctx()); err != nil {
			b.Fatal(err)
		}
	}
}

// Both places in which Create can wait: before the slot, since the publication is younger than the transaction, and for
// the slot itself, when the publication is an old one.
func TestCreateTimesOutOnAnOpenTransaction(t *testing.T) { // not parallel: see openTransaction
	for name, before := range map[string]string{"new publication": "", "old publication": "yes"} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			if before != "" {
				b.exec(`CREATE PUBLICATION ` + b.cfg.Publication + ` FOR TABLE outbox WITH (publish = 'insert')`)
			}
			end := b.openTransaction()
			told := 0
			_, err := Create(b.ctx(), b.cc, b.cfg, CreateOptions{Timeout: 1500 * time.Millisecond, OnWait: func(w []Transaction) {
				told++
				if len(w) != 1 || w[0].Application != "the slow job" || w[0].PID == 0 || w[0].Since == nil {
					t.Errorf("waiting for %+v", w)
				}
			}})
			var wait *WaitError
			if !errors.As(err, &wait) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the slow job") || told == 0 {
				t.Fatalf("error = %v (told %d times)", err, told)
			}
			if permanent, advice := Classify(err); permanent || !strings.Contains(advice, "pg_terminate_backend") {
				t.Errorf("advice = %q", advice)
			}
			if before != "" {
				b.exec(`DROP PUBLICATION ` + b.cfg.Publication)
			}
			b.wantNothingLeft()
			sandbox.WaitFor(t, testLimit, "the end of the walsender", func() (bool, error) {
				return b.count(`SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'walsender' AND datname = current_database()`) == 0, nil
			})
			end()
			b.create()
			b.wantProblems()
		})
	}
}

func TestCreateCancelled(t *testing.T) { // not parallel: see openTransaction
	b := newBed(t)
	end := b.openTransaction()
	ctx, cancel := context.WithCancel(b.ctx())
	_, err := Create(ctx, b.cc, b.cfg, CreateOptions{OnWait: func([]Transaction) { cancel() }})
	var wait *WaitError
	if !errors.As(err, &wait) || !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v", err)
	}
	b.wantNothingLeft()
	end()
}

func TestCreateWaitsAndGoesOn(t *testing.T) { // not parallel: see openTransaction
	b := newBed(t)
	end := b.openTransaction()
	told := false
	created, err := Create(b.ctx(), b.cc, b.cfg, CreateOptions{OnWait: func([]Transaction) {
		if !told {
			end()
		}
		told = true
	}})
	if err != nil || !told {
		t.Fatalf("error = %v, told = %v", err, told)
	}
	if created.EarlierRows == nil || *created.EarlierRows != 1 {
		t.Errorf("created = %+v, want the row of the slow job as earlier", created)
	}
	b.wantProblems()
	if got := b.through(); len(got) != 0 {
		t.Errorf("the slot delivers %v, which is counted as earlier", got)
	}
}

func TestCreateWaitsForPreparedTransactions(t *testing.T) {
	t.Parallel()
	b := bedAt(t, sandbox.DatabaseOn(t, server(t, map[string]string{"max_prepared_transactions": "2"})))
	b.table()
	b.exec(`BEGIN`, `INSERT INTO outbox (id, topic, payload) VALUES (gen_random_uuid(), 'x', '{}')`, `PREPARE TRANSACTION 'stuck one'`)
	_, err := Create(b.ctx(), b.cc, b.cfg, CreateOptions{Timeout: time.Second})
	_, advice := Classify(err)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(advice, `ROLLBACK PREPARED 'stuck one'`) {
		t.Errorf("error = %v, advice = %q", err, advice)
	}
	b.wantNothingLeft()
	b.exec(`COMMIT PREPARED 'stuck one'`)
	if created := b.create(); *created.EarlierRows != 1 {
		t.Errorf("created = %+v", created)
	}
}
