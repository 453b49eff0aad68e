package app

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/seed-1cfd9858/relay/slot"
)

// walLook is what status wants to know of the WAL besides the slot. What is not known is nil.
type walLook struct {
	sent    *pglogrepl.LSN // to the slot's holder; hidden from most other roles
	written *float64       // bytes a second since the last checkpoint began
}

// leastCheckpoint is how old a checkpoint must be for a rate since then to say something, in seconds.
const leastCheckpoint = 5

// lookAtWAL asks in one round trip. Some hosts take away the right to the second question: then the rate is not known.
func lookAtWAL(ctx context.Context, conn *pgx.Conn, s slot.State) walLook {
	var look walLook
	if s.InRecovery || s.Slot == nil {
		return look
	}
	pid := int32(0)
	if s.Slot.ActivePID != nil {
		pid = *s.Slot.ActivePID
	}
	sql := fmt.Sprintf(`SELECT sent_lsn FROM pg_stat_replication WHERE pid = %d;
		SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), redo_lsn), extract(epoch FROM clock_timestamp() - checkpoint_time) FROM pg_control_checkpoint()`, pid)
	results, _ := conn.PgConn().Exec(ctx, sql).ReadAll() // what was answered counts
	if len(results) > 0 && len(results[0].Rows) > 0 {
		if lsn, err := pglogrepl.ParseLSN(string(results[0].Rows[0][0])); err == nil {
			look.sent = &lsn
		}
	}
	if len(results) > 1 && len(results[1].Rows) > 0 {
		bytes, err1 := strconv.ParseFloat(string(results[1].Rows[0][0]), 64)
		age, err2 := strconv.ParseFloat(string(results[1].Rows[0][1]), 64)
		if err1 == nil && err2 == nil && age >= leastCheckpoint {
			rate := max(0, bytes/age)
			look.written = &rate
		}
	}
	return look
}

// addWAL says how much WAL is written and when the slot is lost if nothing is confirmed from now on.
func (r *statusReport) addWAL(s *slot.State, rates walRates) {
	if r.Slot == nil || s.InRecovery {
		return
	}
	r.Slot.WALBytesPerSecond = rates.Written
	d := judgeSlot(s.Slot, rates)
	r.Slot.LostInSeconds = d.LostIn
	if d.Level != levelOK && !s.Slot.Lost() && s.Slot.WALStatus != "unreserved" { // these two are said already
		r.add(warning, codeSlotDanger, d.Text, d.Fix)
	}
}
