package app

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/urfave/cli/v2"

	"github.com/seed-1cfd9858/relay/outbox"
	"github.com/seed-1cfd9858/relay/publisher"
	"github.com/seed-1cfd9858/relay/slot"
)

// The servers that a check is about.
const (
	onPostgres = "postgresql"
	onNATS     = "nats"
)

// How a check came out.
const (
	checkOK      = "ok"
	checkWarn    = "warn"
	checkFail    = "fail"
	checkUnknown = "unknown"
)

// doctorReport is the answer of doctor. Its keys are stable.
type doctorReport struct {
	Verdict string        `json:"verdict"` // ok, or broken if a check failed
	Checks  []doctorCheck `json:"checks"`
}

// doctorCheck is one precondition and how it came out.
type doctorCheck struct {
	Server string  `json:"server"` // postgresql or nats
	Check  string  `json:"check"`
	Status string  `json:"status"` // ok, warn, fail, or unknown if it could not be looked at
	Code   *string `json:"code"`   // of the same list as those of status; null if the status is ok or unknown
	Text   string  `json:"text"`
	Fix    string  `json:"fix"`
}

func (a *app) doctorCommand() *cli.Command {
	retention := &setting{
		name: "retention", env: []string{envName("retention")},
		help: "`time` for which rows stay in the outbox, to be held against the stream; not looked at if not given",
	}
	groups := groupPostgres | groupTable | groupSlot | groupNATS | groupStream | groupOutput
	return a.command("doctor", "check every precondition and print what mends it; changes nothing; exit code 3 when one fails", groups,
		[]*setting{retention}, func(ctx context.Context, c common) error {
			keep := a.reader.duration(retention, time.Nanosecond)
			if err := a.checked(); err != nil {
				return err
			}
			return a.doctor(ctx, c, keep)
		})
}

func (a *app) doctor(ctx context.Context, c common, retention time.Duration) error {
	report, asked := examine(ctx, c, retention)
	var err error
	if c.json {
		err = printJSON(a.stdout, report)
	} else {
		err = printDoctor(a.stdout, c, report)
	}
	switch {
	case err != nil:
		return err
	case asked != nil:
		return &exitError{code: exitFailed, err: asked, try: advice(asked), quiet: !c.json} // the text has said it
	case report.Verdict != verdictOK:
		return &exitError{code: exitVerdict, quiet: true}
	}
	return nil
}

// examine asks PostgreSQL, then NATS. The error says that PostgreSQL could not be asked; the report is valid all the same.
func examine(ctx context.Context, c common, retention time.Duration) (*doctorReport, error) {
	report := &doctorReport{Verdict: verdictOK}
	pg, asked := examinePostgres(ctx, c)
	origin := outbox.Origin{Slot: c.slot.Slot}
	if asked != nil {
		report.add(onPostgres, "connection", checkFail, codePostgresUnreachable, oneLine(asked.Error()), advice(asked))
	} else {
		report.add(onPostgres, "connection", checkOK, "", fmt.Sprintf("%s as %s", pg.Where, pg.Role), "")
		for _, check := range pg.Checks(c.slot, c.subject.Columns()) {
			report.add(onPostgres, check.Name, string(check.Level), string(check.Code), check.Text, check.Fix)
		}
		if origin.System = pg.SystemID; origin.System == "" {
			origin.System = pg.ReplicationSystemID
		}
	}
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	nats := publisher.Examine(ctx, c.nats, c.stream, c.subject, origin)
	for _, check := range nats.Checks() {
		report.addNATS(check)
	}
	if nats.ConnectErr == nil {
		report.addPayload(nats, pg, asked)
	}
	if check, ok := nats.RetentionCheck(retention); ok {
		report.addNATS(check)
	}
	return report, asked
}

func examinePostgres(ctx context.Context, c common) (e slot.Examination, err error) {
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	err = withPostgres(ctx, c, func(ctx context.Context, conn *pgx.Conn) error {
		if e, err = slot.Examine(ctx, conn, &c.database.Config, c.slot); err != nil {
			return postgresError("cannot ask PostgreSQL", err)
		}
		return nil
	})
	return e, err
}

func (r *doctorReport) add(server, check, status, code, text, fix string) {
	if status == checkFail {
		r.Verdict = verdictBroken
	}
	r.Checks = append(r.Checks, doctorCheck{Server: server, Check: check, Status: status, Code: orNil(code), Text: text, Fix: fix})
}

func (r *doctorReport) addNATS(c publisher.Check) {
	r.add(onNATS, c.Name, c.Level, c.Code, c.Text, c.Fix)
}

// addPayload brings together what the one server holds and the other takes.
func (r *doctorReport) addPayload(nats publisher.Examination, pg slot.Examination, asked error) {
	const name = "payload"
	switch sample := pg.Payload; {
	case asked != nil:
		r.add(onNATS, name, checkUnknown, "", "not checked: PostgreSQL could not be asked", "")
	case pg.PayloadErr != nil:
		r.add(onNATS, name, checkUnknown, "", "not checked: "+oneLine(slot.Reason(pg.PayloadErr)), "")
	case sample == nil:
		r.add(onNATS, name, checkUnknown, "", "not checked: there is no table with payloads that this role may read", "")
	case sample.Whole && sample.Rows == 0:
		r.addNATS(nats.PayloadCheck(0, "the table"))
	case sample.Whole:
		r.addNATS(nats.PayloadCheck(sample.LargestBytes, plural(int(sample.Rows), "row", "rows")))
	default:
		r.addNATS(nats.PayloadCheck(sample.LargestBytes, "a sample of "+plural(int(sample.Rows), "row", "rows")))
	}
}
