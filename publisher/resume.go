package publisher

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pglogrepl"
	"github.com/nats-io/nats.go"

	"github.com/seed-1cfd9858/relay/outbox"
)

// RegressedError says that the stream is shorter than it was, or was shorter in between: the broker lost what it had acked.
type RegressedError struct {
	Stream      string
	Last, Acked uint64 // what was acked after Last and up to Acked cannot be relied on
	Replaced    bool   // the stream has grown again: at Acked there is another message
}

func (e *RegressedError) Error() string {
	if e.Replaced {
		return fmt.Sprintf("stream %q has another message at sequence %d than was acked there: the broker lost messages", e.Stream, e.Acked)
	}
	return fmt.Sprintf("stream %q ends at sequence %d, but sequence %d was acked: the broker lost messages", e.Stream, e.Last, e.Acked)
}

// UnfitError says that the stream cannot be used as it is configured.
type UnfitError struct {
	Problem Problem
}

func (e *UnfitError) Error() string { return e.Problem.Text }

// Resume finds out, beside the loop, where publishing can go on: it waits for the answers that are still out, connects
// anew if it must, and reads the stream back. Nothing of it touches the publisher; Apply does, on the loop.
type Resume struct {
	cfg       Config
	origin    outbox.Origin
	session   bool // the first of a session: the whole tail counts
	confirmed pglogrepl.LSN
	ended     *epoch
	link      *link
	advance   bool           // to the next piece of a long tail
	from      uint64         // where to read from, if not session
	acked     uint64         // the highest sequence acked in this process
	anchor    anchor         // the message before from, as it was known
	waiting   map[key]uint64 // the window's events that are not known to be stored: their ordinals
	maxTail   int
	closing   *sync.WaitGroup
}

// Resumed is the result of a Resume.
type Resumed struct {
	link   *link
	stream Stream
	tail   *tail
	anchor anchor                     // at the end of the stream
	found  map[uint64]outbox.Position // by ordinal: events of the window that are in the stream
	short  bool
}

// Stream returns what the leader said of the stream; its LastSeq is L.
func (r *Resumed) Stream() Stream { return r.stream }

// Foreign returns how many messages in the tail come from elsewhere.
func (r *Resumed) Foreign() uint64 { return r.tail.foreign }

// Short reports whether messages were removed from the stream that the slot's confirmed LSN may not cover: of an event that
// PostgreSQL sends again, nobody can know then whether it was stored. Only the first Resume of a session looks.
func (r *Resumed) Short() bool { return r.short }

// Run may block for as long as the servers do, until ctx ends. On an error the connection that it may have made is given
// up. Errors: *ConnectError, *ConfigError, *RegressedError, *UnfitError, those of InspectStream, and others of NATS.
func (r *Resume) Run(ctx context.Context) (*Resumed, error) {
	if r.ended != nil {
		r.ended.settle(ctx)
	}
	l := r.link
	if l == nil || l.dead.Load() {
		var err error
		if l, err = dialLink(ctx, r.cfg.Conn); err != nil {
			return nil, err
		}
	}
	resumed, err := r.inspect(ctx, l)
	if err != nil {
		if l != r.link {
			r.closing.Go(l.nc.Close)
		}
		return nil, err
	}
	return resumed, nil
}

func (r *Resume) inspect(ctx context.Context, l *link) (*Resumed, error) {
	stream, err := InspectStream(ctx, l.nc, r.cfg.Conn.JSDomain, r.cfg.Stream)
	if err != nil {
		return nil, err
	}
	if stream.LastSeq < r.acked {
		return nil, &RegressedError{Stream: stream.Name, Last: stream.LastSeq, Acked: r.acked}
	}
	for _, p := range stream.Problems(r.cfg.Template.String()) {
		if p.Severity == Broken {
			return nil, &UnfitError{Problem: p}
		}
	}
	reader := &tailReader{
		nc: l.nc, domain: r.cfg.Conn.JSDomain, stream: stream, origin: r.origin, confirmed: r.confirmed, max: r.maxTail,
	}
	if !r.session {
		if err := r.anchor.holds(ctx, reader); err != nil {
			return nil, err
		}
	}
	from := r.from
	if r.session {
		if from, err = reader.start(ctx); err != nil {
			return nil, err
		}
	}
	res := &Resumed{link: l, stream: stream, found: map[uint64]outbox.Position{}, short: reader.short}
	res.tail, err = reader.read(ctx, from, func(id string, p outbox.Position) bool {
		ordinal, waits := r.waiting[keyOf(id)]
		if waits {
			res.found[ordinal] = p
		}
		return !waits
	})
	if err != nil {
		return nil, err
	}
	res.anchor, err = anchorAt(ctx, reader, stream.LastSeq)
	return res, err
}

// anchor is the message at the sequence up to which the stream is known. A stream that has lost its end and grown
// again is as long as before: only the message tells.
type anchor struct {
	seq uint64 // 0: nothing is known
	key key
}

func anchorAt(ctx context.Context, r *tailReader, seq uint64) (anchor, error) {
	if seq == 0 {
		return anchor{}, nil
	}
	m, err := r.at(ctx, seq)
	switch {
	case errors.Is(err, errNoMessage), err == nil && m.Seq != seq:
		return anchor{}, nil // it was removed: nothing can be proven
	case err != nil:
		return anchor{}, err
	}
	id := string(m.Header)
	if h, err := nats.DecodeHeadersMsg(m.Header); err == nil && h.Get(outbox.HeaderMsgID) != "" {
		id = h.Get(outbox.HeaderMsgID)
	}
	return anchor{seq: seq, key: keyOf(id)}, nil
}

// holds returns a *RegressedError if another message is there now.
func (a anchor) holds(ctx context.Context, r *tailReader) error {
	now, err := anchorAt(ctx, r, a.seq)
	if err == nil && now.seq != 0 && now != a {
		err = &RegressedError{Stream: r.stream.Name, Last: a.seq - 1, Acked: a.seq, Replaced: true}
	}
	return err
}
