package publisher

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestDoctorChecks has what a server of the other tests cannot show.
func TestDoctorChecks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sick func(*Examination)
		want string // "!" before a failure, "?" where something could not be looked at
	}{
		"well":              {func(*Examination) {}, ""},
		"old server":        {func(e *Examination) { e.ServerVersion = "2.9.25" }, "nats_version"},
		"unreadable":        {func(e *Examination) { e.ServerVersion = "dev" }, ""},
		"credentials end":   {func(e *Examination) { e.User.Expires = time.Hour }, "nats_credentials_expire"},
		"credentials last":  {func(e *Examination) { e.User.Expires = 1000 * time.Hour }, ""},
		"user not known":    {func(e *Examination) { e.User, e.UserErr = nil, errUserHidden }, "?"},
		"account not known": {func(e *Examination) { e.Account, e.AccountErr = nil, errors.New("no answer") }, ""},
		"account fills":     {func(e *Examination) { e.Account.Storage, e.Account.Limits.MaxStorage = 91, 100 }, "account_storage"},
		"memory fills": {func(e *Examination) {
			e.Stream.Storage = "memory"
			e.Account.Memory, e.Account.Limits.MaxMemory = 100, 100
		}, "!account_storage stream_memory"},
		"no leader":       {func(e *Examination) { e.Stream, e.StreamErr = nil, ErrStreamUnavailable }, "!stream_no_leader"},
		"no answer":       {func(e *Examination) { e.Stream, e.StreamErr = nil, errors.New("no answer") }, "!stream_unknown"},
		"tail not known":  {func(e *Examination) { e.Tail, e.TailErr = nil, errors.New("no answer") }, "?"},
		"no system":       {func(e *Examination) { e.Tail = nil }, "?"},
		"refusing limits": {func(e *Examination) { e.Stream.MaxMsgsPerSubject, e.Stream.DiscardNewPerSubject = 1, true }, "stream_subject_limit"},
		"bytes":           {func(e *Examination) { e.Stream.MaxBytes, e.Stream.Bytes = 1000, 950 }, "stream_full"},
	} {
		e := Examination{
			Servers: "nats://h:4222", StreamName: "S", Template: "s.{topic}", Inboxes: "_INBOX.>", ServerVersion: "2.15.3", MaxPayload: 1 << 20, Account: &Account{},
			User: &User{}, Tail: &Tail{Read: 3},
			Stream: &Stream{
				Name: "S", Subjects: []string{"s.>"}, Storage: "file", Retention: "limits", Discard: "new", Replicas: 3,
				DuplicateWindow: DefaultDuplicateWindow, AllowBatched: true, APILevel: BatchAPILevel,
			},
		}
		c.sick(&e)
		var got []string
		for _, check := range e.Checks() {
			switch {
			case check.Level == LevelUnknown:
				got = append(got, "?")
			case check.Level == LevelFail:
				got = append(got, "!"+check.Code)
			case check.Code != "":
				got = append(got, check.Code)
			}
			if check.Name == "" || check.Text == "" || (check.Code == "") != (check.Level == LevelOK || check.Level == LevelUnknown) {
				t.Errorf("%s: %+v", name, check)
			}
		}
		slices.Sort(got)
		if want := strings.Fields(c.want); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestSubjectRule(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		allow, deny string
		all, some   bool
	}{
		{"", "", true, true},
		{"s.>", "", true, true},
		{">", "t.>", true, true},
		{"s.order", "", false, true},
		{"t.>", "", false, false},
		{"", "s.>", false, false},
		{"", "s.secret", false, true},
		{"s.>", "*.secret", false, true},
	} {
		all, some := subjectRule{Allow: strings.Fields(c.allow), Deny: strings.Fields(c.deny)}.allows("s.>")
		if all != c.all || some != c.some {
			t.Errorf("allow %q deny %q: %v, %v", c.allow, c.deny, all, some)
		}
	}
}

func TestPayloadAndRetention(t *testing.T) {
	t.Parallel()
	e := Examination{MaxPayload: 10000, Stream: &Stream{Name: "S", MaxMsgSize: -1, DuplicateWindow: 2 * time.Minute}}
	for bytes, want := range map[int64]string{0: LevelOK, 5000: LevelOK, 9000: LevelWarn, 9600: LevelFail, 1 << 20: LevelFail} {
		if got := e.PayloadCheck(bytes, "3 rows"); got.Level != want {
			t.Errorf("%d bytes: %+v", bytes, got)
		}
	}
	e.Stream.MaxMsgSize = 1000
	if got := e.PayloadCheck(700, "3 rows"); got.Level != LevelFail || !strings.Contains(got.Fix, "nats stream edit S") {
		t.Errorf("over the stream's limit: %+v", got)
	}
	for retention, want := range map[time.Duration]string{time.Minute: LevelFail, 2 * time.Minute: LevelOK, time.Hour: LevelOK} {
		if got, ok := e.RetentionCheck(retention); !ok || got.Level != want {
			t.Errorf("%s: %+v", retention, got)
		}
	}
	if _, ok := e.RetentionCheck(0); ok {
		t.Error("a retention that was not given was judged")
	}
	for d, want := range map[time.Duration]string{2 * time.Minute: "2m", 168 * time.Hour: "168h", 90 * time.Second: "1m30s", 100 * time.Millisecond: "100ms"} {
		if got := short(d); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}
