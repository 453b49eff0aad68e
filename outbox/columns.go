package outbox

// The columns of an outbox table that the relay reads, found by name. Only [ColumnID], [ColumnTopic] and [ColumnPayload]
// must be there; a table may have any others beside them.
const (
	// ColumnID holds the event's id, used once and never again. It becomes the message id.
	ColumnID = "id"
	// ColumnTopic holds the event's topic, a value of the subject template.
	ColumnTopic = "topic"
	// ColumnPayload holds the message's body.
	ColumnPayload = "payload"
	// ColumnAggregateID holds the scope inside which consumers care about order, an order's number for instance.
	ColumnAggregateID = "aggregate_id"
	// ColumnSequence holds the event's number inside its aggregate.
	ColumnSequence = "sequence"
	// ColumnHeaders holds more message headers: a JSON object of strings, or of arrays of strings.
	ColumnHeaders = "headers"
	// ColumnCreatedAt holds the time at which the application wrote the event. It is not the commit time.
	ColumnCreatedAt = "created_at"
)

// RequiredColumns returns the names of the columns without which a table is no outbox.
func RequiredColumns() []string { return []string{ColumnID, ColumnTopic, ColumnPayload} }

// OptionalColumns returns the names of the columns that end up in the message where the table has them.
func OptionalColumns() []string { return []string{ColumnAggregateID, ColumnSequence, ColumnHeaders} }
