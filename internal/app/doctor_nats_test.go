package app

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// TestDoctorNATS breaks one thing in NATS at a time. The things in PostgreSQL are one healthy patient's.
func TestDoctorNATS(t *testing.T) {
	t.Parallel()
	role := newRole(t, sandbox.PG(t), "REPLICATION")
	healthy := newPatient(t, sandbox.Database(t), role).settle()
	large := newPatient(t, healthy.database, role).settle()
	large.sql(`INSERT INTO outbox (id, topic, payload) SELECT gen_random_uuid(), 't', to_jsonb(repeat('x', n))
		FROM unnest(ARRAY[10, 1100000, 20]) n`)
	off := startNATS(t, sandbox.NATSConfig{NoJetStream: true})
	strict := startNATS(t, sandbox.NATSConfig{Configure: func(o *server.Options) { o.Accounts, o.Users = users(t) }})
	for _, c := range []struct {
		ailment
		stream func(s *jetstream.StreamConfig) // what is not as relay stream create makes it
	}{
		{ailment{"nothing", func(*patient) {}, ""}, nil},
		{ailment{"unreachable", func(p *patient) { p.env = []string{nowhere[1]} }, "!nats_unreachable"}, nil},
		{ailment{"off", func(p *patient) { p.env = []string{"NATS_URL=" + off.URL()} }, "!jetstream_off"}, nil},
		{ailment{"missing", func(p *patient) { p.stream = "NOTHING" }, "!stream_missing"}, nil},
		{ailment{"login", func(p *patient) { p.env = []string{"NATS_URL=" + strict.URL(), "NATS_USER=relay", "NATS_PASSWORD=no"} }, "!nats_unreachable"}, nil},
		{ailment{"publishing", func(p *patient) { p.signIn(strict, "mute") }, "!nats_permission"}, nil},
		{ailment{"asking", func(p *patient) { p.signIn(strict, "blind") }, "!nats_permission"}, nil},
		{ailment{"answers", func(p *patient) { p.signIn(strict, "deaf") }, "!nats_permission"}, nil},
		{ailment{"publishing in part", func(p *patient) { p.signIn(strict, "part") }, "nats_permission"}, nil},
		{ailment{"own rights", func(p *patient) { p.signIn(strict, "shy") }, ""}, nil}, // not known is not wrong
		{ailment{"storage", func(p *patient) { p.signIn(strict, "poor"); p.fill() }, "!account_storage"}, nil},

		{ailment{want: "!stream_no_ack"}, func(s *jetstream.StreamConfig) { s.NoAck = true }},
		{ailment{want: "!stream_persist_async"}, func(s *jetstream.StreamConfig) { s.PersistMode = jetstream.AsyncPersistMode }},
		{ailment{want: "!stream_counter"}, func(s *jetstream.StreamConfig) { s.AllowMsgCounter, s.Discard = true, jetstream.DiscardOld }},
		{ailment{want: "!stream_mirror"}, func(s *jetstream.StreamConfig) {
			s.Mirror, s.Subjects, s.AllowBatchPublish = &jetstream.StreamSource{Name: healthy.stream}, nil, false
		}},
		{ailment{want: "!stream_subjects"}, func(s *jetstream.StreamConfig) { s.Subjects = []string{"other." + s.Name} }},
		{ailment{want: "stream_subjects_partial"}, func(s *jetstream.StreamConfig) { s.Subjects[0] = strings.Replace(s.Subjects[0], ">", "order", 1) }},
		{ailment{want: "stream_sources"}, func(s *jetstream.StreamConfig) {
			s.Sources = []*jetstream.StreamSource{{Name: healthy.stream}}
		}},
		{ailment{want: "stream_subject_transform"}, func(s *jetstream.StreamConfig) {
			s.SubjectTransform = &jetstream.SubjectTransformConfig{Source: s.Subjects[0], Destination: "to." + s.Subjects[0]}
		}},
		{ailment{want: "stream_msg_ttl"}, func(s *jetstream.StreamConfig) { s.AllowMsgTTL = true }},
		{ailment{want: "stream_retention"}, func(s *jetstream.StreamConfig) { s.Retention = jetstream.WorkQueuePolicy }},
		{ailment{want: "stream_memory"}, func(s *jetstream.StreamConfig) { s.Storage = jetstream.MemoryStorage }},
		{ailment{want: "stream_discard_old"}, func(s *jetstream.StreamConfig) { s.Discard, s.MaxMsgs = jetstream.DiscardOld, 1000 }},
		{ailment{want: "stream_duplicate_window"}, func(s *jetstream.StreamConfig) { s.Duplicates = time.Second }},
		{ailment{want: "stream_not_batched"}, func(s *jetstream.StreamConfig) { s.AllowBatchPublish = false }},
		{ailment{want: "stream_subject_limit"}, func(s *jetstream.StreamConfig) { s.MaxMsgsPerSubject = 5 }},
		{ailment{want: "stream_max_age"}, func(s *jetstream.StreamConfig) { s.MaxAge = 10 * time.Minute }},
		{ailment{"sealed", func(p *patient) {
			s, err := p.js.Stream(p.Context(), p.stream)
			if err != nil {
				p.Fatal(err)
			}
			config := s.CachedInfo().Config
			config.Sealed = true
			if _, err := p.js.UpdateStream(p.Context(), config); err != nil {
				p.Fatal(err)
			}
		}, "!stream_sealed"}, nil},
		{ailment{"full", func(p *patient) { p.publish(3, p.own()) }, "!stream_full"}, func(s *jetstream.StreamConfig) { s.MaxMsgs = 3 }},
		{ailment{"nearly full", func(p *patient) { p.publish(19, p.own()) }, "stream_full"}, func(s *jetstream.StreamConfig) { s.MaxMsgs = 20 }},
		{ailment{"foreign", func(p *patient) { p.publish(30, p.own()); p.publish(1, "") }, "stream_foreign_messages"}, nil},
		{ailment{"another slot", func(p *patient) { p.publish(2, "other@1 0/1 0") }, "stream_foreign_messages"}, nil},
		{ailment{"own messages", func(p *patient) { p.publish(25, p.own()) }, ""}, nil},
		{ailment{"large payload", func(p *patient) { p.name = large.name }, "!payload_too_large"}, nil},
		{ailment{"large for the stream", func(p *patient) { p.name = large.name }, "!payload_too_large"}, func(s *jetstream.StreamConfig) { s.MaxMsgSize = 4096 }},
		{ailment{"retention", func(p *patient) { p.flags = append(p.flags, "--retention", "1m") }, "!retention_too_short"}, nil},
	} {
		name := c.name
		if name == "" {
			name = strings.TrimLeft(c.want, "!")
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newStream(t, healthy, c.stream)
			if c.sick != nil {
				c.sick(p)
			}
			p.diagnose(c.ailment, wellKnown)
		})
	}
}

// newStream is the healthy patient with another stream.
func newStream(t *testing.T, healthy *patient, change func(*jetstream.StreamConfig)) *patient {
	t.Helper()
	p := &patient{
		T: t, db: superuser(t, healthy.database), database: healthy.database, js: healthy.js, name: healthy.name, role: healthy.role,
		env: healthy.env, stream: strings.ToUpper(sandbox.Name(t)),
	}
	p.flags = []string{"--subject", p.stream + ".{topic}"}
	p.makeStream(change)
	return p
}

// makeStream makes the stream as relay stream create does, but for what change does.
func (p *patient) makeStream(change func(*jetstream.StreamConfig)) {
	p.Helper()
	config := jetstream.StreamConfig{
		Name: p.stream, Subjects: []string{p.stream + ".>"}, Discard: jetstream.DiscardNew, Duplicates: 2 * time.Minute,
		AllowBatchPublish: true, AllowDirect: true,
	}
	if change != nil {
		change(&config)
	}
	if _, err := p.js.CreateStream(p.Context(), config); err != nil {
		p.Fatal(err)
	}
}

func startNATS(t *testing.T, cfg sandbox.NATSConfig) *sandbox.NATS {
	t.Helper()
	n, err := sandbox.StartNATS(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// users lets several sign in with the password secret-of-the-role. Each but boss and poor lacks one right.
func users(t *testing.T) ([]*server.Account, []*server.User) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats.conf")
	config := strings.ReplaceAll(`
accounts {
  A {
    jetstream: enabled
    users: [
      {user: boss, password: PASSWORD}
      {user: mute, password: PASSWORD, permissions: {publish: {allow: ["$JS.API.>", "$SYS.REQ.USER.INFO"]}}}
      {user: part, password: PASSWORD, permissions: {publish: {deny: "*.secret"}}}
      {user: blind, password: PASSWORD, permissions: {publish: {deny: "$JS.API.STREAM.INFO.*"}}}
      {user: deaf, password: PASSWORD, permissions: {subscribe: {deny: "_INBOX.>"}}}
      {user: reader, password: PASSWORD, permissions: {publish: {allow: [
        "$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.MSG.GET.*", "$SYS.REQ.USER.INFO"]}}}
      {user: shy, password: PASSWORD, permissions: {publish: {deny: "$SYS.>"}}}
    ]
  }
  B {
    jetstream: {max_file: 64K, max_mem: 0}
    users: [{user: poor, password: PASSWORD}]
  }
}`, "PASSWORD", "secret-of-the-role")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	options, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return options.Accounts, options.Users
}

// signIn makes the relay a user of that server, where the stream is made again.
func (p *patient) signIn(n *sandbox.NATS, user string) {
	p.Helper()
	owner := "boss"
	if user == "poor" {
		owner = user
	}
	p.js = jetStream(p.T, n.URL(), nats.UserInfo(owner, "secret-of-the-role"))
	p.env = []string{"NATS_URL=" + n.URL(), "NATS_USER=" + user, "NATS_PASSWORD=secret-of-the-role"}
	p.makeStream(nil)
}

// own is the Relay-Position of a message of this relay.
func (p *patient) own() string {
	p.Helper()
	var system string
	if err := p.db.QueryRow(p.Context(), `SELECT system_identifier::text FROM pg_control_system()`).Scan(&system); err != nil {
		p.Fatal(err)
	}
	return p.name + "@" + system + " 0/1 0"
}

// publish stores messages that say they come from there; "" says nothing.
func (p *patient) publish(n int, position string) {
	p.Helper()
	for range n {
		m := nats.NewMsg(p.stream + ".x")
		m.Header["Nats-Msg-Id"] = []string{rand.Text()}
		if position != "" {
			m.Header["Relay-Position"] = []string{position}
		}
		if _, err := p.js.PublishMsg(p.Context(), m); err != nil {
			p.Fatal(err)
		}
	}
}

// fill publishes until there is no room.
func (p *patient) fill() {
	p.Helper()
	m := nats.NewMsg(p.stream + ".x")
	m.Header["Relay-Position"] = []string{p.own()}
	var err error
	for n := 0; err == nil && n < 10000; n++ {
		m.Header["Nats-Msg-Id"] = []string{rand.Text()}
		_, err = p.js.PublishMsg(p.Context(), m)
	}
	if _, full := errors.AsType[*jetstream.APIError](err); !full {
		p.Fatal(err)
	}
}
