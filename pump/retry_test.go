package pump

import (
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

// The patience with a silent server doubles from session to session, up to a bound. It starts anew after a session that came
// to the end of the WAL, and so left behind what kept the server busy; one on the way there changes nothing.
func TestSilence(t *testing.T) {
	t.Parallel()
	const silent, cut = true, false
	end := pglogrepl.LSN(100)
	s := silence{base: 10 * time.Second}
	session := func(read pglogrepl.LSN, how bool, want time.Duration) {
		t.Helper()
		s.began(&end)
		s.read(read)
		s.ended(how)
		if got := s.patience(); got != want {
			t.Errorf("patience is %s, want %s", got, want)
		}
	}
	session(99, silent, 20*time.Second)
	session(99, cut, 20*time.Second) // proves nothing
	session(99, silent, 40*time.Second)
	session(100, cut, 10*time.Second)
	session(100, silent, 10*time.Second)
	for range 100 {
		s.began(&end)
		s.ended(silent)
	}
	session(99, silent, maxPatience)
	session(100, silent, 10*time.Second)

	s = silence{base: time.Hour}
	session(99, silent, time.Hour)
}
