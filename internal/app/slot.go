package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/urfave/cli/v2"

	"github.com/seed-1cfd9858/relay/slot"
)

func (a *app) slotCommand() *cli.Command {
	failover := &setting{name: "failover", env: []string{envName("failover")}, bool: true, help: "make a slot that is copied to standbys (PostgreSQL 17 and later)"}
	timeout := &setting{
		name: "timeout", def: fmt.Sprintf("%.0fs", slot.DefaultCreateTimeout.Seconds()), env: []string{envName("timeout")},
		help: "`time` to wait at most for write transactions that already run",
	}
	publication := &setting{name: "drop-publication", env: []string{envName("drop-publication")}, bool: true, help: "drop the publication too"}
	return a.family("slot", "the replication slot and its publication",
		a.command("create", "create the publication and the slot, unless they exist", groupPostgres|groupTable|groupSlot|groupOutput,
			[]*setting{failover, timeout}, func(ctx context.Context, c common) error {
				opts := slot.CreateOptions{Failover: a.reader.flag(failover), Timeout: a.reader.duration(timeout, time.Second)}
				if err := a.checked(); err != nil {
					return err
				}
				return a.slotCreate(ctx, c, opts)
			}),
		a.command("list", "list the logical slots of the server and what they hold back", groupPostgres|groupOutput, nil,
			func(ctx context.Context, c common) error {
				if err := a.checked(); err != nil {
					return err
				}
				return a.slotList(ctx, c)
			}),
		a.command("drop", "drop the slot: what it has not delivered is then only in the table", groupPostgres|groupTable|groupSlot|groupOutput,
			[]*setting{publication}, func(ctx context.Context, c common) error {
				opts := slot.DropOptions{Publication: a.reader.flag(publication)}
				if err := a.checked(); err != nil {
					return err
				}
				return a.slotDrop(ctx, c, opts)
			}))
}

func (a *app) slotCreate(ctx context.Context, c common, opts slot.CreateOptions) error {
	// An interrupted creation takes away what it made, so it must see the signal.
	ctx, stop := withSignals(ctx, exitNow)
	defer stop()
	var told string
	opts.OnWait = func(waiting []slot.Transaction) {
		texts := make([]string, len(waiting))
		for i, t := range waiting {
			texts[i] = t.String()
		}
		if text := strings.Join(texts, "; "); text != told {
			told = text
			c.log.Info("waiting for running transactions", "slot", c.slot.Slot, "transactions", text)
		}
	}
	where := databaseName(c.database)
	made, err := slot.Create(ctx, c.database.Copy(), c.slot, opts)
	if err != nil {
		if mismatch, ok := errors.AsType[*slot.MismatchError](err); ok {
			return mismatchError(mismatch)
		}
		if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
			return connectError(c, err)
		}
		return postgresError(fmt.Sprintf("cannot create slot %q on %s", c.slot.Slot, where), err)
	}
	if c.json {
		return printJSON(a.stdout, struct {
			Slot               string  `json:"slot"`
			Publication        string  `json:"publication"`
			Created            bool    `json:"created"`
			PublicationCreated bool    `json:"publication_created"`
			StartLSN           string  `json:"start_lsn"`
			EarlierRows        *int64  `json:"earlier_rows"`
			ResendSQL          *string `json:"resend_sql"`
		}{c.slot.Slot, c.slot.Publication, !made.Existed, made.PublicationCreated, made.StartLSN.String(), made.EarlierRows, orNil(made.ResendSQL)})
	}
	if made.Existed {
		_, err = fmt.Fprintf(a.stdout, "slot %q and publication %q exist on %s and fit (confirmed up to %s)\n",
			c.slot.Slot, c.slot.Publication, where, made.StartLSN)
		return err
	}
	return a.slotCreated(c, made)
}

func (a *app) slotCreated(c common, made slot.Created) error {
	b := &strings.Builder{}
	if made.PublicationCreated {
		fmt.Fprintf(b, "publication %q created for table %s\n", c.slot.Publication, c.slot.Table)
	}
	fmt.Fprintf(b, "slot %q created on %s: it delivers every event that commits from %s on\n",
		c.slot.Slot, databaseName(c.database), made.StartLSN)
	switch {
	case made.EarlierUnknown != nil:
		fmt.Fprintf(b, "  rows from before could not be counted (%s); the slot does not deliver them\n", oneLine(cause(made.EarlierUnknown).Error()))
	case made.EarlierRows != nil && *made.EarlierRows > 0:
		fmt.Fprintf(b, "  %s from before it: the slot does not deliver them. To send them too, repeat until it says 0:\n\n%s\n",
			plural(int(*made.EarlierRows), "row is", "rows are"), strings.TrimRight(made.ResendSQL, "\n"))
	}
	b.WriteString("  next: relay stream create, then relay run\n")
	_, err := fmt.Fprint(a.stdout, b.String())
	return err
}

// mismatchError shows one problem a line, each with what mends it.
func mismatchError(m *slot.MismatchError) error {
	var errs []error
	for _, p := range m.Problems {
		errs = append(errs, complaint{text: p.Text, try: p.Fix})
	}
	return failed(errors.Join(errs...), "")
}

func (a *app) slotDrop(ctx context.Context, c common, opts slot.DropOptions) error {
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	err := withPostgres(ctx, c, func(ctx context.Context, conn *pgx.Conn) error {
		return slot.Drop(ctx, conn, c.slot, opts)
	})
	if _, ours := errors.AsType[*exitError](err); err != nil && !ours {
		err = postgresError(fmt.Sprintf("cannot drop slot %q on %s", c.slot.Slot, databaseName(c.database)), err)
	}
	if err != nil {
		return err
	}
	if c.json {
		return printJSON(a.stdout, struct {
			Slot        string  `json:"slot"`
			Publication *string `json:"publication"`
		}{c.slot.Slot, map[bool]*string{true: &c.slot.Publication}[opts.Publication]})
	}
	also := ""
	if opts.Publication {
		also = fmt.Sprintf(" and publication %q", c.slot.Publication)
	}
	_, err = fmt.Fprintf(a.stdout, "slot %q%s dropped on %s\n", c.slot.Slot, also, databaseName(c.database))
	return err
}

// listedSlot is one slot of `slot list --json`.
type listedSlot struct {
	slotReport
	Plugin      string        `json:"plugin"`
	LagBytes    *int64        `json:"lag_bytes"`
	Leader      *leaderReport `json:"leader"`
	InactiveFor *float64      `json:"inactive_seconds"`
}

func (a *app) slotList(ctx context.Context, c common) error {
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	var slots []slot.Slot
	err := withPostgres(ctx, c, func(ctx context.Context, conn *pgx.Conn) (err error) {
		slots, err = slot.List(ctx, conn)
		return err
	})
	if _, ours := errors.AsType[*exitError](err); err != nil && !ours {
		err = postgresError("cannot list the slots on "+databaseName(c.database), err)
	}
	if err != nil {
		return err
	}
	if c.json {
		list := make([]listedSlot, len(slots))
		for i := range slots {
			s := &slots[i]
			list[i] = listedSlot{slotReport: *reportSlot(s), Plugin: s.Plugin, LagBytes: s.UnconfirmedBytes, Leader: reportLeader(s.Holder)}
			if s.InactiveSince != nil {
				seconds := time.Since(*s.InactiveSince).Seconds()
				list[i].InactiveFor = &seconds
			}
		}
		return printJSON(a.stdout, list)
	}
	if len(slots) == 0 {
		_, err = fmt.Fprintf(a.stdout, "no logical slots on %s\n  next: relay slot create\n", databaseName(c.database))
		return err
	}
	table := tabwriter.NewWriter(a.stdout, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(table, "SLOT\tDATABASE\tPLUGIN\tHELD BY\tCONFIRMED\tBEHIND\tWAL HELD\tWAL STATUS")
	for _, s := range slots {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Name, s.Database, s.Plugin, heldBy(s),
			textOr(s.ConfirmedFlushLSN), sizeOr(s.UnconfirmedBytes), sizeOr(s.RetainedBytes), s.WALStatus)
	}
	return table.Flush()
}

func heldBy(s slot.Slot) string {
	switch {
	case s.Holder != nil && s.Holder.Address != "":
		return fmt.Sprintf("pid %d on %s", s.Holder.PID, s.Holder.Address)
	case s.ActivePID != nil:
		return fmt.Sprintf("pid %d", *s.ActivePID)
	case s.InactiveSince != nil:
		return "nobody for " + span(time.Since(*s.InactiveSince))
	}
	return "nobody"
}
