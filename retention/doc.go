// Package retention deletes old events from the outbox table: those that are delivered, and no others.
//
// # What is delivered
//
// A row does not say whether its event was delivered; the slot does. So a pass takes a snapshot, then the end of the WAL, and
// waits until the slot's confirmed LSN has come there: the relay has delivered everything that the snapshot sees. Only such
// rows go, if they are old enough. A row is in the snapshot for certain if its transaction is older than all that ran then.
//
// Rows from before the publication were never sent to anybody. They stay, and are counted: `relay slot create` prints the
// statement that sends them.
//
// # How they go
//
// Row by row, a piece of the table at a time, each piece in a statement of its own: writers wait for nothing. A table that is
// partitioned by created_at loses whole partitions instead, detached concurrently and then dropped, when all that is in them
// is old and delivered.
//
// # What is left when it dies
//
// Rows that are there a little longer, a partition that is half detached (the next pass finishes that), or one that is detached
// and not dropped (the next pass drops it: its comment says so). An event is never in danger.
package retention
