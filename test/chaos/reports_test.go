package main

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReports(t *testing.T) {
	t.Parallel()
	r := &reports{broken: map[string]bool{}}
	for _, line := range []string{
		`level=INFO msg=leading slot=outbox_relay confirmed_lsn=0/19263C0`,
		`level=ERROR msg="order broken: an event is in the stream and an earlier one is not" event_id=abc position="s@1 0/1 0"`,
		`level=ERROR msg="order broken: an event is in the stream and an earlier one is not" event_id=def`,
		`panic: I1: an event outside a transaction`,
		`level=INFO msg="do not panic: all is well"`,
		`fatal error: all goroutines are asleep`,
		`WARNING: DATA RACE`,
	} {
		r.read(line)
	}
	if diff := cmp.Diff([]string{"abc", "def"}, slices.Sorted(maps.Keys(r.broken))); diff != "" {
		t.Error(diff)
	}
	if len(r.never) != 3 || r.purged {
		t.Errorf("%+v", r)
	}
	if r.read(`level=WARN msg="` + saysPurged + `: events that were stored"`); !r.purged {
		t.Errorf("%+v", r)
	}
}
