package outbox

import (
	"errors"
	"strings"
	"testing"
)

func TestParseTable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, schema, name, sql, shown string }{
		{"outbox", "public", "outbox", `"public"."outbox"`, "public.outbox"},
		{DefaultTable, "public", "outbox", `"public"."outbox"`, "public.outbox"},
		{"Outbox", "public", "outbox", `"public"."outbox"`, "public.outbox"},
		{"Shop.Outbox_2$", "shop", "outbox_2$", `"shop"."outbox_2$"`, "shop.outbox_2$"},
		{`"Outbox"`, "public", "Outbox", `"public"."Outbox"`, `public."Outbox"`},
		{`"My-App"."Outbox"`, "My-App", "Outbox", `"My-App"."Outbox"`, `"My-App"."Outbox"`},
		{`shop."Outbox"`, "shop", "Outbox", `"shop"."Outbox"`, `shop."Outbox"`},
		{`"a.b".c`, "a.b", "c", `"a.b"."c"`, `"a.b".c`},
		{`"say ""hi"""`, "public", `say "hi"`, `"public"."say ""hi"""`, `public."say ""hi"""`},
		{`""""`, "public", `"`, `"public".""""`, `public.""""`},
		{`"a b; DROP TABLE x --"`, "public", "a b; DROP TABLE x --", `"public"."a b; DROP TABLE x --"`, `public."a b; DROP TABLE x --"`},
		{"straße", "public", "straße", `"public"."straße"`, `public."straße"`},
		{"ÜBER", "public", "Über", `"public"."Über"`, `public."Über"`}, // only ASCII is folded
		{strings.Repeat("a", 63), "public", strings.Repeat("a", 63), `"public"."` + strings.Repeat("a", 63) + `"`, "public." + strings.Repeat("a", 63)},
	} {
		table, err := ParseTable(test.text)
		if err != nil || table != (Table{test.schema, test.name}) || table.SQL() != test.sql || table.String() != test.shown {
			t.Errorf("%s is %q, SQL %s, String %s, %v", test.text, table, table.SQL(), table, err)
			continue
		}
		if again, err := ParseTable(table.String()); again != table || err != nil {
			t.Errorf("%s came back as %q, %v", table, again, err)
		}
		if again, err := ParseTable(table.SQL()); again != table || err != nil {
			t.Errorf("%s came back as %q, %v", table.SQL(), again, err)
		}
	}
	for _, text := range []string{
		"", ".", "a.", ".a", "a.b.c", `""`, `"".a`, `a.""`, `"a`, `a"`, `"a"b`, `a"b"`, `"a" . "b"`, "a b", "a-b", "a;b", "a\x00", "\"a\x00b\"", " a", "a ",
		strings.Repeat("a", 64), `"` + strings.Repeat("ü", 32) + `"`, "a.b.", "a..b", "'a'",
	} {
		if table, err := ParseTable(text); !errors.Is(err, ErrTable) {
			t.Errorf("%q is the table %q, %v", text, table, err)
		}
	}
}
