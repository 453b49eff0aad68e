package test

import (
	"testing"

	"github.com/seed-1cfd9858/relay/test/harness"
)

// reshape inserts events between changes of the table's shape that leave it an outbox, and returns how many.
func reshape() (sql []string, events int) {
	insert := func(columns, values string) {
		events++
		sql = append(sql, `INSERT INTO outbox (id, topic, payload`+columns+`) VALUES ('`+eventID(events)+`', 'order.created', '{"n": 1}'`+values+`)`)
	}
	insert("", "")
	sql = append(sql, `ALTER TABLE outbox ADD COLUMN tenant text`)
	insert(", tenant", ", 'a'")
	sql = append(sql, `ALTER TABLE outbox DROP COLUMN created_at`)
	insert("", "")
	// The topic is the last column now, and the payload is of another type.
	sql = append(sql, `ALTER TABLE outbox DROP COLUMN topic`, `ALTER TABLE outbox ADD COLUMN topic varchar(40) NOT NULL DEFAULT 'order.created'`,
		`ALTER TABLE outbox ALTER COLUMN payload TYPE text USING payload::text`)
	insert("", "")
	sql = append(sql, `ALTER TABLE outbox RENAME COLUMN aggregate_id TO customer`)
	insert(", customer", ", 'c'")
	return sql, events
}

// Columns come, go, move and change their type: each row is read in the shape that it was written in.
func TestC14_ShapeChanges(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"while the relay is stopped", "while it runs", "in one transaction"} {
		w := harness.New(t, harness.Config{Stream: window100ms})
		watch := w.Watch()
		defer watch.Stop()
		start := func() *harness.Relay { r := w.Start(); leads(t, r); return r }
		var relay *harness.Relay
		if how != "while the relay is stopped" {
			relay = start()
		}
		sql, events := reshape()
		if how == "in one transaction" {
			sql = append(append([]string{`BEGIN`}, sql...), `COMMIT`)
		}
		for _, s := range sql {
			w.Exec(s)
		}
		if relay == nil {
			relay = start()
		}
		w.ExpectIDs(eventIDs(1, events))
		for _, m := range w.Messages() {
			if m.Subject != w.Subject("order.created") || m.Body != `{"n": 1}` {
				t.Errorf("%s: event %s has subject %s and body %s", how, m.ID, m.Subject, m.Body)
			}
		}
		w.WaitConfirmed()
		stopped(t, relay)
		oneHolder(t, watch)
	}
}

// Without a column that it needs the relay stops: before the first row that lacks it when it runs, or at once when it starts.
// What was written before is delivered, and nothing is confirmed beyond it.
func TestC14_NeededColumnRenamed(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms})
	watch := w.Watch()
	defer watch.Stop()
	relay := w.Start()
	leads(t, relay)
	insert(w, 1, 3)
	w.WaitCount(3)
	w.WaitConfirmed()
	w.Exec(`ALTER TABLE outbox RENAME COLUMN payload TO body`)
	w.Exec(`INSERT INTO outbox (id, topic, body) VALUES ($1, 'order.created', '{}')`, eventID(4))
	watch.Limit(walLSN(w))
	exits(t, relay, 6, `"payload"`, "public.outbox")
	w.ExpectIDs(eventIDs(1, 3))
	if confirmed, last := w.ConfirmedLSN(), committed(t, w, eventID(3)); confirmed <= last {
		t.Errorf("%s is confirmed, not the event at %s", confirmed, last)
	}
	refuses(t, w, 6, "has no column payload")

	// Named back, the row is still one without a payload: the WAL is read in the shape that it was written in.
	w.Exec(`ALTER TABLE outbox RENAME COLUMN body TO payload`)
	insert(w, 5, 5)
	exits(t, w.Start(), 6, `"payload"`)
	w.ExpectIDs(eventIDs(1, 3))

	// The way out is a new slot, and the rows inserted again.
	watch.Limit(0)
	watch.Stop()
	w.MustDo("slot", "drop")
	w.MustDo("slot", "create")
	w.Exec(`WITH old AS (DELETE FROM outbox WHERE id > $1 RETURNING *) INSERT INTO outbox SELECT * FROM old ORDER BY id`, eventID(3))
	relay = w.Start()
	w.ExpectIDs(eventIDs(1, 5))
	w.WaitConfirmed()
	stopped(t, relay)
}
