package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
)

// ErrPosition is the error of a text that is not a position.
var ErrPosition = errors.New("want <slot>@<system identifier> <commit LSN> <index>")

// Origin names where positions come from: a slot (unique in its cluster) and the cluster's system identifier. Positions of
// different origins cannot be compared.
type Origin struct {
	Slot   string
	System string
}

// String returns the origin as it stands in a message: slot@system.
func (o Origin) String() string { return o.Slot + "@" + o.System }

// Position is the total order of all events of a slot: the commit LSN that the transaction's Begin announces, then the
// event's index in its transaction. A transaction is covered by a confirmed LSN c if and only if its commit LSN < c.
type Position struct {
	CommitLSN pglogrepl.LSN
	Index     uint32
}

// Compare returns -1, 0 or 1 as p is before, at or after q. Both must be of the same origin and timeline.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.CommitLSN, q.CommitLSN), cmp.Compare(p.Index, q.Index))
}

// String returns the position without its origin: "0/1A2B3C8 3".
func (p Position) String() string { return string(p.append(nil)) }

func (p Position) append(b []byte) []byte {
	b = appendHex(b, uint32(p.CommitLSN>>32))
	b = append(b, '/')
	b = appendHex(b, uint32(p.CommitLSN))
	b = append(b, ' ')
	return strconv.AppendUint(b, uint64(p.Index), 10)
}

// AppendPosition appends the text of a position of an origin, as in the header Relay-Position.
func AppendPosition(b []byte, origin string, p Position) []byte {
	b = append(b, origin...)
	b = append(b, ' ')
	return p.append(b)
}

// FormatPosition returns the text of a position as it stands in the header Relay-Position.
func FormatPosition(o Origin, p Position) string { return string(AppendPosition(nil, o.String(), p)) }

// ParsePosition reads what FormatPosition wrote. The error wraps ErrPosition.
func ParsePosition(s string) (Origin, Position, error) {
	origin, rest, ok1 := strings.Cut(s, " ")
	lsn, index, ok2 := strings.Cut(rest, " ")
	high, low, ok3 := strings.Cut(lsn, "/")
	slot, system, ok4 := strings.Cut(origin, "@")
	hi, err1 := strconv.ParseUint(high, 16, 32)
	lo, err2 := strconv.ParseUint(low, 16, 32)
	i, err3 := strconv.ParseUint(index, 10, 32)
	if !ok1 || !ok2 || !ok3 || !ok4 || slot == "" || system == "" || errors.Join(err1, err2, err3) != nil {
		return Origin{}, Position{}, fmt.Errorf("position %q: %w", s, ErrPosition)
	}
	return Origin{Slot: slot, System: system}, Position{CommitLSN: pglogrepl.LSN(hi<<32 | lo), Index: uint32(i)}, nil
}

func appendHex(b []byte, v uint32) []byte {
	const digits = "0123456789ABCDEF"
	shift := 28
	for shift > 0 && v>>shift == 0 {
		shift -= 4
	}
	for ; shift >= 0; shift -= 4 {
		b = append(b, digits[v>>shift&15])
	}
	return b
}
