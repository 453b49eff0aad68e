package app

import (
	"bytes"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/seed-1cfd9858/relay/inbox"
	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// result is what one invocation left behind.
type result struct {
	code           int
	stdout, stderr string
}

// relay runs the whole program in this process. args are split at blanks; more follow as they are.
func relay(t *testing.T, environ []string, args string, more ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	all := append(append([]string{"relay"}, strings.Fields(args)...), more...)
	code := Run(t.Context(), all, &stdout, &stderr, environ)
	return result{code, stdout.String(), stderr.String()}
}

// nowhere is an environment in which a connection would fail at once, and show.
var nowhere = []string{"DATABASE_URL=postgres://u:s3cr3t@127.0.0.1:1/x?sslmode=disable", "NATS_URL=nats://u:s3cr3t@127.0.0.1:1"}

func TestC44_UsageErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args  string
		more  []string
		env   []string
		wants []string
	}{
		{args: "run extra-arg", wants: []string{`"extra-arg"`}},
		{args: "run -- extra", wants: []string{"--", `"extra"`}},
		{args: "statsu", wants: []string{`"statsu"`, "try: relay status"}},
		{args: "slot craete", wants: []string{`"slot craete"`, "try: relay slot create"}},
		{args: "slot", wants: []string{"a command is missing"}},
		{args: "", wants: []string{"a command is missing"}},
		{args: "run --statsu-interval=5s", wants: []string{"--statsu-interval"}},
		{args: "run --wndow 5", wants: []string{"--wndow", "did you mean --window?"}},
		{args: "--slto x status", wants: []string{"--slto", "did you mean --slot?"}},
		{args: "run --window abc", wants: []string{`--window "abc"`}},
		{args: "run --window 0", wants: []string{`--window "0"`}},
		{args: "run --window -5", wants: []string{`--window "-5"`}},
		{args: "run --window", wants: []string{"--window: a value is missing"}},
		{args: "run --window --stream S", wants: []string{"--window: a value is missing"}},
		{args: "run --window-bytes many", wants: []string{`--window-bytes "many"`}},
		{args: "run --ack-timeout 10", wants: []string{`--ack-timeout "10"`}},
		{args: "run --ack-timeout 0", wants: []string{`--ack-timeout "0"`}},
		{args: "run --drain-timeout -1s", wants: []string{`--drain-timeout "-1s"`}},
		{args: "run --session-timeout 10ms", wants: []string{`--session-timeout "10ms"`, "at least 1s"}},
		{args: "run --yield-after -1s", wants: []string{`--yield-after "-1s"`}},
		{args: "run --confirm-delay soon", wants: []string{`--confirm-delay "soon"`}},
		{args: "run --on-poison park", wants: []string{`--on-poison "park"`, "later version"}},
		{args: "run --on-poison skip", wants: []string{`--on-poison "skip"`}},
		{args: "run --skip-event 0/1", wants: []string{`--skip-event "0/1"`}},
		{args: "run --skip-event", more: []string{"other@1 0/1A2B 3"}, wants: []string{`"other"`, `"outbox_relay"`}},
		{args: "run --slot", more: []string{""}, wants: []string{"--slot: the value is empty"}},
		{args: "run --stream=", wants: []string{"--stream: the value is empty"}},
		{args: "run --stream a.b", wants: []string{`--stream "a.b"`}},
		{args: "run --subject", more: []string{"outbox.{topic"}, wants: []string{`--subject "outbox.{topic"`}},
		{args: "run --table a.b.c", wants: []string{`--table "a.b.c"`}},
		{args: "run --log-level loud --log-format xml", wants: []string{`--log-level "loud"`, `--log-format "xml"`}},
		{args: "run --nats-creds /does/not/exist", wants: []string{`--nats-creds "/does/not/exist"`}},
		{args: "run --nats-user u --nats-token t", wants: []string{"--nats-token", "one way to sign in"}},
		{args: "status --json=maybe", wants: []string{`--json "maybe"`}},
		{args: "status --max-lag-seconds -1", wants: []string{`--max-lag-seconds "-1"`}},
		{args: "slot create --timeout 0", wants: []string{`--timeout "0"`}},
		{args: "outbox ddl --payload-type xml", wants: []string{`--payload-type "xml"`}},
		{args: "stream create --replicas 9", wants: []string{`--replicas "9"`}},
		{args: "stream create --subject {topic}", wants: []string{`--subject "{topic}"`}},
		{args: "stream create --max-age 1m --duplicate-window 2m", wants: []string{`--duplicate-window "2m0s"`}},
		{args: "run", env: []string{"RELAY_WINDOW=abc", "RELAY_ACK_TIMEOUT=0s"}, wants: []string{`RELAY_WINDOW "abc"`, `RELAY_ACK_TIMEOUT "0s"`}},
		{args: "run", env: []string{"RELAY_SLOT="}, wants: []string{"RELAY_SLOT: the value is empty"}},
		{args: "status", env: []string{"RELAY_JSON=maybe"}, wants: []string{`RELAY_JSON "maybe"`}},
		{args: "run", env: []string{"NATS_CA=/does/not/exist"}, wants: []string{`NATS_CA "/does/not/exist"`}},
		{ // everything at once
			args: "--slot Bad run --nope=1 extra --window x --stream=", env: []string{"RELAY_TABLE=1.2.3"},
			wants: []string{`--slot "Bad"`, "--nope", `"extra"`, `--window "x"`, "--stream", `RELAY_TABLE "1.2.3"`},
		},
	} {
		got := relay(t, append(slices.Clone(nowhere), c.env...), c.args, c.more...)
		if got.code != exitUsage || got.stdout != "" {
			t.Errorf("relay %s %q: exit %d, stdout %q, stderr:\n%s", c.args, c.more, got.code, got.stdout, got.stderr)
		}
		for _, want := range c.wants {
			if !strings.Contains(got.stderr, want) {
				t.Errorf("relay %s %q: stderr lacks %q:\n%s", c.args, c.more, want, got.stderr)
			}
		}
		if strings.Contains(got.stderr, "127.0.0.1:1") {
			t.Errorf("relay %s tried to connect:\n%s", c.args, got.stderr)
		}
	}
}

func TestC44_UnknownVariablesAreWarnedOf(t *testing.T) {
	t.Parallel()
	got := relay(t, []string{
		"RELAY_SOLT=x", "RELAY_NATS_URL=nats://x", "RELAY_ACK_TIMOUT=1s", "RELAY_ZZZZZZZZZZZZZZ=1", "RELAY_SLOT=s",
		"RELAY_PORT=tcp://10.0.0.1:80", "RELAY_SERVICE_HOST=10.0.0.1", "RELAY_SERVICE_PORT=80", "RELAY_SERVICE_PORT_METRICS=9464",
		"RELAY_PORT_5432_TCP=tcp://10.0.0.1:5432", "RELAY_PORT_5432_TCP_ADDR=10.0.0.1", "RELAY_METRICS_SERVICE_HOST=10.0.0.1",
		"RELAY_SANDBOX_POSTGRES=/x", "RELAY_TEST_MAJORS=14", "RELAYED=1",
	}, "version")
	if got.code != exitOK || !strings.HasPrefix(got.stdout, "relay ") {
		t.Fatalf("%+v", got)
	}
	for _, want := range []string{
		"name=RELAY_SOLT did_you_mean=RELAY_SLOT", "name=RELAY_NATS_URL did_you_mean=NATS_URL",
		"name=RELAY_ACK_TIMOUT did_you_mean=RELAY_ACK_TIMEOUT", "name=RELAY_ZZZZZZZZZZZZZZ runbook=docs/runbook.md#exit-2\n",
	} {
		if !strings.Contains(got.stderr, want) {
			t.Errorf("stderr lacks %q:\n%s", want, got.stderr)
		}
	}
	if n := strings.Count(got.stderr, "\n"); n != 4 {
		t.Errorf("%d warnings:\n%s", n, got.stderr)
	}
}

func TestFlagsWinOverVariablesAnywhere(t *testing.T) {
	t.Parallel()
	for _, args := range []string{
		"--table a.flag outbox ddl", "outbox --table a.flag ddl", "outbox ddl --table a.flag", "outbox ddl --table=a.flag",
		"--table a.other outbox ddl -table a.flag",
	} {
		got := relay(t, []string{"RELAY_TABLE=a.variable"}, args)
		if got.code != exitOK || !strings.Contains(got.stdout, `"a"."flag"`) {
			t.Errorf("relay %s: %+v", args, got)
		}
	}
	if got := relay(t, []string{"RELAY_TABLE=a.variable"}, "outbox ddl --json"); !strings.Contains(got.stdout, `\"variable\"`) {
		t.Errorf("the variable was not read: %+v", got)
	}
	for args, want := range map[string]bool{"outbox ddl": false, "outbox ddl --inbox": true} {
		if got := relay(t, nil, args); got.code != exitOK || strings.Contains(got.stdout, inbox.DDL()) != want {
			t.Errorf("relay %s: %+v", args, got)
		}
	}
}

func TestC50_SlotNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"my-slot", "MySlot", strings.Repeat("a", 64), "", "x LOGICAL test_decoding --", "a;b", "ä"} {
		for _, args := range []string{"slot create", "slot drop", "run", "status"} {
			got := relay(t, nowhere, args, "--slot", name)
			if got.code != exitUsage || got.stdout != "" || !strings.Contains(got.stderr, "--slot") || strings.Contains(got.stderr, "connect") {
				t.Errorf("relay %s --slot %q: %+v", args, name, got)
			}
			if name != "" && !strings.Contains(got.stderr, "[a-z0-9_]{1,63}") {
				t.Errorf("relay %s --slot %q does not name the pattern: %s", args, name, got.stderr)
			}
		}
	}
}

func TestC35_SecretsAreNeverPrinted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code         int
		postgres     string
		nats, secret string
	}{
		{code: exitUsage, postgres: "postgres://u:p@s:s/w?r#d%25&'x@h/db", secret: "p@s:s"},
		{code: exitUsage, postgres: "postgres://u:hunter2/x@h:5432/db", secret: "hunter2"},
		{code: exitUsage, postgres: "postgres://u:hunter2%zz@h/db", secret: "hunter2"},
		{code: exitUsage, postgres: "mysql://u:hunter2@h/db", secret: "hunter2"},
		{code: exitUsage, postgres: "host=h password='hunter2", secret: "hunter2"},
		{code: exitUsage, postgres: "u:hunter2@h/db", secret: "hunter2"},
		{code: exitUsage, postgres: "postgres://u:hunter2@h/db?sslmode=hmm", secret: "hunter2"},
		{code: exitUsage, nats: "nats://u:hunter2/x@h:4222", secret: "hunter2"},
		{code: exitUsage, nats: "nats://u:hunter2@h:port", secret: "hunter2"},
		{code: exitUsage, nats: "http://u:hunter2@h", secret: "hunter2"},
		{code: exitFailed, postgres: "postgres://u:hunter2@127.0.0.1:1/db", secret: "hunter2"},
		{code: exitFailed, postgres: "host=127.0.0.1 port=1 user=u password=hunter2", secret: "hunter2"},
		{code: exitFailed, nats: "nats://u:hunter2@127.0.0.1:1", secret: "hunter2"},
	} {
		command := "slot list"
		if c.nats != "" {
			command = "stream create"
		}
		flags := []string{"--database-url", c.postgres}
		env := []string{"DATABASE_URL=" + c.postgres}
		if c.nats != "" {
			flags, env = []string{"--nats-url", c.nats}, []string{"NATS_URL=" + c.nats}
		}
		for _, got := range []result{relay(t, nil, command, flags...), relay(t, env, command), relay(t, env, command+" --log-level debug --json")} {
			if got.code != c.code || got.stdout != "" || strings.Contains(got.stderr, c.secret) {
				t.Errorf("%s%s: %+v", c.postgres, c.nats, got)
			}
		}
	}
	if got := relay(t, nil, "status", "postgres://u:hunter2@h/db"); got.code != exitUsage || strings.Contains(got.stderr, "hunter2") {
		t.Errorf("a URL as an argument: %+v", got)
	}
	got := relay(t, []string{"NATS_URL=nats://u:hunter2@127.0.0.1:1"}, "status --json --database-url postgres://u:hunter2@127.0.0.1:1/x")
	if got.code != exitFailed || strings.Contains(got.stdout+got.stderr, "hunter2") {
		t.Errorf("status: %+v", got)
	}
}

// TestC35_PasswordsOfAnyKind signs in with a password of awkward characters in every form that a URL may have.
func TestC35_PasswordsOfAnyKind(t *testing.T) {
	t.Parallel()
	base, err := pgx.ParseConfig(sandbox.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.ConnectConfig(t.Context(), base)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	role := sandbox.Name(t)
	if _, err := conn.Exec(t.Context(), `CREATE ROLE `+role+` LOGIN PASSWORD 'p@s:s/w?r#d%25&''x'`); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = conn.Exec(t.Context(), `DROP ROLE `+role) }()
	host, port, _ := net.SplitHostPort(sandbox.PG(t).Addr())
	for _, url := range []string{
		"postgres://" + role + ":p%40s%3As%2Fw%3Fr%23d%2525%26'x@" + host + ":" + port + "/" + base.Database + "?sslmode=disable",
		"host=" + host + " port=" + port + " user=" + role + ` password='p@s:s/w?r#d%25&\'x' sslmode=disable dbname=` + base.Database,
		"postgres:///" + base.Database + "?sslmode=disable&host=" + host + "&port=" + port + "&user=" + role + "&password=p%40s%3As%2Fw%3Fr%23d%2525%26'x",
	} {
		if got := relay(t, []string{"RELAY_DATABASE_URL=" + url}, "slot list"); got.code != exitOK {
			t.Errorf("%s: %+v", url, got)
		}
	}
	got := relay(t, nil, "slot list --database-url", "postgres://"+role+":wrong-hunter2@"+host+":"+port+"/"+base.Database+"?sslmode=disable")
	if got.code != exitFailed || !strings.Contains(got.stderr, "28P01") || strings.Contains(got.stderr, "hunter2") {
		t.Errorf("a wrong password: %+v", got)
	}
}

// TestC42_Pooler meets a server that refuses replication as poolers do.
func TestC42_Pooler(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	listener, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			backend := pgproto3.NewBackend(conn, conn)
			if _, err := backend.ReceiveStartupMessage(); err == nil {
				backend.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: replication"})
				_ = backend.Flush()
			}
			_ = conn.Close()
		}
	}()
	defer func() { _ = listener.Close(); <-done }()
	url := "postgres://u@" + listener.Addr().String() + "/x?sslmode=disable"
	for _, args := range []string{"slot create", "slot list", "status"} {
		got := relay(t, nowhere, args, "--database-url", url)
		if all := got.stdout + got.stderr; got.code != exitFailed || !strings.Contains(all, "connect directly to PostgreSQL") {
			t.Errorf("relay %s: %+v", args, got)
		}
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--help": "slot create", "help": "slot create", "help run": "--skip-event", "run --help": "$RELAY_WINDOW_BYTES",
		"slot --help": "drop", "slot create -h": "$DATABASE_URL", "run --window x --help": "--window",
	} {
		if got := relay(t, nil, args); got.code != exitOK || !strings.Contains(got.stdout, want) || got.stderr != "" {
			t.Errorf("relay %s: %+v", args, got)
		}
	}
	if got := relay(t, nil, "sttaus --help"); got.code != exitUsage {
		t.Errorf("help of an unknown command: %+v", got)
	}
}
