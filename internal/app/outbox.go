package app

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/urfave/cli/v2"

	"github.com/seed-1cfd9858/relay/inbox"
	"github.com/seed-1cfd9858/relay/outbox"
)

func (a *app) outboxCommand() *cli.Command {
	payload := &setting{
		name: "payload-type", def: outbox.DefaultPayloadType, env: []string{envName("payload-type")},
		help: "`type` of the payload column: " + strings.Join(outbox.PayloadTypes(), ", "),
	}
	consumers := &setting{name: "inbox", env: []string{envName("inbox")}, bool: true, help: "print the consumers' table of processed events as well"}
	return a.family(
		"outbox", "the outbox table",
		a.command("create", "create the outbox table, unless it exists", groupPostgres|groupTable|groupOutput, []*setting{payload},
			func(ctx context.Context, c common) error {
				opts := outbox.DDLOptions{PayloadType: a.reader.oneOf(payload, outbox.PayloadTypes()...)}
				if err := a.checked(); err != nil {
					return err
				}
				return a.outboxCreate(ctx, c, opts)
			}),
		a.command("ddl", "print the statement that creates the outbox table; needs no connection", groupTable|groupOutput, []*setting{payload, consumers},
			func(_ context.Context, c common) error {
				opts := outbox.DDLOptions{PayloadType: a.reader.oneOf(payload, outbox.PayloadTypes()...)}
				withInbox := a.reader.flag(consumers)
				if err := a.checked(); err != nil {
					return err
				}
				return a.outboxDDL(c, opts, withInbox)
			}),
	)
}

func (a *app) outboxCreate(ctx context.Context, c common, opts outbox.DDLOptions) error {
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	var existed bool
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
		return nil
	})
	if err != nil {
		return err
	}
	if c.json {
		return printJSON(a.stdout, struct {
			Table   string `json:"table"`
			Created bool   `json:"created"`
		}{c.slot.Table.String(), !existed})
	}
	if existed {
		_, err = fmt.Fprintf(a.stdout, "table %s exists on %s and can be an outbox\n", c.slot.Table, databaseName(c.database))
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "table %s created on %s\n  next: relay slot create\n", c.slot.Table, databaseName(c.database))
	return err
}

func (a *app) outboxDDL(c common, opts outbox.DDLOptions, withInbox bool) error {
	ddl, err := outbox.DDL(c.slot.Table, opts)
	if err != nil {
		return err
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
