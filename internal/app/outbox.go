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

	"github.com/seed-1cfd9858/relay/inbox"
	"github.com/seed-1cfd9858/relay/outbox"
	"github.com/seed-1cfd9858/relay/retention"
)

func (a *app) outboxCommand() *cli.Command {
	payload := &setting{
		name: "payload-type", def: outbox.DefaultPayloadType, env: []string{envName("payload-type")},
		help: "`type` of the payload column: " + strings.Join(outbox.PayloadTypes(), ", "),
	}
	partition := &setting{
		name: "partition-by", env: []string{envName("partition-by")}, optional: true,
		help: "`day`: a partition for each day of created_at, so that old rows go at once; then only the writer sees to it that an id is used once",
	}
	consumers := &setting{name: "inbox", env: []string{envName("inbox")}, bool: true, help: "print the consumers' table of processed events as well"}
	return a.family(
		"outbox", "the outbox table",
		a.command("create", "create the outbox table, unless it exists; and the partitions of the days ahead", groupPostgres|groupTable|groupOutput,
			[]*setting{payload, partition}, func(ctx context.Context, c common) error {
				opts := a.ddlOptions(payload, partition)
				if err := a.checked(); err != nil {
					return err
				}
				return a.outboxCreate(ctx, c, opts)
			}),
		a.command("ddl", "print the statement that creates the outbox table; needs no connection", groupTable|groupOutput,
			[]*setting{payload, partition, consumers}, func(_ context.Context, c common) error {
				opts := a.ddlOptions(payload, partition)
				withInbox := a.reader.flag(consumers)
				if err := a.checked(); err != nil {
					return err
				}
				return a.outboxDDL(c, opts, withInbox)
			}),
		a.pruneCommand(),
	)
}

func (a *app) ddlOptions(payload, partition *setting) outbox.DDLOptions {
	opts := outbox.DDLOptions{PayloadType: a.reader.oneOf(payload, outbox.PayloadTypes()...)}
	switch by := a.reader.text(partition); by {
	case "":
	case "day":
		opts.PartitionByDay = true
	default:
		a.reader.wrong(partition, by, "want day")
	}
	return opts
}

func (a *app) outboxCreate(ctx context.Context, c common, opts outbox.DDLOptions) error {
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	var existed bool
	var partitions []string
	err := withPostgres(ctx, c, func(ctx context.Context, conn *pgx.Conn) (err error) {
		existed, err = outbox.Create(ctx, conn, c.slot.Table, opts)
		if errors.Is(err, outbox.ErrNotOutbox) {
			return failed(err, "choose another name with --table, or compare with: relay outbox ddl")
		}
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == "3F000" {
			return failed(fmt.Errorf("the schema of table %s does not exist on %s", c.slot.Table, databaseName(c.database)),
				"CREATE SCHEMA "+pgx.Identifier{c.slot.Table.Schema}.Sanitize()+";")
		}
		if err != nil {
			return postgresError(fmt.Sprintf("cannot create table %s on %s", c.slot.Table, databaseName(c.database)), err)
		}
		made, partitioned, err := retention.KeepAhead(ctx, conn, c.slot.Table, time.Now())
		switch {
		case err != nil:
			return postgresError(fmt.Sprintf("cannot make the partitions of table %s on %s", c.slot.Table, databaseName(c.database)), err)
		case opts.PartitionByDay && !partitioned:
			return failed(fmt.Errorf("table %s exists on %s and is not partitioned by created_at", c.slot.Table, databaseName(c.database)),
				"choose another name with --table, or leave --partition-by out")
		}
		partitions = made
		return nil
	})
	if err != nil {
		return err
	}
	if c.json {
		return printJSON(a.stdout, struct {
			Table      string   `json:"table"`
			Created    bool     `json:"created"`
			Partitions []string `json:"partitions"`
		}{c.slot.Table.String(), !existed, append([]string{}, partitions...)})
	}
	if existed {
		_, err = fmt.Fprintf(a.stdout, "table %s exists on %s and can be an outbox\n%s", c.slot.Table, databaseName(c.database), partitionsMade(partitions))
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "table %s created on %s\n%s  next: relay slot create\n", c.slot.Table, databaseName(c.database), partitionsMade(partitions))
	return err
}

func partitionsMade(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("  %s made, %s to %s; a row of another day is refused, so let this command, or relay run --retention, run each day\n",
		plural(len(names), "partition", "partitions"), names[0], names[len(names)-1])
}

func (a *app) outboxDDL(c common, opts outbox.DDLOptions, withInbox bool) error {
	ddl, err := outbox.DDL(c.slot.Table, opts)
	if err != nil {
		return err
	}
	if opts.PartitionByDay {
		for day := range retention.AheadDays + 1 {
			statements, err := outbox.PartitionDDL(c.slot.Table, time.Now().AddDate(0, 0, day))
			if err != nil {
				return failed(err, "choose a shorter name with --table")
			}
			ddl += strings.Join(statements, ";\n") + ";\n"
		}
	}
	if withInbox {
		ddl += "\n" + inbox.DDL()
	}
	if c.json {
		return printJSON(a.stdout, struct {
			DDL string `json:"ddl"`
		}{ddl})
	}
	_, err = fmt.Fprint(a.stdout, ddl)
	return err
}
