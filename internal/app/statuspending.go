package app

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-1cfd9858/relay/outbox"
	"github.com/seed-1cfd9858/relay/publisher"
	"github.com/seed-1cfd9858/relay/slot"
)

// Where a count of waiting events is from.
const (
	pendingConfirmed = "confirmed" // everything that was written is confirmed
	pendingLeader    = "leader"    // the leader says so
	pendingRows      = "rows"      // estimated from the rows
)

// addPending says how many events wait, as well as it can be known: by the confirmed LSN, by the leader, or by an estimate.
func (r *statusReport) addPending(state *slot.State, look walLook, leader *selfStatus, rows *rowEstimate) {
	s := state.Slot
	set := func(events int64, exact, atLeast bool, source string) {
		r.Pending.Events, r.Pending.Exact, r.Pending.AtLeast, r.Pending.Source = &events, &exact, &atLeast, &source
	}
	switch {
	case s.UnconfirmedBytes == nil:
		r.add(note, codePendingUnknown, "the slot has no confirmed LSN", "")
	case *s.UnconfirmedBytes == 0:
		set(0, true, false, pendingConfirmed)
		zero := 0.0
		r.Pending.OldestAgeSeconds = &zero
	case leader != nil:
		all := look.sent != nil && state.FlushLSN != nil && *look.sent >= *state.FlushLSN && !leader.Full && leader.LagSeconds != nil
		set(int64(leader.Events), all, !all, pendingLeader)
		r.Pending.OldestAgeSeconds = leader.LagSeconds
	case rows != nil && rows.known:
		set(rows.events, false, rows.atLeast, pendingRows)
		r.add(note, codePendingEstimated, "WAL is unconfirmed: the events in it are estimated from created_at of the rows; the relay itself knows (--relay)", "")
	default:
		why := "only the relay itself knows how many events are in it (--relay)"
		if rows != nil && rows.reason != "" {
			why += ", and the rows cannot tell: " + rows.reason
		}
		r.add(note, codePendingUnknown, "WAL is unconfirmed: "+why, "")
	}
}

// rowEstimate is how many rows are newer than the newest event in the stream.
type rowEstimate struct {
	known   bool
	events  int64
	atLeast bool   // there are more: counting stopped
	reason  string // why it is not known
}

const (
	estimateMost    = 100_000 // rows are counted
	estimateTimeout = time.Second
)

// estimateRows counts the rows that were created after the newest stored event was committed. It reads an index on created_at
// or nothing: never the whole table.
func estimateRows(ctx context.Context, conn *pgx.Conn, state slot.State, c common, last *publisher.Message) rowEstimate {
	switch created := createdAt(state.Table); {
	case state.InRecovery || state.Table == nil:
		return rowEstimate{}
	case created == nil || created.Type != "timestamp with time zone":
		return rowEstimate{reason: "the table has no timestamptz column created_at"}
	case last == nil:
		return rowEstimate{reason: "the stream has no message to count from"}
	case last.Origin.Slot != c.slot.Slot || state.SystemID != "" && last.Origin.System != state.SystemID || last.CommittedAt.IsZero():
		return rowEstimate{reason: "the newest message of the stream is not of this slot"}
	}
	query := fmt.Sprintf(`SELECT count(*) FROM (SELECT FROM %s WHERE created_at > '%s' AND created_at <= clock_timestamp() ORDER BY created_at LIMIT %d) newer`,
		c.slot.Table.SQL(), last.CommittedAt.UTC().Format("2006-01-02 15:04:05.999999+00"), estimateMost+1)
	plan, err := askOne(ctx, conn, fmt.Sprintf(`BEGIN READ ONLY; SET LOCAL statement_timeout = %d; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off;
		EXPLAIN (FORMAT JSON) %s`, estimateTimeout.Milliseconds(), query))
	if err != nil {
		return rowEstimate{reason: oneLine(slot.Reason(err))}
	}
	if !servedByIndex(plan) {
		return rowEstimate{reason: "no index on created_at serves the question"}
	}
	text, err := askOne(ctx, conn, query+`; COMMIT`)
	if err != nil {
		return rowEstimate{reason: oneLine(slot.Reason(err))}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return rowEstimate{reason: err.Error()}
	}
	return rowEstimate{known: true, events: min(n, estimateMost), atLeast: n > estimateMost}
}

func createdAt(t *slot.Table) *slot.Column {
	if t == nil {
		return nil
	}
	return t.Column(outbox.ColumnCreatedAt)
}

// askOne sends statements in one round trip and returns the one value of the last that has one.
func askOne(ctx context.Context, conn *pgx.Conn, sql string) (value string, err error) {
	results, err := conn.PgConn().Exec(ctx, sql).ReadAll()
	for _, r := range results {
		if len(r.Rows) > 0 {
			value = string(r.Rows[0][0])
		}
	}
	return value, err
}

// planNode is a node of a plan, as EXPLAIN (FORMAT JSON) writes it.
type planNode struct {
	Type  string     `json:"Node Type"`
	Index string     `json:"Index Name"`
	Cond  string     `json:"Index Cond"`
	Plans []planNode `json:"Plans"`
}

// servedByIndex reports whether a plan reads only what an index finds in its order: with a sort, or another kind of scan, it
// would read more.
func servedByIndex(plan string) bool {
	var top []struct{ Plan planNode }
	return json.Unmarshal([]byte(plan), &top) == nil && len(top) == 1 && top[0].Plan.bounded()
}

func (n planNode) bounded() bool {
	switch n.Type {
	case "Index Scan", "Index Only Scan":
		return n.Cond != ""
	case "Aggregate", "Limit", "Subquery Scan", "Append", "Merge Append", "Result":
	default:
		return false
	}
	return !slices.ContainsFunc(n.Plans, func(below planNode) bool { return !below.bounded() })
}
