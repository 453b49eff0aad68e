package inbox

// The names of the tables. They are looked up by the connection's search_path.
const (
	Table          = "processed_events" // what each consumer has processed
	SequencesTable = "inbox_sequences"  // how far each consumer is in each aggregate whose events are numbered
	DeadTable      = "inbox_dead"       // events that a consumer has given up
)

// DDL returns the statements that create the tables. [Once] needs the first one only.
func DDL() string {
	return `CREATE TABLE ` + Table + ` (
  consumer     text        NOT NULL,                -- who has processed it: each consumer has its own effects
  event_id     text        NOT NULL,                -- the message's Nats-Msg-Id
  processed_at timestamptz NOT NULL DEFAULT now(),  -- for retention only
  PRIMARY KEY (consumer, event_id)
);
CREATE INDEX ` + Table + `_processed_at ON ` + Table + ` USING brin (processed_at);

CREATE TABLE ` + SequencesTable + ` (
  consumer     text   NOT NULL,
  aggregate_id text   NOT NULL,
  sequence     bigint NOT NULL,                     -- the highest number that was processed
  PRIMARY KEY (consumer, aggregate_id)
);

CREATE TABLE ` + DeadTable + ` (
  consumer        text        NOT NULL,
  event_id        text        NOT NULL,             -- or stream and sequence, of a message without an id
  stream          text        NOT NULL,
  stream_sequence bigint      NOT NULL,
  subject         text        NOT NULL,
  headers         jsonb       NOT NULL,
  payload         bytea       NOT NULL,
  reason          text        NOT NULL,             -- the last error
  attempts        integer     NOT NULL,
  failed_at       timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (consumer, event_id)
);
`
}
