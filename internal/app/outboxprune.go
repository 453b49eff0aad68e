package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/urfave/cli/v2"

	"github.com/seed-1cfd9858/relay/retention"
)

func (a *app) pruneCommand() *cli.Command {
	older := &setting{name: "older-than", env: []string{envName("older-than")}, help: "`age` by created_at from which rows may go, 72h say; required"}
	dry := &setting{name: "dry-run", env: []string{envName("dry-run")}, bool: true, help: "only say what would go"}
	wait := &setting{name: "wait", def: "30s", env: []string{envName("wait")}, help: "`time` for the relay to deliver what is there"}
	return a.command("prune", "delete old events that are delivered, and no others", groupPostgres|groupTable|groupSlot|groupNATS|groupStream|groupOutput,
		[]*setting{older, dry, wait}, func(ctx context.Context, c common) error {
			cfg := retention.Config{
				Table: c.slot.Table, Slot: c.slot.Slot, Publication: c.slot.Publication,
				OlderThan: a.reader.duration(older, time.Nanosecond), DryRun: a.reader.flag(dry), Wait: a.reader.duration(wait, 0),
			}
			if cfg.OlderThan == 0 && len(a.reader.complaints) == 0 {
				a.reader.complain(complaint{key: "--older-than", text: "is required: the age from which rows may go, 72h say"})
			}
			if err := a.checked(); err != nil {
				return err
			}
			return a.prune(ctx, c, cfg)
		})
}

// pruned is the answer of prune. Its keys are stable.
type pruned struct {
	Rows       int64    `json:"rows"`
	Partitions []string `json:"partitions"`
	Busy       []string `json:"partitions_busy"`
	Earlier    int64    `json:"rows_never_sent"`
	DryRun     bool     `json:"dry_run"`
}

func (a *app) prune(ctx context.Context, c common, cfg retention.Config) error {
	if err := longEnough(ctx, c, cfg.OlderThan); err != nil {
		return err
	}
	var result retention.Result
	err := withPostgres(ctx, c, func(ctx context.Context, conn *pgx.Conn) (err error) {
		result, err = retention.Prune(ctx, conn, cfg)
		return err
	})
	if err != nil {
		return pruneError(c, err)
	}
	if c.json {
		return printJSON(a.stdout, pruned{
			Rows: result.Rows, Partitions: append([]string{}, result.Partitions...), Busy: append([]string{}, result.Busy...),
			Earlier: result.Earlier, DryRun: cfg.DryRun,
		})
	}
	_, err = fmt.Fprint(a.stdout, pruneText(c, cfg, result))
	return err
}

// longEnough refuses an age below the stream's duplicate window: within it, an event that is inserted again with its id is left
// out by JetStream, and the row is what tells an operator that it was there.
func longEnough(ctx context.Context, c common, age time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	stream, err := inspectStream(ctx, c)
	if err != nil {
		return err
	}
	if age >= stream.DuplicateWindow {
		return nil
	}
	return failed(fmt.Errorf("rows must stay for the duplicate window of stream %s, %s, not only for %s", stream.Name, span(stream.DuplicateWindow), span(age)),
		fmt.Sprintf("give an age of at least %s", stream.DuplicateWindow))
}

func pruneText(c common, cfg retention.Config, r retention.Result) string {
	did := "deleted"
	if cfg.DryRun {
		did = "would be deleted"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s older than %s %s from %s\n", plural(int(r.Rows), "row", "rows"), span(cfg.OlderThan), did, c.slot.Table)
	for _, name := range r.Partitions {
		fmt.Fprintf(&b, "  partition %s %s\n", name, strings.Replace(did, "deleted", "dropped", 1))
	}
	for _, name := range r.Busy {
		fmt.Fprintf(&b, "  partition %s stays: it has rows that are not delivered yet\n", name)
	}
	if r.Earlier > 0 {
		fmt.Fprintf(&b, "  %s stay: older than publication %s, so they were never sent; relay slot create prints the statement that sends such rows\n",
			plural(int(r.Earlier), "row", "rows"), c.slot.Publication)
	}
	return b.String()
}

func pruneError(c common, err error) error {
	const doing = "cannot prune"
	if denied, ok := errors.AsType[*pgconn.PgError](err); ok && denied.Code == "42501" {
		return failed(fmt.Errorf("%s table %s: %s", doing, c.slot.Table, denied.Message),
			"GRANT SELECT, DELETE ON "+c.slot.Table.SQL()+" TO "+pgx.Identifier{c.database.User}.Sanitize()+
				";\nor, where partitions are dropped, connect as the table's owner")
	}
	try := map[error]string{
		retention.ErrNoTable: "relay outbox create", retention.ErrNoSlot: "relay slot create", retention.ErrNoPublication: "relay slot create",
		retention.ErrNotConfirmed: "relay status", retention.ErrNoCreatedAt: "delete by hand what the application no longer needs",
	}
	for known, advice := range try {
		if errors.Is(err, known) {
			return failed(fmt.Errorf("%s: %w", doing, err), advice)
		}
	}
	return postgresError(doing, err)
}
