package outbox

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
)

func TestPosition_RoundTrip(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		origin   Origin
		position Position
		text     string
	}{
		{Origin{"outbox_relay", "7412345678901234567"}, Position{0x1A2B3C8, 3}, "outbox_relay@7412345678901234567 0/1A2B3C8 3"},
		{Origin{"s", "1"}, Position{}, "s@1 0/0 0"},
		{Origin{"s", "1"}, Position{1 << 32, 1}, "s@1 1/0 1"},
		{Origin{"s", "1"}, Position{0xF0000000_0000000F, 10}, "s@1 F0000000/F 10"},
		{Origin{"s", "1"}, Position{0x10_00000010, 0}, "s@1 10/10 0"},
		{Origin{"s", "1"}, Position{math.MaxUint64, math.MaxUint32}, "s@1 FFFFFFFF/FFFFFFFF 4294967295"},
	} {
		if got := FormatPosition(test.origin, test.position); got != test.text {
			t.Errorf("%q, want %q", got, test.text)
		}
		if got := string(AppendPosition([]byte("x"), test.origin.String(), test.position)); got != "x"+test.text {
			t.Errorf("appended %q, want %q", got, "x"+test.text)
		}
		if got := test.origin.String() + " " + test.position.String(); got != test.text {
			t.Errorf("%q, want %q", got, test.text)
		}
		if lsn := strings.Fields(test.text)[1]; test.position.CommitLSN.String() != lsn {
			t.Errorf("LSN %s, want %s", lsn, test.position.CommitLSN)
		}
		origin, position, err := ParsePosition(test.text)
		if origin != test.origin || position != test.position || err != nil {
			t.Errorf("%q parsed as %v %v, %v", test.text, origin, position, err)
		}
	}
}

func TestParsePosition_Errors(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", " ", "s@1", "s@1 0/0", "s@1 0/0 ", "s@1 0/0 x", "s@1 0/0 -1", "s@1 0/0 +1", "s@1 0/0 4294967296", "s@1 0/0 1 2", "s@1 0/0 1 ",
		" s@1 0/0 1", "s@1  0/0 1", "s@1 00 1", "s@1 / 1", "s@1 0/ 1", "s@1 /0 1", "s@1 0/0/0 1", "s@1 G/0 1", "s@1 0/100000000 1",
		"s@1 100000000/0 1", "s@1 -1/0 1", "s@1 0x1/0 1", "s@1 1_0/0 1", "s 0/0 1", "@1 0/0 1", "s@ 0/0 1", "@ 0/0 1", "0/0 1", "s@1\t0/0\t1",
	} {
		if origin, position, err := ParsePosition(text); !errors.Is(err, ErrPosition) || origin != (Origin{}) || position != (Position{}) {
			t.Errorf("%q parsed as %v %v, %v", text, origin, position, err)
		}
	}
}

func TestPosition_Compare(t *testing.T) {
	t.Parallel()
	order := []Position{{}, {0, 1}, {0, math.MaxUint32}, {1, 0}, {1, 1}, {1 << 31, 0}, {1 << 32, 0}, {1 << 63, 0}, {math.MaxUint64, 0}, {math.MaxUint64, 7}}
	if !slices.IsSortedFunc(order, Position.Compare) {
		t.Error("not sorted")
	}
	for i, p := range order {
		for j, q := range order {
			if p.Compare(q) != cmp.Compare(i, j) {
				t.Errorf("%s to %s: %d", p, q, p.Compare(q))
			}
		}
	}
}

func FuzzPosition(f *testing.F) {
	for _, s := range []string{"outbox_relay@7412345678901234567 0/1A2B3C8 3", "s@1 FFFFFFFF/FFFFFFFF 4294967295", "s@1 0/0 -1", "", "a@b@c 00/0a 01"} {
		f.Add(s, uint64(0x1A2B3C8), uint32(3))
	}
	f.Fuzz(func(t *testing.T, s string, lsn uint64, index uint32) {
		want := Position{CommitLSN: pglogrepl.LSN(lsn), Index: index}
		origin, got, err := ParsePosition(s)
		if err == nil { // then its canonical form is the same position
			o, p, err := ParsePosition(FormatPosition(origin, got))
			if o != origin || p != got || err != nil {
				t.Fatalf("%q: %v %v, then %v %v, %v", s, origin, got, o, p, err)
			}
		}
		o, p, err := ParsePosition(FormatPosition(Origin{"s", "1"}, want))
		if o != (Origin{"s", "1"}) || p != want || err != nil {
			t.Fatalf("%v came back as %v %v, %v", want, o, p, err)
		}
	})
}
