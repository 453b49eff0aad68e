package pgmodel

import (
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-1cfd9858/relay/slot"
)

func pgError(code, message string) error {
	return &pgconn.PgError{Severity: "FATAL", Code: code, Message: message}
}

// catalogue returns the state of slot, publication and table, as slot.Inspect would. The lock is held.
func (s *Server) catalogue() slot.State {
	flush := s.end
	st := slot.State{
		Where: "model", At: time.Now(), ServerVersion: 170000, SystemID: System, WALLevel: "logical", Database: "app",
		Role: "relay", CanReplicate: true, FlushLSN: &flush, Slots: 1, MaxSlots: 10, MaxWALSenders: 10,
		Publication: &slot.Publication{OID: 1, Insert: true, ViaRoot: true, OlderThanSlot: true, Member: true, Published: true},
		Table:       &slot.Table{OID: OutboxOID, Kind: "r", PrimaryKey: true, HasIdentity: true},
	}
	for _, name := range shapes[s.shape] {
		st.Table.Columns = append(st.Table.Columns, slot.Column{Name: name, Type: "text"})
		st.Publication.Columns = append(st.Publication.Columns, name)
	}
	if s.missing {
		return st
	}
	confirmed := s.confirmed
	st.Slot = &slot.Slot{
		Name: s.cfg.Slot.Slot, Plugin: "pgoutput", Type: "logical", Database: "app",
		RestartLSN: &confirmed, ConfirmedFlushLSN: &confirmed, WALStatus: "reserved",
	}
	if s.lost {
		st.Slot.WALStatus = "lost"
	}
	if s.holder != nil {
		pid := int32(s.holder.pid)
		st.Slot.Active, st.Slot.ActivePID = true, &pid
	}
	return st
}
