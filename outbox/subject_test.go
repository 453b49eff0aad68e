package outbox

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestC18_Subjects(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		topic        string
		plain, fixed bool // legal through {topic}, through outbox.{topic}
	}{
		{"order.created", true, true},
		{"über.straße", true, true},
		{"a*b", true, true},
		{"a>b.*c.>>", true, true},
		{"a.b_c-d/e:f", true, true},
		{"a$b.$c", true, true},
		{"a\x7fb", true, true},
		{"_INBOXES.x", true, true},
		{"Outbox.{topic}", true, true},
		{strings.Repeat("a", MaxSubjectBytes-len("outbox.")), true, true},
		{strings.Repeat("a", MaxSubjectBytes), true, false},
		{strings.Repeat("a", MaxSubjectBytes+1), false, false},

		{"a b", false, false},
		{"a\nb", false, false},
		{"a\rb", false, false},
		{"a\tb", false, false},
		{"a\fb", false, false},
		{"a\vb", false, false},
		{" a", false, false},
		{"a ", false, false},
		{"", false, false},
		{".", false, false},
		{".a", false, false},
		{"a.", false, false},
		{"a..b", false, false},
		{"*", false, false},
		{"a.*", false, false},
		{"*.a", false, false},
		{"a.*.b", false, false},
		{"a.>", false, false},
		{">", false, false},
		{"a.>.b", false, false},
		{"a\x00b", false, false},
		{"a\xffb", false, false},

		// Only the start of a subject can be NATS's own.
		{"$JS.API.STREAM.DELETE.X", false, true},
		{"$SYS.x", false, true},
		{"_INBOX.x", false, true},
		{"_INBOX", false, true},
	} {
		for template, legal := range map[string]bool{"{topic}": test.plain, DefaultTemplate: test.fixed} {
			d := newDecoder(t, template, standard(typeText))
			for range 2 { // the second time from memory
				ev := decode(t, d, "the-id", test.topic, "p", nil, nil, nil, nil)
				err := ev.Check(Limits{})
				if (err == nil) != legal {
					t.Errorf("topic %.60q through %s: %v", test.topic, template, err)
				}
				if subject := strings.Replace(template, "{topic}", test.topic, 1); ev.Subject != subject {
					t.Errorf("subject %q, want %q", ev.Subject, subject)
				}
				var poison *PoisonError
				if err != nil && (!errors.As(err, &poison) || poison.ID != "the-id" || poison.Subject != ev.Subject || !strings.Contains(err.Error(), `id="the-id"`)) {
					t.Errorf("%q: %v", test.topic, err)
				}
			}
		}
	}
}

// TestDecoder_ManySubjects: what is remembered of subjects is bounded, and right again after it was forgotten.
func TestDecoder_ManySubjects(t *testing.T) {
	t.Parallel()
	d := newDecoder(t, "o.{id}", standard(typeText))
	for i := range 20_000 {
		id := strings.Repeat("*", i%2+1) + strings.Repeat(".x", i/2%3000)
		if i%2 == 0 {
			id = id[1:] + "y"
		}
		ev := decode(t, d, id, "t", "p", nil, nil, nil, nil)
		if ev.Subject != "o."+id {
			t.Fatalf("subject %q", ev.Subject)
		}
		if fault := subjectFault(ev.Subject); reason(t, &ev) != fault {
			t.Fatalf("%q: %q, want %q", ev.Subject, reason(t, &ev), fault)
		}
		if len(d.subjects) > 4096 {
			t.Fatalf("%d subjects are remembered", len(d.subjects))
		}
	}
}

func TestParseTemplate(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text, prefix string
		columns      []string
	}{
		{"outbox.{topic}", "outbox.", []string{"topic"}},
		{"{topic}", "", []string{"topic"}},
		{"{topic}.x", "", []string{"topic"}},
		{"orders.{region}.{topic}", "orders.", []string{"region", "topic"}},
		{"{a}{b}", "", []string{"a", "b"}},
		{"x-{a}.{b}.{a}", "x-", []string{"a", "b"}},
		{"o.{Mixed Case}", "o.", []string{"Mixed Case"}},
		{"o.*{topic}", "o.*", []string{"topic"}},
		{"über.{topic}.straße", "über.", []string{"topic"}},
	} {
		template, err := ParseTemplate(test.text)
		if err != nil {
			t.Errorf("%q: %v", test.text, err)
			continue
		}
		if template.String() != test.text || template.Prefix() != test.prefix || !slices.Equal(template.Columns(), test.columns) {
			t.Errorf("%q: String %q, Prefix %q, Columns %q", test.text, template, template.Prefix(), template.Columns())
		}
	}
	for _, text := range []string{
		"", "outbox", "outbox.", "{}", "o.{}", "o.{topic", "o.topic}", "o.{to{pic}", "o.{topic}}", "}{topic}", "{{topic}}",
		".{topic}", "{topic}.", "a..{topic}", "a b.{topic}", "a.\n{topic}", "*.{topic}", "{topic}.>", "$JS.{topic}", "_INBOX.{topic}",
		"a\x00.{topic}", "\xff.{topic}", strings.Repeat("a", MaxSubjectBytes) + ".{topic}",
	} {
		if template, err := ParseTemplate(text); !errors.Is(err, ErrTemplate) {
			t.Errorf("%.60q is the template %v, %v", text, template, err)
		}
	}
	if zero := (Template{}); zero.String() != "" || zero.Prefix() != "" || zero.Columns() != nil {
		t.Errorf("zero value: %q, %q, %q", zero, zero.Prefix(), zero.Columns())
	}
}

// TestTemplate_Columns renders several columns; NULL is an empty token, or nothing inside one.
func TestTemplate_Columns(t *testing.T) {
	t.Parallel()
	columns := append(standard(typeText), column{"region", typeText})
	for _, test := range []struct {
		template string
		region   any
		want     string
		legal    bool
	}{
		{"o.{region}.{topic}.{aggregate_id}", "eu", "o.eu.t.a", true},
		{"o.{region}.{topic}", nil, "o..t", false},
		{"o.{region}.{topic}", "", "o..t", false},
		{"o.x{region}.{topic}", nil, "o.x.t", true},
		{"o.{topic}{region}{topic}", nil, "o.tt", true},
		{"{region}.{topic}", "$JS", "$JS.t", false},
		{"o.{region}.{topic}", "*", "o.*.t", false},
		{"o.{region}{region}.{topic}", "*", "o.**.t", true},
		{"o.{topic}.{region}", "a.b", "o.t.a.b", true},
		{"o.{payload}.{id}.{sequence}", "-", "o.p.1.7", true},
	} {
		d := newDecoder(t, test.template, columns)
		ev := decode(t, d, "1", "t", "p", "a", "7", nil, nil, test.region)
		if ev.Subject != test.want || (reason(t, &ev) == "") != test.legal {
			t.Errorf("%s with %v: %q, reason %q", test.template, test.region, ev.Subject, reason(t, &ev))
		}
	}
}

// FuzzSubject: what passes for a subject holds what NATS asks of one, seen token by token.
func FuzzSubject(f *testing.F) {
	for _, s := range []string{"a.b", "a b", "", ".", "a..b", "*", "a.>", "$JS.x", "_INBOX.x", "über.straße", "a*b", "a\x00b", "\xff"} {
		f.Add("outbox.{topic}", s)
		f.Add("{topic}", s)
		f.Add(s+"{topic}", "x")
	}
	f.Fuzz(func(t *testing.T, text, topic string) {
		template, err := ParseTemplate(text)
		if err != nil {
			if !errors.Is(err, ErrTemplate) {
				t.Fatal(err)
			}
			template = mustTemplate(t, DefaultTemplate)
		}
		rendered, rest := "", template.String()
		for _, name := range template.Columns() {
			if name != ColumnTopic {
				return // the row below has no such column
			}
		}
		for rest != "" {
			before, after, _ := strings.Cut(rest, "{topic}")
			rendered += before
			if len(before) < len(rest) {
				rendered += topic
			}
			rest = after
		}
		d := newDecoder(t, template.String(), []column{{"id", typeUUID}, {"topic", typeText}, {"payload", typeText}})
		ev := decode(t, d, "1", topic, "p")
		if ev.Subject != rendered {
			t.Fatalf("%q with %q is %q, want %q", template, topic, ev.Subject, rendered)
		}
		legal := topic != "" && utf8.ValidString(rendered) && len(rendered) <= MaxSubjectBytes &&
			!strings.ContainsAny(rendered, " \t\r\n\f\v\x00") && rendered[0] != '$'
		tokens := strings.Split(rendered, ".")
		legal = legal && tokens[0] != "_INBOX" && !slices.Contains(tokens, "") && !slices.Contains(tokens, "*") && !slices.Contains(tokens, ">")
		if why := reason(t, &ev); (why == "") != legal {
			t.Fatalf("%q: %q", rendered, why)
		}
	})
}
