package slot

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const listSQL = `
SELECT jsonb_build_object(
	'flush_lsn', CASE WHEN pg_is_in_recovery() THEN coalesce(pg_last_wal_replay_lsn(), pg_last_wal_receive_lsn())
		ELSE pg_current_wal_flush_lsn() END,
	'slots', (SELECT coalesce(jsonb_agg(to_jsonb(s) || jsonb_build_object('holder', (
			SELECT jsonb_build_object('pid', a.pid, 'application_name', a.application_name,
				'address', CASE WHEN a.client_addr IS NOT NULL THEN host(a.client_addr)
					WHEN a.backend_start IS NOT NULL THEN 'local' END,
				'since', a.backend_start, 'state', r.state)
			FROM pg_stat_activity a LEFT JOIN pg_stat_replication r USING (pid) WHERE a.pid = s.active_pid LIMIT 1))
		ORDER BY s.slot_name), '[]')
		FROM pg_replication_slots s WHERE s.slot_type = 'logical'))`

// List returns all logical slots of the cluster in the order of their names, with what they hold back. Any role may ask.
func List(ctx context.Context, conn *pgx.Conn) ([]Slot, error) {
	var doc []byte
	if err := conn.QueryRow(ctx, listSQL, pgx.QueryExecModeExec).Scan(&doc); err != nil {
		return nil, fmt.Errorf("list slots: %w", err)
	}
	var d struct {
		FlushLSN *jsonLSN `json:"flush_lsn"`
		Slots    []struct {
			slotDoc
			Holder *holderDoc `json:"holder"`
		} `json:"slots"`
	}
	if err := json.Unmarshal(doc, &d); err != nil {
		return nil, fmt.Errorf("list slots: %w", err)
	}
	slots := make([]Slot, len(d.Slots))
	for i, s := range d.Slots {
		slots[i] = s.slot(d.FlushLSN.lsn())
		slots[i].Holder = s.Holder.holder()
	}
	return slots, nil
}
