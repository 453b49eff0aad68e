package app

import "testing"

// Of a flag that is given twice the last one counts, whichever of the two is empty.
func TestTheLastFlagCounts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		given []string
		env   string
		want  string
		chose bool
	}{
		{nil, "", defaultListen, false},
		{nil, ":1", ":1", true},
		{[]string{":2"}, ":1", ":2", true},
		{[]string{"", ":2"}, "", ":2", true},
		{[]string{":2", ""}, "", "", true},
		{[]string{""}, ":1", "", true},
		{[]string{":2", ":3"}, "", ":3", true},
	} {
		r := &reader{env: map[string]string{}, sources: map[string]string{}}
		if test.env != "" {
			r.env["RELAY_LISTEN"] = test.env
		}
		s := &setting{name: "listen", def: defaultListen, env: []string{"RELAY_LISTEN"}, optional: true, given: test.given}
		if address, chose := readListen(r, s); address != test.want || chose != test.chose || len(r.complaints) > 0 {
			t.Errorf("%q, %q: %q, %v, %v", test.given, test.env, address, chose, r.complaints)
		}
	}
	r := &reader{env: map[string]string{}, sources: map[string]string{}}
	all := &setting{name: "skip-event", repeat: true, given: []string{"a", ""}}
	if values, given := r.raw(all); given || values != nil || len(r.complaints) != 1 {
		t.Errorf("an empty one among several: %v, %v", values, r.complaints)
	}
	must := &setting{name: "slot", given: []string{"", "x"}}
	if r.text(must) != "x" || len(r.complaints) != 1 {
		t.Errorf("%v", r.complaints)
	}
}
