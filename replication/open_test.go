package replication

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// TestOpen_Parameters: what a session tells the server at its start, next to what the user's own DSN says.
func TestOpen_Parameters(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, dsn string
		timeout   time.Duration
		want      map[string]string
	}{
		{"defaults", testDSN, 0, map[string]string{"wal_sender_timeout": "10000"}},
		{"timeout", testDSN, 1500 * time.Millisecond, map[string]string{"wal_sender_timeout": "1500"}},
		{
			"the user's own", testDSN + "&options=-c%20work_mem%3D8MB&application_name=mine&client_encoding=LATIN1&wal_sender_timeout=1",
			time.Minute,
			map[string]string{"wal_sender_timeout": "60000", "options": "-c work_mem=8MB", "application_name": "mine"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			srv, cfg := newServer(t, test.dsn)
			before := len(cfg.RuntimeParams)
			s, err := Open(t.Context(), cfg, Config{Slot: "relay", Publication: "relay", Timeout: test.timeout}, newDecoder(t))
			if err != nil {
				t.Fatal(err)
			}
			s.broken = true // the server's end is not played
			defer s.Close(t.Context())
			srv.next(t) // its parameters are set
			want := map[string]string{"user": "u", "database": "db", "replication": "database", "client_encoding": "UTF8"}
			for k, v := range test.want {
				want[k] = v
			}
			for k, v := range want {
				if got := srv.parameters[k]; got != v {
					t.Errorf("%s is %q, want %q", k, got, v)
				}
			}
			if _, ok := want["options"]; !ok && srv.parameters["options"] != "" {
				t.Errorf("options are %q, want none", srv.parameters["options"])
			}
			if len(cfg.RuntimeParams) != before || cfg.BuildFrontend == nil {
				t.Error("Open changed the configuration that it was given")
			}
			if s.System() != testSystem || s.PID() != 4711 {
				t.Errorf("system %q, process id %d", s.System(), s.PID())
			}
		})
	}
}

// TestC39_StartsAtTheSlot: the position is the slot's, never the one that IDENTIFY_SYSTEM gives.
func TestC39_StartsAtTheSlot(t *testing.T) {
	t.Parallel()
	testStart(t, "relay", `START_REPLICATION SLOT orders LOGICAL 0/0 (proto_version '1', publication_names '"relay"')`)
}

// TestC30_PublicationNames: pgoutput parses the option as a list of identifiers, inside a string of the grammar.
func TestC30_PublicationNames(t *testing.T) {
	t.Parallel()
	for publication, quoted := range map[string]string{
		`My"Pub`:     `'"My""Pub"'`,
		`it's`:       `'"it''s"'`,
		`a, b`:       `'"a, b"'`,
		`Straße`:     `'"Straße"'`,
		`'"`:         `'"''"""'`,
		`back\slash`: `'"back\slash"'`,
	} {
		t.Run(publication, func(t *testing.T) {
			t.Parallel()
			testStart(t, publication, `START_REPLICATION SLOT orders LOGICAL 0/0 (proto_version '1', publication_names `+quoted+`)`)
		})
	}
}

func testStart(t *testing.T, publication, want string) {
	t.Helper()
	srv, cfg := newServer(t, testDSN)
	s, err := Open(t.Context(), cfg, Config{Slot: "orders", Publication: publication}, newDecoder(t))
	if err != nil {
		t.Fatal(err)
	}
	s.broken = true
	defer s.Close(t.Context())
	for _, query := range []string{"IDENTIFY_SYSTEM", want} {
		if got, ok := srv.next(t).(*pgproto3.Query); !ok || got.String != query {
			t.Errorf("the client sent %q\nwant %q", got.String, query)
		}
	}
}

// TestOpen_Errors: a session that does not come about leaves no connection, and says what the server said.
func TestOpen_Errors(t *testing.T) {
	t.Parallel()
	for _, query := range []string{"IDENTIFY_SYSTEM", "START_REPLICATION"} {
		t.Run(query, func(t *testing.T) {
			t.Parallel()
			srv, cfg := newServer(t, testDSN)
			srv.refuse = query
			_, err := Open(t.Context(), cfg, Config{Slot: "relay", Publication: "relay"}, newDecoder(t))
			wantCode(t, err, "55006")
			if errors.Is(err, ErrServerStopping) {
				t.Error(err)
			}
			for msg := range srv.got { // until the connection ends
				if _, ok := msg.(update); ok {
					t.Error("a status update")
				}
			}
		})
	}
}
