package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-1cfd9858/relay/outbox"
	"github.com/seed-1cfd9858/relay/replication"
)

// decodeOnly reads and decodes a backlog with the relay's own session and decoder into a window of the relay's size, and
// drops it: the drain without its publishing.
func decodeOnly(ctx context.Context, in input, m *meter) error {
	table, err := outbox.ParseTable(outbox.DefaultTable)
	if err != nil {
		return err
	}
	template, err := outbox.ParseTemplate(in.Subject)
	if err != nil {
		return err
	}
	config, err := pgx.ParseConfig(in.Database)
	if err != nil {
		return err
	}
	decoder := outbox.NewDecoder(table, template)
	session, err := replication.Open(ctx, &config.Config, replication.Config{
		Slot: in.Slot, Publication: in.Publication, Timeout: time.Hour, // nothing is confirmed here
	}, decoder)
	if err != nil {
		return err
	}
	defer session.Close(context.WithoutCancel(ctx)) //nolint:errcheck // what was read is all that counts
	const window = 8192
	events := make([]outbox.Event, window)
	var deadline time.Time
	for n := 0; n < in.Events; {
		if !session.Buffered() { // as in the pump: the clock is asked for once a read, not once a message
			deadline = time.Now().Add(time.Second)
		}
		msg, err := session.Next(deadline, &events[n%window])
		if err != nil {
			return fmt.Errorf("event %d: %w", n+1, err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if msg.Kind != replication.Event {
			continue
		}
		if n == 0 {
			m.start()
		}
		if n++; n < in.Events {
			events[n%window] = outbox.Event{}
		}
	}
	m.stop()
	return nil
}
