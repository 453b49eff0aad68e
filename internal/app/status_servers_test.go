package app

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// status asks for the status, which has an answer whatever the exit code.
func (w *world) status(args string) (statusReport, result) {
	w.t.Helper()
	got := relay(w.t, w.env, "status --json "+args)
	var report statusReport
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
		w.t.Fatalf("status %s: %v: %+v", args, err, got)
	}
	if strings.Contains(got.stdout+got.stderr, "panic") || report.Lag.Bytes != nil && *report.Lag.Bytes < 0 {
		w.t.Errorf("status %s: %+v", args, got)
	}
	return report, got
}

func (r *statusReport) has(code string) bool {
	return slices.ContainsFunc(r.Reasons, func(x reason) bool { return x.Code == code })
}

func (w *world) js() jetstream.JetStream {
	w.t.Helper()
	nc, err := nats.Connect(sandbox.JetStream(w.t).URL())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		w.t.Fatal(err)
	}
	return js
}

// The leader's own figures are taken where it can be asked, and no other relay's.
func TestStatusAsksTheLeader(t *testing.T) {
	t.Parallel()
	w, other := newWorld(t), newWorld(t)
	_, address := w.startRelay()
	_, elsewhere := other.startRelay()
	var r statusReport
	var got result
	sandbox.WaitFor(t, 20*time.Second, "the leader publishes", func() (bool, error) {
		r, got = w.status("--max-lag-seconds 5 --relay " + address)
		return r.Leader != nil && r.Leader.URL != nil && *r.Leader.State == "publishing" && r.Lag.Seconds != nil, errors.New(got.stdout)
	})
	if got.code != exitOK || *r.Leader.URL != address || *r.Lag.Seconds != 0 || *r.Pending.Events != 0 || r.LastFailure != nil {
		t.Errorf("%+v", got)
	}
	if text := relay(t, w.env, "status --relay "+address); !strings.Contains(text.stdout, ", publishing  (pid ") {
		t.Errorf("%+v", text)
	}
	bystander := httptest.NewServer(http.NotFoundHandler())
	defer bystander.Close()
	for _, test := range []struct{ address, code string }{
		{elsewhere, codeRelayNotLeader}, {"http://127.0.0.1:1", codeRelayUnreachable}, {bystander.URL, codeRelayUnreachable},
	} {
		r, got := w.status("--relay " + test.address)
		if got.code != exitOK || !r.has(test.code) || r.Leader == nil || r.Leader.URL != nil || r.LastFailure != nil {
			t.Errorf("%s: want %s: %+v", test.address, test.code, got)
		}
	}
	for _, wrong := range []string{"ftp://x", "http://", "http://u:hunter2@[::"} {
		if got := relay(t, w.env, "status --relay "+wrong); got.code != exitUsage || !strings.Contains(got.stderr, "--relay") || strings.Contains(got.stderr, "hunter2") {
			t.Errorf("%s: %+v", wrong, got)
		}
	}
}

// A leader that cannot store says so: what waits, since when, and what failed.
func TestStatusOfAStalledLeader(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b, address := w.startRelay("--drain-timeout=100ms")
	w.insert(1)
	js := w.js()
	stream, err := js.Stream(t.Context(), w.stream)
	if err != nil {
		t.Fatal(err)
	}
	b.waitFor(t, b.log, "to=publishing")
	sandbox.WaitFor(t, 20*time.Second, "the first event is stored", func() (bool, error) {
		info, err := stream.Info(t.Context())
		return err == nil && info.State.Msgs == 1, err
	})
	cfg := stream.CachedInfo().Config
	cfg.MaxMsgs = 1
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	w.insert(3)
	var r statusReport
	var got result
	sandbox.WaitFor(t, 30*time.Second, "the leader is not ready", func() (bool, error) {
		r, got = w.status("--max-lag-seconds 1 --relay " + address)
		return r.has(codeLeaderNotReady), errors.New(got.stdout)
	})
	if got.code != exitVerdict || r.Verdict != verdictBroken || !r.has(codeLagSecondsExceeded) || r.Leader.WaitingFor == nil || r.Leader.WaitingSince == nil ||
		*r.Pending.Events != 3 || *r.Pending.Source != pendingLeader || *r.Pending.OldestAgeSeconds < 1 || *r.Lag.Seconds < 1 ||
		r.LastFailure == nil || valueOr(r.LastFailure.Code, "") != "refused" {
		t.Errorf("%s", got.stdout)
	}
	text := relay(t, w.env, "status --relay "+address)
	for _, want := range []string{"BROKEN", "3 events", "last failure", "FAIL", "the leader is not ready"} {
		if !strings.Contains(text.stdout, want) {
			t.Errorf("%q is missing in\n%s", want, text.stdout)
		}
	}
}

// Without a leader to ask, what waits is estimated from the rows if an index serves that, and said to be an estimate.
func TestStatusEstimates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b, _ := w.startRelay()
	w.insert(3)
	sandbox.WaitFor(t, 20*time.Second, "three are stored", func() (bool, error) {
		r, got := w.status("")
		return r.Stream != nil && r.Stream.Messages == 3, errors.New(got.stdout)
	})
	b.stop()
	w.insert(5000)
	w.exec(`ANALYZE outbox`)
	r, got := w.status("")
	if r.Pending.Events != nil || !r.has(codePendingUnknown) || !strings.Contains(got.stdout, "no index on created_at") || r.Lag.Seconds != nil {
		t.Errorf("without an index: %s", got.stdout)
	}
	scans := func() (seq, idx int) {
		if err := w.conn.QueryRow(t.Context(), `SELECT seq_scan, coalesce(idx_scan, 0) FROM pg_stat_user_tables WHERE relname = 'outbox'`).Scan(&seq, &idx); err != nil {
			t.Fatal(err)
		}
		return seq, idx
	}
	w.exec(`INSERT INTO outbox (id, topic, payload, created_at) VALUES (gen_random_uuid(), 'x', '{}', 'infinity')`) // C51
	w.exec(`CREATE INDEX ON outbox (created_at)`)
	w.reconnect() // a session that ends has its scans counted
	before, used := scans()
	r, got = w.status("")
	if r.Pending.Events == nil || *r.Pending.Events != 5000 || *r.Pending.Exact || *r.Pending.Source != pendingRows ||
		!r.has(codePendingEstimated) || r.Pending.OldestAgeSeconds != nil {
		t.Errorf("with an index: %s", got.stdout)
	}
	if text := relay(t, w.env, "status"); !strings.Contains(text.stdout, "~ ") {
		t.Errorf("%s", text.stdout)
	}
	sandbox.WaitFor(t, 20*time.Second, "PostgreSQL counts the scans", func() (bool, error) {
		_, now := scans()
		return now > used, nil
	})
	if after, _ := scans(); after > before {
		t.Errorf("%d sequential scans of the outbox", after-before)
	}
}

func TestServedByIndex(t *testing.T) {
	t.Parallel()
	const scan = `{"Node Type": "Index Only Scan", "Index Name": "i", "Index Cond": "(created_at > x)"}`
	for plan, want := range map[string]bool{
		scan: true,
		`{"Node Type": "Aggregate", "Plans": [{"Node Type": "Limit", "Plans": [` + scan + `]}]}`: true,
		`{"Node Type": "Merge Append", "Plans": [` + scan + `, ` + scan + `]}`:                   true,
		`{"Node Type": "Seq Scan"}`: false,
		`{"Node Type": "Append", "Plans": [` + scan + `, {"Node Type": "Seq Scan"}]}`: false,
		`{"Node Type": "Index Scan", "Index Name": "pkey", "Filter": "created_at"}`:   false,
		`{"Node Type": "Sort", "Plans": [` + scan + `]}`:                              false,
		`{"Node Type": "Bitmap Heap Scan", "Plans": []}`:                              false,
		`{"Node Type": "Gather", "Plans": [` + scan + `]}`:                            false,
	} {
		if got := servedByIndex(`[{"Plan": ` + plan + `}]`); got != want {
			t.Errorf("%s: %v", plan, got)
		}
	}
	if servedByIndex("") || servedByIndex("[]") {
		t.Error("no plan is no index")
	}
}

// Status asks each server in few round trips.
func TestStatusRoundTrips(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b, _ := w.startRelay()
	w.insert(3)
	sandbox.WaitFor(t, 20*time.Second, "three are stored", func() (bool, error) {
		r, got := w.status("")
		return r.Stream != nil && r.Stream.Messages == 3, errors.New(got.stdout)
	})
	b.stop()
	w.insert(3)
	w.exec(`CREATE INDEX ON outbox (created_at)`)
	database, err := url.Parse(w.conn.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	answered, trips, questions := true, 0, 0
	pg, broker := proxy(t, database.Host), proxy(t, strings.TrimPrefix(sandbox.JetStream(t).URL(), "nats://"))
	pg.OnPg(func(m sandbox.PgMessage) sandbox.Action {
		mu.Lock()
		defer mu.Unlock()
		if m.ToServer && answered && m.Type != 'X' { // nobody waits for the end
			trips++
		}
		answered = !m.ToServer
		return sandbox.Forward
	})
	broker.OnNATS(func(m sandbox.NATSMessage) sandbox.Action {
		mu.Lock()
		defer mu.Unlock()
		if m.ToServer && slices.Contains([]string{"CONNECT", "PUB", "HPUB"}, m.Op) {
			questions++
		}
		return sandbox.Forward
	})
	database.Host = pg.Addr()
	w.env = append(w.env, "DATABASE_URL="+database.String(), "NATS_URL=nats://"+broker.Addr())
	r, got := w.status("")
	if r.Pending.Source == nil || *r.Pending.Source != pendingRows {
		t.Errorf("it did not ask for everything: %s", got.stdout)
	}
	mu.Lock()
	defer mu.Unlock()
	if trips < 5 || trips > 10 || questions < 3 || questions > 10 {
		t.Errorf("%d round trips to PostgreSQL, %d to NATS", trips, questions)
	}
	t.Logf("%d round trips to PostgreSQL, %d to NATS", trips, questions)
}

func proxy(t *testing.T, target string) *sandbox.Proxy {
	t.Helper()
	p, err := sandbox.StartProxy(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// C38: fresh, missing, physical, lost; then the server as a standby, and promoted.
func TestC38_Status(t *testing.T) {
	t.Parallel()
	pg, err := sandbox.StartPostgres(t.Context(), sandbox.PostgresConfig{
		Major: sandbox.PG(t).Major(), Settings: map[string]string{"max_slot_wal_keep_size": "64MB", "max_wal_size": "32MB", "min_wal_size": "32MB"},
		Logger: sandbox.Logger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pg.Close() })
	url := sandbox.DatabaseOn(t, pg)
	w := newWorldOn(t, url, sandbox.JetStream(t).URL())
	want := func(what, code, text string) statusReport {
		t.Helper()
		r, got := w.status("--max-lag-seconds 0")
		if got.code != exitVerdict || r.Verdict != verdictBroken || !r.has(code) {
			t.Errorf("%s: want %s: %+v", what, code, got)
		}
		if got := relay(t, w.env, "status"); got.code != exitVerdict || !strings.Contains(got.stdout, text) || got.stderr != "" {
			t.Errorf("%s: want %q: %+v", what, text, got)
		}
		return r
	}
	fresh := want("fresh", codeNoLeader, "nobody relays")
	if s := fresh.Slot; s.SafeWALBytes == nil || s.MaxRetainedBytes == nil || *s.MaxRetainedBytes != 64<<20 || s.TransactionBytes == nil {
		t.Errorf("fresh: %+v", s)
	}
	w.exec(`CREATE TABLE noise (x text)`)
	w.exec(`SELECT pg_create_physical_replication_slot('physical')`)
	env := w.env
	for _, slot := range []struct{ name, code, text string }{
		{"physical", "slot_physical", "physical slot"}, {"absent", "slot_missing", "no such slot"},
	} {
		w.env = append(slices.Clone(env), "RELAY_SLOT="+slot.name)
		if r := want(slot.name, slot.code, slot.text); r.has(codeNoLeader) || r.Pending.Events != nil || r.Lag.Seconds != nil {
			t.Errorf("%s: %+v", slot.name, r)
		}
	}
	w.env = env
	for i := range 20 { // the end of WAL and the slot's confirmed LSN are read at a time
		w.exec(`INSERT INTO noise SELECT repeat('x', 900) FROM generate_series(1, 100)`)
		if i%2 == 0 {
			w.exec(`SELECT pg_replication_slot_advance($1, pg_current_wal_insert_lsn())`, w.slot)
		}
		w.status("")
	}
	w.exec(`DO $$ BEGIN FOR i IN 1..8 LOOP INSERT INTO noise VALUES ('x'); PERFORM pg_switch_wal(); END LOOP; END $$`)
	sandbox.WaitFor(t, 30*time.Second, "the slot is lost", func() (bool, error) {
		w.exec(`INSERT INTO noise VALUES ('x')`)
		w.exec(`SELECT pg_switch_wal()`)
		w.exec(`CHECKPOINT`)
		r, got := w.status("")
		return r.has("slot_lost"), errors.New(got.stdout)
	})
	if r := want("lost", "slot_lost", "is lost"); r.has(codeNoLeader) || r.Slot.LostInSeconds != nil && *r.Slot.LostInSeconds < 0 {
		t.Errorf("lost: %+v", r)
	}
	w.must("slot drop")
	w.must("slot create")

	var data string
	if err := w.conn.QueryRow(t.Context(), `SHOW data_directory`).Scan(&data); err != nil {
		t.Fatal(err)
	}
	_ = w.conn.Close(t.Context())
	if err := os.WriteFile(data+"/standby.signal", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(data+"/standby.signal", 0o644); err != nil { //nolint:gosec // the server is another user
		t.Fatal(err)
	}
	if err := errors.Join(pg.Stop(t.Context(), sandbox.Fast), pg.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	if r := want("standby", "in_recovery", "is a standby"); r.has(codeNoLeader) {
		t.Errorf("standby: %+v", r)
	}
	w.reconnect()
	w.exec(`SELECT pg_promote()`)
	sandbox.WaitFor(t, 30*time.Second, "the promotion", func() (bool, error) {
		r, got := w.status("")
		return !r.has("in_recovery"), errors.New(got.stdout)
	})
	w.must("slot create") // some versions keep it, some do not
	w.exec(`INSERT INTO noise VALUES ('x')`)
	var lag int64
	if err := w.conn.QueryRow(t.Context(), `SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), confirmed_flush_lsn)::bigint
		FROM pg_replication_slots WHERE slot_name = $1`, w.slot).Scan(&lag); err != nil {
		t.Fatal(err)
	}
	if r := want("promoted", codeNoLeader, "nobody relays"); *r.Lag.Bytes < lag {
		t.Errorf("promoted: %d bytes, want %d or more", *r.Lag.Bytes, lag)
	}
}
