package app

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/seed-1cfd9858/relay/publisher"
	"github.com/seed-1cfd9858/relay/slot"
)

// answers is what the servers and the leader said. A part that could not be asked is nil, and its error says why.
type answers struct {
	state     *slot.State
	wal       walLook
	leader    *selfStatus
	rows      *rowEstimate
	stream    publisher.Stream
	last      *publisher.Message // of the stream
	overdue   bool
	stateErr  error
	leaderErr error
	streamErr error
}

// look asks everybody once and judges. The error says that PostgreSQL could not be asked; the report is valid all the same.
func (q statusQuestion) look(ctx context.Context) (*statusReport, *slot.State, error) {
	report, a := &statusReport{Reasons: []reason{}}, q.ask(ctx)
	if a.stateErr != nil {
		report.add(broken, codePostgresUnreachable, oneLine(a.stateErr.Error()), advice(a.stateErr))
	} else {
		q.addState(report, a)
	}
	report.addStream(q.common, a.stream, a.streamErr)
	report.judge()
	return report, a.state, a.stateErr
}

func (q statusQuestion) addState(r *statusReport, a *answers) {
	r.addPostgres(q.common, a.state)
	s := a.state.Slot
	if s == nil || s.Type != "logical" {
		return
	}
	if a.state.InRecovery { // the primary knows
		r.Lag.Bytes = s.UnconfirmedBytes
		return
	}
	rates := walRates{Written: a.wal.written}
	if a.leader != nil && a.leader.Rates.Written != nil {
		rates = a.leader.Rates
	}
	if q.rates != nil {
		if own := q.rates(*a.state); own.Written != nil {
			rates = own
		}
	}
	r.addWAL(a.state, rates)
	switch {
	case a.leader != nil:
		r.addLeader(q.relay, a.leader)
	case a.leaderErr != nil:
		r.addLeaderUnknown(q.relay, a.leaderErr)
	}
	r.addPending(a.state, a.wal, a.leader, a.rows)
	r.addLag(s, a.leader, q.limits, a.overdue)
}

// ask asks PostgreSQL and NATS at the same time, and the leader after the end of WAL is known: so what it says covers that.
func (q statusQuestion) ask(ctx context.Context) *answers {
	a := &answers{}
	nats := make(chan struct{})
	var both sync.WaitGroup
	both.Go(func() {
		defer close(nats)
		ctx, cancel := context.WithTimeout(ctx, questionTimeout)
		defer cancel()
		if a.stream, a.last, a.streamErr = publisher.InspectStreamAndLast(ctx, q.nats, q.stream); a.streamErr != nil {
			a.streamErr = natsError(q.nats.Servers(), a.streamErr)
		}
	})
	a.stateErr = withPostgres(ctx, q.common, func(ctx context.Context, conn *pgx.Conn) error {
		return q.askPostgres(ctx, conn, a, nats)
	})
	if a.stateErr == nil && q.limits.lag != nil && a.leader == nil && unconfirmed(*a.state) {
		a.overdue, a.stateErr = waitForLag(ctx, q.common, *a.state, *q.limits.lag)
	}
	both.Wait()
	return a
}

func (q statusQuestion) askPostgres(ctx context.Context, conn *pgx.Conn, a *answers, nats <-chan struct{}) error {
	state, err := inspect(ctx, conn, q.slot)
	if err != nil {
		return err
	}
	a.state = &state
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	a.wal = lookAtWAL(ctx, conn, state)
	s := state.Slot
	if q.relay.url != nil && s != nil && s.Active && !state.InRecovery {
		a.leader, a.leaderErr = q.relay.ask(ctx, s)
	}
	if a.leader != nil || s == nil || s.Type != "logical" || s.UnconfirmedBytes == nil || *s.UnconfirmedBytes == 0 {
		return nil
	}
	select {
	case <-nats:
		rows := estimateRows(ctx, conn, state, q.common, a.last)
		a.rows = &rows
	case <-ctx.Done():
	}
	return nil
}

func unconfirmed(s slot.State) bool {
	return s.Slot != nil && s.Slot.Active && s.Slot.UnconfirmedBytes != nil && *s.Slot.UnconfirmedBytes > 0 && s.FlushLSN != nil
}
