package slot

// Codes of what only doctor looks at: a relay runs in spite of the warnings among them, and meets the others as errors of
// its connections. Those that [State.Problems] reports are in reason.go.
const (
	// CodeVersion (fail below 14, warn above 18): the server's version is not one that the relay is tested with.
	CodeVersion Code = "postgres_version"
	// CodeEncoding (warn): the database has no encoding, so its text can be any bytes.
	CodeEncoding Code = "database_encoding"
	// CodeSlotsExhausted (fail): there is no free replication slot to make the relay's with.
	CodeSlotsExhausted Code = "replication_slots_exhausted"
	// CodeSendersExhausted (fail): there is no free walsender for the relay's session.
	CodeSendersExhausted Code = "wal_senders_exhausted"
	// CodeRoleReplication (fail): the role may not replicate.
	CodeRoleReplication Code = "role_without_replication"
	// CodeRoleSuperuser (warn): the role may do far more than a relay needs.
	CodeRoleSuperuser Code = "role_superuser"
	// CodeRoleCannotPublish (warn): the publication is missing and the role may not make it.
	CodeRoleCannotPublish Code = "role_cannot_publish"
	// CodeTableNotReadable (warn): the role may not read the table, which only counting and looking at payloads need.
	CodeTableNotReadable Code = "table_not_readable"
	// CodePooled (fail if replication fails, else warn): something between relay and server answers for the server.
	CodePooled Code = "connection_pooled"
	// CodeReplicationRefused (fail): a normal connection works, a replication connection does not.
	CodeReplicationRefused Code = "replication_refused"
	// CodeReplicationElsewhere (fail): the replication connection met another cluster than the normal one.
	CodeReplicationElsewhere Code = "replication_elsewhere"
	// CodeWALKeepUnlimited (warn): a slot that nobody reads fills the disk.
	CodeWALKeepUnlimited Code = "wal_keep_unlimited"
	// CodeIdleSlotTimeout (warn): the server gives the slot up when no relay runs for a time.
	CodeIdleSlotTimeout Code = "idle_slot_timeout"
	// CodeStandbySlotsUnset (warn): a failover can leave events in the stream whose transaction is gone.
	CodeStandbySlotsUnset Code = "standby_slots_unset"
	// CodeStandbySlotsBlocking (fail): logical replication waits for a standby that is not there.
	CodeStandbySlotsBlocking Code = "standby_slots_blocking"
	// CodeIDNotUUID (warn): ids come from a sequence or the like, which can start again.
	CodeIDNotUUID Code = "id_not_uuid"
	// CodeIDNotUnique (warn): nothing keeps an id from being used twice.
	CodeIDNotUnique Code = "id_not_unique"
	// CodeColumnNullable (warn): a row could lack what every event must have.
	CodeColumnNullable Code = "column_nullable"
	// CodeColumnType (fail for headers, else warn): a column's type makes no message of it that anybody expects.
	CodeColumnType Code = "column_type"
)
