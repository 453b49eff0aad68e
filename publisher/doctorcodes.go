package publisher

// Codes of what only doctor looks at, or only it tells apart. Those that [Stream.Problems] reports stand there.
const (
	// CodeUnreachable (fail): no connection to NATS, or the server refuses it.
	CodeUnreachable = "nats_unreachable"
	// CodeServerVersion (warn): the server is older than those the relay is tested with.
	CodeServerVersion = "nats_version"
	// CodeJetStreamOff (fail): the server, the account or the domain has no JetStream.
	CodeJetStreamOff = "jetstream_off"
	// CodeAccountStorage (warn from nine tenths, fail when full): the account's storage is used up.
	CodeAccountStorage = "account_storage"
	// CodePermission (fail; warn where it holds for some subjects): this user may not use a subject that the relay needs.
	CodePermission = "nats_permission"
	// CodeCredentialsExpire (warn): the user's credentials end soon.
	CodeCredentialsExpire = "nats_credentials_expire"
	// CodeStreamMissing (fail): no stream has the name.
	CodeStreamMissing = "stream_missing"
	// CodeStreamNoLeader (fail): the cluster has no leader for the stream.
	CodeStreamNoLeader = "stream_no_leader"
	// CodeStreamUnknown (fail): the stream could not be asked for another reason.
	CodeStreamUnknown = "stream_unknown"
	// CodeReplicas (warn): one server holds the only copy.
	CodeReplicas = "stream_replicas"
	// CodeFull (warn from nine tenths, fail when full): the stream refuses messages when its limit is reached.
	CodeFull = "stream_full"
	// CodeSubjectLimit (warn): the stream keeps only some messages of each subject.
	CodeSubjectLimit = "stream_subject_limit"
	// CodeMaxAge (warn): messages are removed so early that an outage can outlast them.
	CodeMaxAge = "stream_max_age"
	// CodeForeign (warn): somebody else writes into the stream.
	CodeForeign = "stream_foreign_messages"
	// CodePayload (fail over the limit, warn from nine tenths): the table has payloads that the server or stream refuses.
	CodePayload = "payload_too_large"
	// CodeRetention (fail): rows leave the outbox before the stream has forgotten their ids.
	CodeRetention = "retention_too_short"
)
