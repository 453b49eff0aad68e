// Package slot is everything about a relay's replication slot and publication in PostgreSQL but the streaming: create,
// inspect, judge, list, drop.
//
//	Inspect  -> State -> Problems      one look at slot, publication, table and server, and what is wrong with them
//	Examine  -> Examination -> Checks  everything that doctor asks, Inspect included, and how each precondition came out
//	Create   -> publication, then slot, then the number of rows that are older than the slot
//	List     -> all logical slots of the cluster and what they hold back
//	Drop     -> the slot, if nobody holds it and it is a relay's
//	Classify -> is this error permanent, and what does the operator do
//
// Only Create and Drop change anything. Nothing here retries, logs, or keeps a connection.
//
// # Publication first
//
// Which tables are published is looked up in the catalogue as it was when a row was written. WAL from before the
// publication can never be read through it: versions 14 to 17 fail with 42704 in the change callback, 18 passes over the
// rows with a warning in the server's log. So Create makes the publication first, and refuses a slot without publication.
//
// For a pair that somebody else made, PostgreSQL keeps neither time nor LSN of either creation. What can be known: the
// slot's catalog_xmin precedes no transaction whose catalogue changes the slot has still to look at, so if the oldest
// catalogue row of the publication (its own, or that of one of its tables: ALTER PUBLICATION rewrites only one of them)
// precedes catalog_xmin, the publication is visible to all that the slot will decode. That is Publication.OlderThanSlot,
// and it is proof. The contrary proves nothing: a transaction that runs for long, or a physical slot with
// hot_standby_feedback, keeps catalog_xmin of a well-made slot low for a while. It passes as the slot moves. So it is a
// warning, CodePublicationMaybeYounger, and Create waits until all older transactions have ended, so that its own slots do
// not raise it.
//
// # Earlier rows
//
// Rows committed before the slot's consistent point are in the table only. Create makes the slot with an exported
// snapshot, which meets the slot without gap or overlap, counts in it, and gives the statement that inserts such rows
// again in batches, with the same ids and in the order of created_at. It finds them by their xmin, so:
//
//   - run it soon: VACUUM FREEZE makes rows that the slot has delivered look as old as those. They would be sent again,
//     with their ids;
//   - it is a DELETE and an INSERT: the table's triggers fire, and a foreign key with ON DELETE CASCADE would cascade.
//
// # Rights
//
// Nothing needs a superuser.
//
//	Inspect, List, Problems   CONNECT on the database. Others' sessions show their address and state only to members of
//	                          pg_monitor; a holder of the same role is always visible.
//	Examine                   as Inspect; REPLICATION to try a replication connection, SELECT on the table to look at payloads
//	Create                    REPLICATION, and where the publication does not exist yet: CREATE on the database and the
//	                          ownership of the table. SELECT on the table to count earlier rows.
//	the resend statement      SELECT, DELETE and INSERT on the table, as its owner has.
//	Drop                      REPLICATION; ownership of the publication to drop that too.
//	streaming                 REPLICATION. No right on the table.
//
//	CREATE ROLE relay LOGIN REPLICATION PASSWORD '...';
//	CREATE PUBLICATION outbox_relay FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true);  -- by the owner
//	GRANT SELECT ON outbox TO relay;  -- optional, for the count
package slot
