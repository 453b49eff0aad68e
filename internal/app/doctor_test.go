package app

import (
	"context"
	"encoding/json"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// patient is a relay's surroundings that doctor finds healthy, for a case to break one thing of.
type patient struct {
	*testing.T
	db       *pgx.Conn // of a superuser, with the patient's schema in front
	database string    // its URL
	js       jetstream.JetStream
	name     string // of the schema, the slot and the publication
	stream   string
	role     *url.Userinfo // whom the relay is
	env      []string      // what the case changes of the environment
	flags    []string      // and of the command line
}

// ailment breaks one thing. What doctor must find is its codes, "!" before those that fail.
type ailment struct {
	name string
	sick func(p *patient)
	want string
}

// What doctor warns of on the servers of these tests: no limit on WAL, one replica.
var wellKnown = []string{"stream_replicas", "wal_keep_unlimited"}

// newRole makes a role that may do what a relay needs on the server of pg, and no more.
func newRole(t *testing.T, pg *sandbox.Postgres, attributes string) *url.Userinfo {
	t.Helper()
	name := sandbox.Name(t)
	conn := superuser(t, pg.URL("postgres"))
	if _, err := conn.Exec(t.Context(), `CREATE ROLE `+name+` LOGIN `+attributes+` PASSWORD 'secret-of-the-role'`); err != nil {
		t.Fatal(err)
	}
	afterwards(t, pg.URL("postgres"), `DROP ROLE `+name)
	return url.UserPassword(name, "secret-of-the-role")
}

func superuser(t *testing.T, database string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func jetStream(t *testing.T, address string, options ...nats.Option) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(address, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// newPatient makes the table, the publication, the slot and the stream in a schema of the test's own.
func newPatient(t *testing.T, database string, role *url.Userinfo) *patient {
	t.Helper()
	server := sandbox.JetStream(t)
	p := &patient{
		T: t, db: superuser(t, database), database: database, js: jetStream(t, server.URL()), name: sandbox.Name(t), role: role,
		env: []string{"NATS_URL=" + server.URL()},
	}
	p.stream = strings.ToUpper(p.name)
	afterwards(t, database, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '`+p.name+`'`) // there are few
	p.sql(`CREATE SCHEMA `+p.name, `SET search_path = `+p.name, `GRANT USAGE ON SCHEMA `+p.name+` TO `+role.Username())
	p.relay("outbox create")
	p.sql(`GRANT SELECT ON outbox TO ` + role.Username())
	return p
}

// afterwards runs SQL when the test is over, on a connection of its own: a restart cuts the others.
func afterwards(t *testing.T, database, sql string) {
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		conn, err := pgx.Connect(ctx, database)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close(ctx) }()
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	})
}

// settle makes the rest of a healthy patient.
func (p *patient) settle() *patient {
	p.Helper()
	p.relay("slot create")
	p.relay("stream create")
	return p
}

func (p *patient) sql(statements ...string) {
	p.Helper()
	for _, sql := range statements {
		if _, err := p.db.Exec(p.Context(), sql); err != nil {
			p.Fatalf("%s: %v", sql, err)
		}
	}
}

// relay runs one of the relay's commands as the superuser.
func (p *patient) relay(args string) {
	p.Helper()
	if got := relay(p.T, p.environ(p.database), args); got.code != exitOK {
		p.Fatalf("relay %s: %+v", args, got)
	}
}

func (p *patient) environ(database string) []string {
	return slices.Concat([]string{
		"RELAY_DATABASE_URL=" + database, "RELAY_SLOT=" + p.name, "RELAY_PUBLICATION=" + p.name, "RELAY_TABLE=" + p.name + ".outbox",
		"RELAY_STREAM=" + p.stream, "RELAY_SUBJECT=" + p.subject("{topic}"),
	}, p.env)
}

func (p *patient) subject(topic string) string { return p.name + "." + topic }

// as is the URL of the database for a role.
func (p *patient) as(role *url.Userinfo) string {
	u, err := url.Parse(p.database)
	if err != nil {
		p.Fatal(err)
	}
	u.User = role
	return u.String()
}

// doctor runs it and returns the codes that it found beyond known, sorted.
func (p *patient) doctor(known ...string) (found []string, report doctorReport, code int) {
	p.Helper()
	got := relay(p.T, p.environ(p.as(p.role)), "doctor --json", p.flags...)
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
		p.Fatalf("%v: %+v", err, got)
	}
	if strings.Contains(got.stdout+got.stderr, "secret-of-the-role") {
		p.Errorf("a password was printed: %+v", got)
	}
	for _, check := range report.Checks {
		if check.Status != checkOK {
			p.Logf("%-7s %-22s %s  -> %s", check.Status, check.Check, check.Text, check.Fix)
		}
		switch {
		case check.Code == nil || slices.Contains(known, *check.Code):
		case check.Status == checkFail:
			found = append(found, "!"+*check.Code)
		default:
			found = append(found, *check.Code)
		}
	}
	slices.Sort(found)
	return slices.Compact(found), report, got.code
}

// diagnose checks that doctor names the broken thing and nothing else, and that the runbook knows it.
func (p *patient) diagnose(a ailment, known []string) {
	p.Helper()
	want := strings.Fields(a.want)
	slices.Sort(want)
	if !strings.Contains(a.want, "publication_maybe_younger") {
		known = append(slices.Clone(known), "publication_maybe_younger") // a neighbour's transaction can keep it open
	}
	found, report, code := p.doctor(known...)
	if !slices.Equal(found, want) {
		p.Errorf("found %q, want %q", found, want)
	}
	broken := slices.ContainsFunc(want, func(code string) bool { return code[0] == '!' })
	wantCode, wantVerdict := exitOK, verdictOK
	if broken {
		wantCode, wantVerdict = exitVerdict, verdictBroken
	}
	if slices.Contains(want, "!"+codePostgresUnreachable) {
		wantCode = exitFailed
	}
	if code != wantCode || report.Verdict != wantVerdict {
		p.Errorf("exit %d, verdict %s, want %d, %s", code, report.Verdict, wantCode, wantVerdict)
	}
	runbook, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		p.Fatal(err)
	}
	for _, code := range want {
		if !strings.Contains(string(runbook), "`"+strings.TrimPrefix(code, "!")+"`") {
			p.Errorf("docs/runbook.md says nothing of %s", code)
		}
	}
}

func TestDoctorUsage(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"abc", "-1h", "0s", "7"} {
		if got := relay(t, nowhere, "doctor --retention", value); got.code != exitUsage || !strings.Contains(got.stderr, "--retention") || got.stdout != "" {
			t.Errorf("--retention %s: %+v", value, got)
		}
	}
	if got := relay(t, nil, "doctor --help"); got.code != exitOK || !strings.Contains(got.stdout, "$RELAY_RETENTION") {
		t.Errorf("help: %+v", got)
	}
}
