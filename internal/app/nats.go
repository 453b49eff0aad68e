package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/seed-1cfd9858/relay/publisher"
)

func (s *sharedSettings) readNATS(r *reader) publisher.ConnConfig {
	cfg := publisher.ConnConfig{
		Creds: r.text(s.natsCreds), Nkey: r.text(s.natsNkey), User: r.text(s.natsUser),
		Password: r.text(s.natsPassword), Token: r.text(s.natsToken), Context: r.text(s.natsContext),
		TLSCA: r.text(s.natsCA), TLSCert: r.text(s.natsCert), TLSKey: r.text(s.natsKey), JSDomain: r.text(s.jsDomain),
	}
	if urls, given := r.raw(s.natsURL); given {
		cfg.URL = urls[len(urls)-1]
	}
	resolved, err := cfg.Resolve()
	for _, err := range unjoin(err) {
		fault, ok := errors.AsType[*publisher.ConfigError](err)
		if !ok {
			continue
		}
		source, ok := r.sources[fault.Key]
		if !ok {
			source = "--" + fault.Key
		}
		r.complain(complaint{key: source, value: fault.Value, text: fault.Reason})
	}
	return resolved
}

// withNATS runs do with a connection and closes it.
func withNATS(ctx context.Context, cfg publisher.ConnConfig, do func(ctx context.Context, nc *nats.Conn) error) error {
	nc, err := publisher.Dial(ctx, cfg)
	if err != nil {
		return natsError("", err)
	}
	defer nc.Close()
	return do(ctx, nc)
}

// inspectStream asks for the stream over a connection of its own.
func inspectStream(ctx context.Context, c common) (s publisher.Stream, err error) {
	err = withNATS(ctx, c.nats, func(ctx context.Context, nc *nats.Conn) error {
		s, err = publisher.InspectStream(ctx, nc, c.nats.JSDomain, c.stream)
		if err != nil {
			return natsError(c.nats.Servers(), err)
		}
		return nil
	})
	return s, err
}

// natsError makes one sentence and one line of advice of an error of the publisher package.
func natsError(servers string, err error) error {
	advice := publisher.Advice(err)
	switch {
	case errors.As(err, new(*publisher.ConnectError)):
		err = fmt.Errorf("cannot %w", err)
	case errors.Is(err, publisher.ErrNoJetStream):
		err = &restated{text: "NATS at " + servers + " has no JetStream for this account and domain", err: err}
	}
	return failed(err, advice)
}

func createStream(ctx context.Context, c common, opts publisher.StreamOptions) (created bool, s publisher.Stream, diff []string, err error) {
	err = withNATS(ctx, c.nats, func(ctx context.Context, nc *nats.Conn) error {
		created, s, diff, err = publisher.CreateStream(ctx, nc, c.nats.JSDomain, opts)
		if err != nil {
			return natsError(c.nats.Servers(), err)
		}
		return nil
	})
	return created, s, diff, err
}
