package app

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/urfave/cli/v2"

	"github.com/seed-1cfd9858/relay/outbox"
	"github.com/seed-1cfd9858/relay/publisher"
	"github.com/seed-1cfd9858/relay/slot"
)

// group is a set of shared settings. Every command accepts all of them, so that one set of flags or variables fits all
// commands; it shows and checks only those that it needs.
type group int

const (
	groupPostgres group = 1 << iota // database-url
	groupTable                      // table
	groupSlot                       // slot, publication
	groupNATS                       // nats-*, js-domain
	groupStream                     // stream, subject
	groupOutput                     // json
	groupLog                        // log-level, log-format
)

const (
	categoryPostgres = "PostgreSQL:"
	categoryNATS     = "NATS:"
	categoryOutput   = "Output:"
)

// sharedSettings are the settings that more than one command has.
type sharedSettings struct {
	databaseURL, slot, publication, table *setting

	natsURL, natsCreds, natsNkey, natsUser, natsPassword, natsToken, natsContext *setting
	natsCA, natsCert, natsKey, jsDomain                                          *setting

	stream, subject *setting

	json, logLevel, logFormat *setting
}

func newSharedSettings() *sharedSettings {
	pg := func(name, def, help string) *setting {
		return &setting{name: name, def: def, help: help, env: []string{envName(name)}, category: categoryPostgres}
	}
	nats := func(name, env, def, help string) *setting {
		return &setting{name: name, def: def, help: help, env: []string{env}, category: categoryNATS, optional: true}
	}
	output := func(name, def, help string) *setting {
		return &setting{name: name, def: def, help: help, env: []string{envName(name)}, category: categoryOutput}
	}
	s := &sharedSettings{
		databaseURL: pg("database-url", "", "`URL` or key=value string of the database; what it leaves out comes from libpq's PG* variables"),
		slot:        pg("slot", slot.DefaultSlot, "`name` of the replication slot"),
		publication: pg("publication", slot.DefaultPublication, "`name` of the publication, as it is (not folded to lower case)"),
		table:       pg("table", outbox.DefaultTable, "`name` of the outbox table, as in SQL"),

		natsURL:      nats("nats-url", "NATS_URL", publisher.DefaultURL, "`URL` of the NATS server, or several with commas between"),
		natsCreds:    nats("nats-creds", "NATS_CREDS", "", "credentials `file`"),
		natsNkey:     nats("nats-nkey", "NATS_NKEY", "", "`file` with an nkey seed"),
		natsUser:     nats("nats-user", "NATS_USER", "", "user `name`"),
		natsPassword: nats("nats-password", "NATS_PASSWORD", "", "`password` (better in the environment than on the command line)"),
		natsToken:    nats("nats-token", "NATS_TOKEN", "", "`token` (better in the environment than on the command line)"),
		natsContext:  nats("nats-context", "NATS_CONTEXT", "", "`name` of a context of the nats CLI; flags and variables win over it"),
		natsCA:       nats("nats-tls-ca", "NATS_CA", "", "`file` with the authorities to trust"),
		natsCert:     nats("nats-tls-cert", "NATS_CERT", "", "`file` with the client's certificate"),
		natsKey:      nats("nats-tls-key", "NATS_KEY", "", "`file` with the client's key"),
		jsDomain:     nats("js-domain", envName("js-domain"), "", "`name` of the JetStream domain"),

		stream:  nats("stream", envName("stream"), "OUTBOX", "`name` of the stream"),
		subject: nats("subject", envName("subject"), outbox.DefaultTemplate, "`template` of the subjects, with columns in braces"),

		json:      output("json", "", "answer in JSON"),
		logLevel:  output("log-level", "info", "least `level` that is logged: debug, info, warn or error"),
		logFormat: output("log-format", "text", "`format` of the log on stderr: text or json"),
	}
	s.databaseURL.env = append(s.databaseURL.env, "DATABASE_URL")
	s.databaseURL.optional, s.databaseURL.secret = true, true
	s.natsURL.secret, s.natsPassword.secret, s.natsToken.secret = true, true, true
	s.natsURL.optional, s.stream.optional, s.subject.optional = false, false, false
	s.json.bool = true
	return s
}

// envName returns the name of a flag's variable: RELAY_DATABASE_URL for database-url.
func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func (s *sharedSettings) groups() []struct {
	group    group
	settings []*setting
} {
	return []struct {
		group    group
		settings []*setting
	}{
		{groupPostgres, []*setting{s.databaseURL}},
		{groupTable, []*setting{s.table}},
		{groupSlot, []*setting{s.slot, s.publication}},
		{groupNATS, []*setting{
			s.natsURL, s.natsCreds, s.natsNkey, s.natsUser, s.natsPassword, s.natsToken, s.natsContext,
			s.natsCA, s.natsCert, s.natsKey, s.jsDomain,
		}},
		{groupStream, []*setting{s.stream, s.subject}},
		{groupOutput, []*setting{s.json}},
		{groupLog, []*setting{s.logLevel, s.logFormat}},
	}
}

// flags returns the flags of all shared settings; those outside the groups are accepted but not shown.
func (s *sharedSettings) flags(shown group) []cli.Flag {
	var flags []cli.Flag
	for _, g := range s.groups() {
		for _, set := range g.settings {
			flags = append(flags, &settingFlag{setting: set, hidden: shown&g.group == 0})
		}
	}
	return flags
}

func (s *sharedSettings) envNames() []string {
	var names []string
	for _, g := range s.groups() {
		for _, set := range g.settings {
			names = append(names, set.env...)
		}
	}
	return names
}

// common is what the shared settings say. Fields outside the groups that were asked for are zero.
type common struct {
	database *pgx.ConnConfig // both kinds of connection are made from it
	// databaseGiven: a flag or variable of relay's own says where the database is.
	databaseGiven bool

	slot    slot.Config
	nats    publisher.ConnConfig
	stream  string
	subject outbox.Template
	json    bool
	log     *slog.Logger
}

// read parses the settings of the groups.
func (s *sharedSettings) read(r *reader, groups group) common {
	var c common
	if groups&groupPostgres != 0 {
		c.database = s.readDatabase(r)
		_, c.databaseGiven = r.raw(s.databaseURL)
	}
	if groups&groupTable != 0 {
		c.slot.Table = s.readTable(r)
	}
	if groups&groupSlot != 0 {
		c.slot.Slot, c.slot.Publication = s.readName(r, s.slot), s.readName(r, s.publication)
	}
	if groups&groupNATS != 0 {
		c.nats = s.readNATS(r)
	}
	if groups&groupStream != 0 {
		c.stream, c.subject = s.readStream(r), s.readSubject(r)
	}
	if groups&groupOutput != 0 {
		c.json = r.flag(s.json)
	}
	return c
}

func (s *sharedSettings) readTable(r *reader) outbox.Table {
	text := r.text(s.table)
	table, err := outbox.ParseTable(text)
	if err != nil {
		r.wrong(s.table, text, outbox.ErrTable.Error())
	}
	return table
}

// readName checks one of the two names alone, so that the complaint has the right key.
func (s *sharedSettings) readName(r *reader, set *setting) string {
	name := r.text(set)
	probe := slot.Config{Slot: slot.DefaultSlot, Publication: slot.DefaultPublication, Table: outbox.Table{Schema: "s", Name: "t"}}
	want := "want 1 to 63 bytes"
	if set == s.slot {
		probe.Slot, want = name, "want [a-z0-9_]{1,63}, PostgreSQL's rule for slot names"
	} else {
		probe.Publication = name
	}
	if probe.Validate() != nil {
		r.wrong(set, name, want)
	}
	return name
}

func (s *sharedSettings) readStream(r *reader) string {
	name := r.text(s.stream)
	if strings.ContainsAny(name, " \t\r\n.*>/\\") || len(name) > 255 {
		r.wrong(s.stream, name, "want a name without blanks, dots, wildcards and slashes, of 255 bytes at most")
	}
	return name
}

func (s *sharedSettings) readSubject(r *reader) outbox.Template {
	text := r.text(s.subject)
	template, err := outbox.ParseTemplate(text)
	if err != nil {
		r.wrong(s.subject, text, strings.TrimPrefix(err.Error(), fmt.Sprintf("subject template %q: ", text)))
	}
	return template
}
