package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-1cfd9858/relay/publisher"
)

func (a *app) streamCommand() *cli.Command {
	own := func(name, def, help string) *setting {
		return &setting{name: name, def: def, help: help, env: []string{envName(name)}}
	}
	replicas := own("replicas", "", "`number` of servers that hold the stream, 1 to 5; 1 if not given")
	maxAge := own("max-age", "", "`time` after which messages are removed, 168h say; never if not given")
	window := own("duplicate-window", "", "`time` for which the stream knows message ids; 2m if not given")
	return a.family("stream", "the JetStream stream",
		a.command("create", "create the stream, unless it exists", groupNATS|groupStream|groupOutput, []*setting{replicas, maxAge, window},
			func(ctx context.Context, c common) error {
				opts := publisher.StreamOptions{
					Name: c.stream, SubjectTemplate: c.subject.String(),
					Replicas: a.reader.number(replicas, 1, 5), MaxAge: a.reader.duration(maxAge, time.Second),
					DuplicateWindow: a.reader.duration(window, 100*time.Millisecond),
				}
				if opts.MaxAge > 0 && opts.DuplicateWindow > opts.MaxAge {
					a.reader.wrong(window, opts.DuplicateWindow.String(), "must not be longer than --max-age "+opts.MaxAge.String())
				}
				if _, err := opts.Subjects(); errors.Is(err, publisher.ErrSubjectPrefix) && opts.SubjectTemplate != "" {
					a.reader.wrong(a.shared.subject, opts.SubjectTemplate, "a stream needs subjects with a first word of their own: choose outbox."+
						strings.TrimLeft(opts.SubjectTemplate, ".")+" say")
				}
				if err := a.checked(); err != nil {
					return err
				}
				return a.streamCreate(ctx, c, opts)
			}))
}

func (a *app) streamCreate(ctx context.Context, c common, opts publisher.StreamOptions) error {
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	created, s, diff, err := createStream(ctx, c, opts)
	if err != nil {
		return err
	}
	if c.json {
		err = printJSON(a.stdout, struct {
			Stream   string   `json:"stream"`
			Subjects []string `json:"subjects"`
			Created  bool     `json:"created"`
			Diff     []string `json:"differences"`
		}{s.Name, s.Subjects, created, append([]string{}, diff...)})
	} else if len(diff) == 0 {
		what := "exists and fits"
		if created {
			what = "created"
		}
		_, err = fmt.Fprintf(a.stdout, "stream %s %s: %s\n", s.Name, what, describeStream(s))
	}
	if err != nil || len(diff) == 0 {
		return err
	}
	return failed(fmt.Errorf("stream %s exists and does not fit: %s", s.Name, strings.Join(diff, "; ")),
		"nothing was changed: edit it (nats stream edit "+s.Name+"), or choose another name with --stream")
}

func describeStream(s publisher.Stream) string {
	parts := []string{
		"subjects " + strings.Join(s.Subjects, ", "), s.Storage, plural(s.Replicas, "replica", "replicas"),
		"duplicate window " + span(s.DuplicateWindow),
	}
	if s.MaxAge > 0 {
		parts = append(parts, "messages are kept for "+span(s.MaxAge))
	}
	return strings.Join(append(parts, streamMode(s)), "; ")
}

// streamMode says how the relay can write to the stream.
func streamMode(s publisher.Stream) string {
	if s.AllowBatched {
		return "batched"
	}
	return "single"
}
