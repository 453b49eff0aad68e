package slot

import (
	"errors"
	"fmt"
	"strings"

	"github.com/seed-1cfd9858/relay/outbox"
)

// The names that a relay uses when it is given none.
const (
	DefaultSlot        = "outbox_relay"
	DefaultPublication = "outbox_relay"
)

// maxNameBytes is the longest name that PostgreSQL keeps whole.
const maxNameBytes = 63

// Config names the three things in PostgreSQL that belong to one relay.
type Config struct {
	Slot        string       // the replication slot: [a-z0-9_]{1,63}
	Publication string       // 1 to 63 bytes, as in the catalogue (not folded, no quotes)
	Table       outbox.Table // the outbox table
}

// Validate checks all names without a connection. It joins all errors; each wraps [ErrConfig] and names the key and the
// value. Slot names become part of a replication command without quotes, so nothing may be sent before this returned nil.
func (c Config) Validate() error {
	var errs []error
	if !validSlotName(c.Slot) {
		errs = append(errs, fmt.Errorf("slot %q: want [a-z0-9_]{1,63}: %w", c.Slot, ErrConfig))
	}
	for _, n := range []struct{ key, value string }{
		{"publication", c.Publication},
		{"table: schema", c.Table.Schema},
		{"table: name", c.Table.Name},
	} {
		if n.value == "" || len(n.value) > maxNameBytes || strings.ContainsRune(n.value, 0) {
			errs = append(errs, fmt.Errorf("%s %q: want 1 to %d bytes without NUL: %w", n.key, n.value, maxNameBytes, ErrConfig))
		}
	}
	return errors.Join(errs...)
}

func validSlotName(s string) bool {
	return s != "" && len(s) <= maxNameBytes && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_'
	})
}

// flags returns the relay's flags that name this configuration, ready for a shell.
func (c Config) flags() string {
	return "--slot " + c.Slot + " --publication " + shellQuote(c.Publication) + " --table " + shellQuote(c.Table.String())
}

// TooOld is the problem of a slot that still has to read WAL from before its publication: the server says so only while it
// decodes (SQLSTATE 42704 from versions before 18).
func TooOld(c Config) Problem {
	return Problem{
		Code: CodePublicationMaybeYounger, Severity: Broken, Kind: KindPublication, Fix: c.recreate(),
		Text: fmt.Sprintf("slot %q is older than publication %q and still has to read WAL from before it: creating the publication again "+
			"does not help; a new slot does, and relay slot create says how to send the rows that it does not cover", c.Slot, c.Publication),
	}
}

// recreate is the way out when a slot can never be used again.
func (c Config) recreate() string {
	return "relay slot drop --slot " + c.Slot + " && relay slot create " + c.flags()
}

func shellQuote(s string) string {
	plain := s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_-./", r)
	})
	if plain {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
