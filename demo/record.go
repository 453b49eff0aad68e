package main

import (
	"context"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/nats-io/nats.go/jetstream"
)

// The record is a second replication slot on the outbox table, made before the first order. PostgreSQL keeps it for the demo
// alone: no relay knows of it, and no code of the relay's reads it.
const (
	recordSlot        = "demo_record"
	recordPublication = "demo_record"
)

func (w *world) makeRecord(ctx context.Context) error {
	_, err := w.admin.Exec(ctx, "CREATE PUBLICATION "+recordPublication+" FOR TABLE outbox WITH (publish = 'insert')")
	if err != nil {
		return fmt.Errorf("make the record of the commits: %w", err)
	}
	_, err = w.admin.Exec(ctx, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", recordSlot)
	if err != nil {
		return fmt.Errorf("make the record of the commits: %w", err)
	}
	return nil
}

// record returns the ids of all events that committed, in the order of their commits.
func (w *world) record(ctx context.Context) ([]string, error) {
	return w.peek(ctx, recordSlot, recordPublication)
}

// sentAgain returns the ids of the events that PostgreSQL has for the next relay. Only while no relay holds the slot.
func (w *world) sentAgain(ctx context.Context) ([]string, error) {
	return w.peek(ctx, slotName, publication)
}

// peek reads what a slot holds and leaves it there.
func (w *world) peek(ctx context.Context, slot, publication string) ([]string, error) {
	rows, err := w.admin.Query(ctx,
		"SELECT data FROM pg_logical_slot_peek_binary_changes($1, NULL, NULL, 'proto_version', '1', 'publication_names', $2)", slot, publication)
	if err != nil {
		return nil, fmt.Errorf("read slot %s: %w", slot, err)
	}
	defer rows.Close()
	var ids []string
	for rows.Next() {
		var data []byte
		if err := rows.Scan(&data); err != nil {
			return nil, fmt.Errorf("read slot %s: %w", slot, err)
		}
		message, err := pglogrepl.Parse(data)
		if err != nil {
			return nil, fmt.Errorf("read slot %s: %w", slot, err)
		}
		if insert, ok := message.(*pglogrepl.InsertMessage); ok {
			ids = append(ids, string(insert.Tuple.Columns[0].Data)) // id is the first column
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read slot %s: %w", slot, err)
	}
	return ids, nil
}

// readStream returns the ids of all messages in the stream, in its order.
func (w *world) readStream(ctx context.Context) ([]string, error) {
	n, err := w.stored(ctx)
	if err != nil || n == 0 {
		return nil, err
	}
	reader, err := w.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		return nil, fmt.Errorf("read the stream: %w", err)
	}
	messages, err := reader.Messages()
	if err != nil {
		return nil, fmt.Errorf("read the stream: %w", err)
	}
	defer messages.Stop()
	ids := make([]string, 0, n)
	for range n {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, fmt.Errorf("read the stream: %w", err)
		}
		ids = append(ids, m.Headers().Get(jetstream.MsgIDHeader))
	}
	return ids, nil
}

// column returns a query's only column.
func (w *world) column(ctx context.Context, sql string) ([]string, error) {
	rows, err := w.admin.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, rows.Err()
}
