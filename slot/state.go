package slot

import (
	"time"

	"github.com/jackc/pglogrepl"
)

// State is what PostgreSQL knew about a relay's slot, publication and table at one moment. Nil means: does not exist, is
// not known in this version, or is hidden from this role. It is never a stand-in for zero.
type State struct {
	Where         string    // host:port/database, for messages
	At            time.Time // the server's clock
	ServerVersion int       // server_version_num: 150018 is 15.18
	SystemID      string    // the cluster's system identifier; empty if this role may not read it
	InRecovery    bool      // a standby
	WALLevel      string    // the setting wal_level
	Database      string    // the connection's database
	Role          string    // the connection's role
	// CanReplicate: the role has REPLICATION, is a superuser, or is a member of a hosting provider's replication role.
	CanReplicate bool

	// FlushLSN is the end of the WAL that is safely on disk: flushed on a primary, replayed on a standby. It is read
	// before the slot.
	FlushLSN *pglogrepl.LSN
	// MaxSlotWALKeepBytes is the setting max_slot_wal_keep_size; nil means without limit.
	MaxSlotWALKeepBytes *int64
	Slots, MaxSlots     int // slots of any kind in the cluster, and the setting max_replication_slots
	MaxWALSenders       int // the setting max_wal_senders

	Slot        *Slot
	Publication *Publication
	Table       *Table
}

// Slot is a replication slot. Columns that a version does not have are nil.
type Slot struct {
	Name      string
	Plugin    string // empty for a physical slot
	Type      string // logical or physical
	Database  string // empty for a physical slot
	Temporary bool
	TwoPhase  bool

	Active    bool
	ActivePID *int32
	Holder    *Holder // who holds it; nil if nobody does or this role may not see it

	RestartLSN        *pglogrepl.LSN // from where WAL is kept; nil before the slot is ready, mostly nil once it is lost
	ConfirmedFlushLSN *pglogrepl.LSN // what may be forgotten; nil for a physical slot and while the slot is being made
	CatalogXmin       *uint32
	WALStatus         string // reserved, extended, unreserved, lost; empty if not known
	SafeWALBytes      *int64 // WAL that may still be written before the slot is lost; nil without limit
	RetainedBytes     *int64 // WAL kept for the slot: flush LSN - restart LSN, at least 0
	UnconfirmedBytes  *int64 // flush LSN - confirmed LSN, at least 0

	Conflicting        *bool      // 16+
	Failover           *bool      // 17+
	Synced             *bool      // 17+
	InactiveSince      *time.Time // 17+; nil while active
	InvalidationReason *string    // 17+; nil while valid
}

// Lost says that the slot was invalidated. That is final: it can only be dropped.
func (s *Slot) Lost() bool {
	return s.WALStatus == "lost" || s.InvalidationReason != nil || (s.Conflicting != nil && *s.Conflicting)
}

// Unfinished says that the slot is still being made: its maker waits for running transactions.
func (s *Slot) Unfinished() bool {
	return s.Type == "logical" && s.ConfirmedFlushLSN == nil && !s.Lost()
}

// Holder is the walsender that holds a slot. PostgreSQL shows everything but the application's name only to the same role,
// its members, and members of pg_monitor.
type Holder struct {
	PID             int32
	ApplicationName string
	Address         string     // the client's address, "local" on a unix socket, empty if hidden
	Since           *time.Time // the connection's start; nil if hidden
	State           string     // of pg_stat_replication: startup, catchup, streaming, ...; empty if hidden
}

// Publication is a publication and what it does with the outbox table.
type Publication struct {
	OID       uint32
	AllTables bool

	Insert, Update, Delete, Truncate bool
	ViaRoot                          bool // publish_via_partition_root

	// OlderThanSlot is true only if that is proven: the publication's oldest catalogue row precedes the slot's catalog_xmin.
	// False proves nothing. See the package comment.
	OlderThanSlot bool

	OtherTables int // published tables that are neither the outbox nor one of its partitions

	Member    bool     // the table's own OID, or one of its partitions or ancestors, is in the publication in some way
	Published bool     // rows of the table are published under the table's own name
	ViaParent string   // the ancestor under whose name the rows of this partition are published; else empty
	Columns   []string // columns that are published (15+); nil in 14, which publishes all that are not generated
	RowFilter *string  // 15+; nil without filter
}

// Table is the relation with the outbox table's name.
type Table struct {
	OID         uint32
	Kind        string // pg_class.relkind: r table, p partitioned table, v view, ...
	Unlogged    bool   // unlogged or temporary: its rows are not in the WAL
	IsPartition bool
	PrimaryKey  bool
	// HasIdentity: UPDATE and DELETE can be published, by a primary key or a replica identity.
	HasIdentity bool
	Columns     []Column // in the table's order
}

// Column is a column of the outbox table.
type Column struct {
	Name, Type     string // the type as format_type writes it
	NotNull        bool
	Generated      bool // GENERATED ALWAYS AS (...)
	IdentityAlways bool // GENERATED ALWAYS AS IDENTITY
}

// Column returns the column of that name, or nil.
func (t *Table) Column(name string) *Column {
	for i := range t.Columns {
		if t.Columns[i].Name == name {
			return &t.Columns[i]
		}
	}
	return nil
}

// behind is the distance from lsn to the end of WAL, never negative: a confirmation may overtake the reading of the end.
func behind(end, lsn *pglogrepl.LSN) *int64 {
	if end == nil || lsn == nil {
		return nil
	}
	var n int64
	if *end > *lsn {
		n = int64(*end - *lsn)
	}
	return &n
}
