package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// errBalance says that the balance is not what relay promises. The balance itself has been told.
var errBalance = errors.New("the balance is not right")

// balance is how it ended. Its keys are what --json prints.
type balance struct {
	Committed int     `json:"committed"` // events whose transaction committed
	Stored    int     `json:"stored"`    // messages in the stream
	Delivered int     `json:"delivered"` // messages handed to the consumer
	Effects   int     `json:"effects"`   // shipments that the consumer made
	Lost      int     `json:"lost"`      // committed and not in the stream
	Doubled   int     `json:"doubled"`   // messages of an event that is in the stream before them
	Reordered int     `json:"reordered"` // messages behind one that committed later
	Seconds   float64 `json:"seconds"`

	phantoms  int        // messages of no committed event
	shipments difference // of the shipments from the orders
	overtook  int        // events that were written before, and committed after, another one
	sold      int64      // cents of the orders
	shipped   int64      // cents of the shipments
	dead      int        // events that the consumer gave up
}

// wrong says what is not as promised, "" if all is.
func (b *balance) wrong() string {
	var all []string
	for _, w := range []struct {
		wrong bool
		text  string
	}{
		{b.Lost > 0, things(b.Lost, "event") + " lost"},
		{b.Doubled > 0, things(b.Doubled, "event") + " doubled"},
		{b.Reordered > 0, things(b.Reordered, "event") + " out of order"},
		{b.phantoms > 0, things(b.phantoms, "message") + " in the stream that never committed"},
		{b.Effects != b.Committed, things(b.Effects, "effect") + " of " + things(b.Committed, "event")},
		{b.shipments != difference{}, fmt.Sprintf("the shipments differ from the orders (%d missing, %d twice, %d of nothing)",
			b.shipments.lost, b.shipments.doubled, b.shipments.phantoms)},
		{b.sold != b.shipped, "sold for " + money(b.sold) + ", shipped for " + money(b.shipped)},
		{b.dead > 0, things(b.dead, "event") + " given up by the consumer"},
	} {
		if w.wrong {
			all = append(all, w.text)
		}
	}
	return strings.Join(all, ", ")
}

// difference is how a sequence of ids differs from what it should be.
type difference struct{ lost, doubled, reordered, phantoms int }

// compare holds what came against what should have come. Only the first of several equal ids counts for the order.
func compare(want, got []string) difference {
	place := make(map[string]int, len(want))
	for i, id := range want {
		place[id] = i
	}
	var d difference
	seen, last := make(map[string]bool, len(got)), -1
	for _, id := range got {
		at, known := place[id]
		switch {
		case !known:
			d.phantoms++
		case seen[id]:
			d.doubled++
		case at < last:
			d.reordered++
		default:
			last = at
		}
		if known {
			seen[id] = true
		}
	}
	d.lost = len(want) - len(seen)
	return d
}

// takeBalance compares everything with the record.
func (d *demo) takeBalance(ctx context.Context) (*balance, error) {
	d.story.now("reading everything back")
	record, err := d.trustedRecord(ctx)
	if err != nil {
		return nil, err
	}
	stream, err := d.world.readStream(ctx)
	if err != nil {
		return nil, err
	}
	shipments, err := d.world.column(ctx, "SELECT order_id::text FROM shipments ORDER BY n")
	if err != nil {
		return nil, fmt.Errorf("read the shipments: %w", err)
	}
	delivered, _, err := d.consumer.state(ctx)
	if err != nil {
		return nil, err
	}
	diff := compare(record, stream)
	b := &balance{
		Committed: len(record), Stored: len(stream), Delivered: delivered, Effects: len(shipments),
		Lost: diff.lost, Doubled: diff.doubled, Reordered: diff.reordered, phantoms: diff.phantoms,
		shipments: compare(d.orders.committed, shipments), overtook: overtaken(record), Seconds: d.story.seconds(),
	}
	b.shipments.reordered = 0 // orders are shipped at the same time: only the events of one have an order
	err = d.world.admin.QueryRow(ctx, `SELECT (SELECT coalesce(sum(cents), 0)::bigint FROM orders), (SELECT coalesce(sum(cents), 0)::bigint FROM shipments),
		(SELECT count(*) FROM inbox_dead)`).Scan(&b.sold, &b.shipped, &b.dead)
	if err != nil {
		return nil, fmt.Errorf("add up the money: %w", err)
	}
	return b, nil
}

// trustedRecord returns the record after holding it against what the writers know and what the table has.
func (d *demo) trustedRecord(ctx context.Context) ([]string, error) {
	record, err := d.world.record(ctx)
	if err != nil {
		return nil, err
	}
	table, err := d.world.column(ctx, "SELECT id::text FROM outbox")
	if err != nil {
		return nil, fmt.Errorf("read the outbox: %w", err)
	}
	orders, err := d.world.column(ctx, "SELECT aggregate_id FROM outbox")
	if err != nil {
		return nil, fmt.Errorf("read the outbox: %w", err)
	}
	for _, c := range []struct {
		name      string
		one, both []string
	}{{"the outbox table", record, table}, {"the writers", d.orders.committed, orders}} {
		if !slices.Equal(slices.Sorted(slices.Values(c.one)), slices.Sorted(slices.Values(c.both))) {
			return nil, fmt.Errorf("the record of the commits cannot be trusted: it has %d events, %s %d", len(record), c.name, len(c.both))
		}
	}
	return record, nil
}

// overtaken counts the events that were written before another one and committed after it: ids of version 7 sort by time.
func overtaken(record []string) int {
	n, latest := 0, ""
	for _, id := range record {
		if id < latest {
			n++
		}
		latest = max(latest, id)
	}
	return n
}

// tell shows the balance to a person.
func (b *balance) tell(s *story, o *orders) {
	row := func(name string, n int, text string, args ...any) {
		s.line(strings.TrimRight(fmt.Sprintf("  %-10s %9s   ", name, count(n))+fmt.Sprintf(text, args...), " "))
	}
	bad := func(name string, n int, text string) {
		colour := green
		if n > 0 {
			colour = red
		}
		s.line(s.paint(colour, fmt.Sprintf("  %-10s %9s", name, count(n))) + "   " + text)
	}
	s.chapter("The balance")
	row("committed", b.Committed, "events, in %s; %s rolled back", things(o.commits, "transaction"), things(o.rolledBack, "more event")+were(o.rolledBack))
	row("stored", b.Stored, "messages in the stream")
	row("delivered", b.Delivered, "messages to the shipping service, %s again", count(b.Delivered-b.Stored))
	row("effects", b.Effects, "orders shipped, for %s; sold for %s", money(b.shipped), money(b.sold))
	bad("lost", b.Lost, "committed, and not in the stream")
	bad("doubled", b.Doubled, "in the stream more than once")
	bad("reordered", b.Reordered, "in the stream behind an event that committed later")
	s.line("")
	s.line("  Compared: the whole stream, id by id, with a second replication slot on the table that PostgreSQL kept")
	s.line("  since before the first order and that no relay knows. It has every commit, in the order of the commits.")
	if b.overtook > 0 {
		s.line(fmt.Sprintf("  %s committed after one that was written later: sorted by id or by time they would be in the wrong place.",
			things(b.overtook, "event")))
	}
	s.line("")
	if wrong := b.wrong(); wrong != "" {
		s.line(s.paint(red, fmt.Sprintf("  NOT as promised: %s (%.1f s)", wrong, b.Seconds)))
		return
	}
	s.line(s.paint(green, fmt.Sprintf("  Nothing lost, nothing doubled, nothing reordered, every order shipped once (%.1f s)", b.Seconds)))
}

func were(n int) string {
	if n == 1 {
		return " was"
	}
	return " were"
}

func money(cents int64) string { return fmt.Sprintf("%s.%02d", count(cents/100), cents%100) }

func (b *balance) printJSON(w io.Writer) error {
	line, err := json.Marshal(b)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", line)
	return err
}
