package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
)

const (
	recordEvery = 15 * time.Second
	recordPiece = 20_000 // changes that are read at once, and the rest of the transaction
)

// record is the order of the commits, from a slot that no relay knows. It is read in pieces, so that PostgreSQL need not keep
// the WAL of a long run. Only one goroutine at a time reads.
type record struct {
	world  *world
	all    sync.WaitGroup
	cancel context.CancelFunc

	commits []commit
	last    pglogrepl.LSN // commit LSN up to which the commits are in it
}

func (w *world) keepRecord(ctx context.Context) *record {
	ctx, cancel := context.WithCancel(ctx)
	r := &record{world: w, cancel: cancel}
	r.all.Go(func() {
		for sleep(ctx, recordEvery) {
			_, _ = r.piece(ctx) // PostgreSQL is away: there is a next time
		}
	})
	return r
}

func (r *record) stop() {
	r.cancel()
	r.all.Wait()
}

// complete reads what is left.
func (r *record) complete(ctx context.Context) ([]commit, error) {
	r.stop()
	for {
		changes, err := r.piece(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the record of the commits: %w", err)
		}
		if changes == 0 {
			return r.commits, nil
		}
	}
}

// trust is an error unless the outbox table has the same events.
func (r *record) trust(ctx context.Context) error {
	missing := make(map[string]bool, len(r.commits))
	for _, c := range r.commits {
		missing[c.id] = true
	}
	if len(missing) != len(r.commits) {
		return fmt.Errorf("the record of the commits cannot be trusted: of %d events %d are in it twice", len(r.commits), len(r.commits)-len(missing))
	}
	n := 0
	err := r.world.doWithin(ctx, time.Minute, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, "SELECT id::text FROM outbox")
		if err != nil {
			return err
		}
		defer rows.Close()
		for ; rows.Next(); n++ {
			var id string
			if err := rows.Scan(&id); err != nil {
				return err
			}
			delete(missing, id)
		}
		return rows.Err()
	})
	if err == nil && (n != len(r.commits) || len(missing) > 0) {
		err = fmt.Errorf("the record of the commits cannot be trusted: it has %d events, of which %d are not among the %d in the table", len(r.commits), len(missing), n)
	}
	return err
}

// piece reads a piece, then moves the slot: in this order nothing is missed. What comes again after a crash is known by its
// LSN.
func (r *record) piece(ctx context.Context) (changes int, err error) {
	err = r.world.doWithin(ctx, time.Minute, func(conn *pgx.Conn) error {
		var read []commit
		var last, end pglogrepl.LSN
		read, changes, last, end, err = peekRecord(ctx, conn, r.last)
		if err != nil || changes == 0 {
			return err
		}
		r.commits, r.last = append(r.commits, read...), max(r.last, last)
		_, err = conn.Exec(ctx, "SELECT pg_replication_slot_advance($1, $2::pg_lsn)", recordName, end.String())
		return err
	})
	return changes, err
}

// peekRecord reads what the slot holds, but for transactions up to an LSN. last and end are the commit LSN and the end of
// the last transaction.
func peekRecord(ctx context.Context, conn *pgx.Conn, after pglogrepl.LSN) (read []commit, changes int, last, end pglogrepl.LSN, err error) {
	rows, err := conn.Query(ctx, "SELECT data FROM pg_logical_slot_peek_binary_changes($1, NULL, $2, 'proto_version', '1', 'publication_names', $3)",
		recordName, recordPiece, recordName)
	if err != nil {
		return nil, 0, 0, 0, err
	}
	defer rows.Close()
	var begin *pglogrepl.BeginMessage
	var ids []string
	for rows.Next() {
		var data []byte
		if err := rows.Scan(&data); err != nil {
			return nil, 0, 0, 0, err
		}
		m, err := pglogrepl.Parse(data)
		if err != nil {
			return nil, 0, 0, 0, err
		}
		changes++
		switch m := m.(type) {
		case *pglogrepl.BeginMessage:
			begin, ids = m, nil
		case *pglogrepl.InsertMessage:
			ids = append(ids, string(m.Tuple.Columns[0].Data)) // id is the first column
		case *pglogrepl.CommitMessage:
			last, end = begin.FinalLSN, m.TransactionEndLSN
			if last <= after {
				continue // read before
			}
			for _, id := range ids {
				read = append(read, commit{id: id, end: end, at: begin.CommitTime})
			}
		}
	}
	return read, changes, last, end, rows.Err()
}
