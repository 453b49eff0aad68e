package slot

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-1cfd9858/relay/outbox"
)

func TestC50_SlotNamesAreRefusedWithoutConnection(t *testing.T) {
	t.Parallel()
	cc, err := pgx.ParseConfig("postgres://nobody@127.0.0.1:1/nowhere") // nothing listens: a connection would fail otherwise
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"my-slot", "MySlot", strings.Repeat("a", 64), "", "x LOGICAL test_decoding --", "ä", "a\x00b"} {
		cfg := Config{Slot: name, Publication: "p", Table: outbox.Table{Schema: "public", Name: "outbox"}}
		_, err := Create(t.Context(), cc, cfg, CreateOptions{})
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "[a-z0-9_]{1,63}") {
			t.Errorf("Create with slot %q: %v", name, err)
		}
		if _, err := Inspect(t.Context(), nil, cfg); !errors.Is(err, ErrConfig) {
			t.Errorf("Inspect with slot %q: %v", name, err)
		}
		if err := Drop(t.Context(), nil, cfg, DropOptions{}); !errors.Is(err, ErrConfig) {
			t.Errorf("Drop with slot %q: %v", name, err)
		}
		if permanent, _ := Classify(err); !permanent {
			t.Errorf("slot %q: the error is not permanent", name)
		}
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	good := Config{Slot: strings.Repeat("a", 63), Publication: `My "Pub"; --`, Table: outbox.Table{Schema: "S s", Name: "T"}}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	err := Config{Slot: "A", Publication: strings.Repeat("ä", 32)}.Validate()
	for _, key := range []string{`slot "A"`, "publication", "table: schema", "table: name"} {
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%v does not name %s", err, key)
		}
	}
}

func TestFlagsSurviveAShell(t *testing.T) {
	t.Parallel()
	cfg := Config{Slot: "s", Publication: "Relay-Pub's", Table: outbox.Table{Schema: "My-App", Name: "Outbox"}}
	const want = `--slot s --publication 'Relay-Pub'\''s' --table '"My-App"."Outbox"'`
	if got := cfg.flags(); got != want {
		t.Errorf("flags = %s, want %s", got, want)
	}
}
