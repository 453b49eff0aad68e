package pump

import (
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

// The patience with a silent server doubles from session to session, up to a bound, and starts anew with progress.
func TestSilence(t *testing.T) {
	t.Parallel()
	s := silence{base: 10 * time.Second}
	want := func(d time.Duration) {
		t.Helper()
		if got := s.patience(); got != d {
			t.Errorf("patience is %s, want %s", got, d)
		}
	}
	want(10 * time.Second)
	s.ended(true, false)
	want(20 * time.Second)
	s.ended(false, false) // a cut in between proves nothing
	want(20 * time.Second)
	for range 100 {
		s.ended(true, false)
	}
	want(maxPatience)
	s.ended(true, true)
	want(10 * time.Second)
	s = silence{base: time.Hour}
	s.ended(true, false)
	want(time.Hour)

	// A session that came to the end of the WAL has left behind what kept the server busy; one on the way there has not.
	s = silence{base: time.Second}
	end := pglogrepl.LSN(100)
	for range 2 {
		s.began(&end)
		s.read(99)
		s.ended(true, false)
	}
	want(4 * time.Second)
	s.began(&end)
	s.read(100)
	s.read(101)
	s.ended(true, false)
	want(time.Second)
}
