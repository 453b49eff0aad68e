package slot

// Code names a problem. The list is closed: doctor, logs, runbook and alerts use the same names.
type Code string

// The codes. "Broken" or "warning" is the severity with which [State.Problems] reports them.
const (
	// CodeInRecovery (broken, server): the server is a standby. Nothing else is judged on one.
	CodeInRecovery Code = "in_recovery"
	// CodeWALLevel (broken, server): wal_level is not logical.
	CodeWALLevel Code = "wal_level"

	// CodeSlotMissing (broken, slot): no slot has the name.
	CodeSlotMissing Code = "slot_missing"
	// CodeSlotPhysical (broken, slot): the slot is a physical one.
	CodeSlotPhysical Code = "slot_physical"
	// CodeSlotWrongPlugin (broken, slot): the slot's output plugin is not pgoutput.
	CodeSlotWrongPlugin Code = "slot_wrong_plugin"
	// CodeSlotWrongDatabase (broken, slot): the slot belongs to another database of the cluster.
	CodeSlotWrongDatabase Code = "slot_wrong_database"
	// CodeSlotTwoPhase (broken, slot): the slot sends prepared transactions, which the relay does not read.
	CodeSlotTwoPhase Code = "slot_two_phase"
	// CodeSlotTemporary (broken, slot): the slot ends with the session that made it.
	CodeSlotTemporary Code = "slot_temporary"
	// CodeSlotLost (broken, slot): the slot was invalidated; what it had not delivered is gone from it for good.
	CodeSlotLost Code = "slot_lost"
	// CodeSlotFailover (broken, slot): a failover slot is asked for and the slot is none. From Create, and as a warning from
	// Checks where the server has standbys.
	CodeSlotFailover Code = "slot_without_failover"
	// CodeSlotUnfinished (warning, slot): somebody is making the slot right now.
	CodeSlotUnfinished Code = "slot_unfinished"
	// CodeSlotUnreserved (warning, slot): the slot is lost at the next checkpoint unless it moves.
	CodeSlotUnreserved Code = "slot_unreserved"

	// CodePublicationMissing (broken, publication): no publication has the name.
	CodePublicationMissing Code = "publication_missing"
	// CodePublicationMaybeYounger (warning, publication): it is not proven that the publication is older than the slot.
	CodePublicationMaybeYounger Code = "publication_maybe_younger"
	// CodePublicationWithoutInsert (broken, publication): the publication does not publish INSERT.
	CodePublicationWithoutInsert Code = "publication_without_insert"
	// CodePublicationMoreOperations (warning, publication): the publication also publishes UPDATE, DELETE or TRUNCATE.
	CodePublicationMoreOperations Code = "publication_more_operations"
	// CodePublicationWider (warning, publication): the publication holds more than the outbox table.
	CodePublicationWider Code = "publication_wider"
	// CodeTableNotPublished (broken, publication): this very table (its OID) is not in the publication.
	CodeTableNotPublished Code = "table_not_published"
	// CodePartitionWithoutRoot (broken, publication): a partitioned table's rows are published under the partitions' names.
	CodePartitionWithoutRoot Code = "partition_without_root"
	// CodePartitionUnderParent (broken, publication): the table is a partition whose rows are published under its parent's name.
	CodePartitionUnderParent Code = "partition_under_parent"
	// CodeRowFilter (broken, publication): a row filter hides events.
	CodeRowFilter Code = "row_filter"
	// CodeColumnNotPublished (broken for a needed column, else warning; publication): a column list leaves the column out.
	CodeColumnNotPublished Code = "column_not_published"

	// CodeTableMissing (broken, table): no relation has the name.
	CodeTableMissing Code = "table_missing"
	// CodeTableUnfit (broken, table): the relation is no table, or its rows are not written to the WAL.
	CodeTableUnfit Code = "table_unfit"
	// CodeColumnMissing (broken, table): the table lacks a needed column.
	CodeColumnMissing Code = "column_missing"
	// CodeColumnGenerated (broken for a needed column, else warning; table): the column is generated and not published.
	CodeColumnGenerated Code = "column_generated"
)

// Severity says whether a relay can work in spite of a problem.
type Severity int

// The severities.
const (
	Broken  Severity = iota + 1 // the relay must not or cannot deliver
	Warning                     // the relay works; somebody should look
)

// String returns "broken" or "warning".
func (s Severity) String() string {
	if s == Warning {
		return "warning"
	}
	return "broken"
}

// Kind says what a problem belongs to. A running relay that meets a broken one exits with 5 for KindSlot and with 6 for
// KindPublication and KindTable; KindServer is permanent before the first session and transient after it.
type Kind int

// The kinds.
const (
	KindServer Kind = iota + 1
	KindSlot
	KindPublication
	KindTable
)

// Problem is one thing that is wrong.
type Problem struct {
	Code     Code
	Severity Severity
	Kind     Kind
	Text     string // one sentence: what is wrong and where
	Fix      string // the line of SQL or the relay command that mends it; empty if no line does
}
