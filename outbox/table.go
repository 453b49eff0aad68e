package outbox

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// DefaultTable is the outbox table of a relay that names none.
const DefaultTable = "public.outbox"

// ErrTable is the error of a table name that cannot be parsed.
var ErrTable = errors.New(`want table, schema.table or "Schema"."Table"`)

// Table names the outbox table. The names are those of the catalogue: already folded, without quotes.
type Table struct {
	Schema, Name string
}

// ParseTable reads a table name the way SQL does: parts without quotes are folded to lower case, parts in double quotes
// are taken as they are, and a missing schema is public. The error wraps ErrTable.
func ParseTable(s string) (Table, error) {
	parts, err := parseIdentifiers(s)
	if err != nil {
		return Table{}, fmt.Errorf("table %q: %w", s, err)
	}
	switch len(parts) {
	case 1:
		return Table{Schema: "public", Name: parts[0]}, nil
	case 2:
		return Table{Schema: parts[0], Name: parts[1]}, nil
	}
	return Table{}, fmt.Errorf("table %q: %w", s, ErrTable)
}

// SQL returns the name for use in a statement, every part in quotes.
func (t Table) SQL() string { return pgx.Identifier{t.Schema, t.Name}.Sanitize() }

// String returns the name as a person would type it: in quotes only where SQL needs them.
func (t Table) String() string { return quoteIfNeeded(t.Schema) + "." + quoteIfNeeded(t.Name) }

func parseIdentifiers(s string) ([]string, error) {
	var parts []string
	for {
		var part string
		if rest, quoted := strings.CutPrefix(s, `"`); quoted {
			for {
				before, after, ok := strings.Cut(rest, `"`)
				if !ok {
					return nil, ErrTable
				}
				part += before
				if rest, ok = strings.CutPrefix(after, `"`); !ok {
					s = after
					break
				}
				part += `"`
			}
		} else {
			end := strings.IndexAny(s, `."`)
			if end < 0 {
				end = len(s)
			}
			part, s = strings.Map(fold, s[:end]), s[end:]
			if strings.ContainsFunc(part, func(r rune) bool { return !identifierRune(r) }) {
				return nil, ErrTable
			}
		}
		if part == "" || len(part) > 63 || strings.ContainsRune(part, 0) {
			return nil, ErrTable
		}
		parts = append(parts, part)
		if s == "" {
			return parts, nil
		}
		var dot bool
		if s, dot = strings.CutPrefix(s, "."); !dot {
			return nil, ErrTable
		}
	}
}

// fold is how PostgreSQL folds a letter of a name in UTF-8: only those of ASCII.
func fold(r rune) rune {
	if r >= 'A' && r <= 'Z' {
		return r + ('a' - 'A')
	}
	return r
}

func quoteIfNeeded(s string) string {
	plain := s != "" && !(s[0] >= '0' && s[0] <= '9') &&
		!strings.ContainsFunc(s, func(r rune) bool { return !identifierRune(r) || (r >= 'A' && r <= 'Z') || r >= 0x80 })
	if plain {
		return s
	}
	return pgx.Identifier{s}.Sanitize()
}

func identifierRune(r rune) bool {
	return r == '_' || r == '$' || (r >= '0' && r <= '9') || (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z') || r >= 0x80
}
