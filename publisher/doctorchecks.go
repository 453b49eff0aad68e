package publisher

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// When doctor warns.
const (
	full          = 0.99 // what is left takes no event
	nearlyFull    = 0.9
	shortMaxAge   = time.Hour
	soonExpired   = 7 * 24 * time.Hour
	headerRoom    = 512 // bytes that an event's own headers take, and some more
	testedVersion = "2.10"
)

// Checks judges the examination, in the order in which a person would mend things. It is pure.
func (e Examination) Checks() []Check {
	c := checker{Examination: e}
	if e.ConnectErr != nil {
		c.bad(LevelFail, "connection", CodeUnreachable, Advice(e.ConnectErr), "%v", e.ConnectErr)
		return c.done
	}
	c.server()
	c.user()
	if c.Stream == nil {
		c.noStream()
		return c.done
	}
	c.problems = c.Stream.Problems(c.Template)
	c.stream()
	c.limits()
	c.writers()
	for _, p := range c.problems { // what no check above has asked for
		c.problem("stream", p)
	}
	return c.done
}

// checker collects checks. A problem of the stream is taken by the check that it belongs to.
type checker struct {
	Examination
	problems []Problem
	done     []Check
}

func (c *checker) ok(name, format string, args ...any) {
	c.done = append(c.done, Check{Name: name, Level: LevelOK, Text: fmt.Sprintf(format, args...)})
}

func (c *checker) unknown(name, format string, args ...any) {
	c.done = append(c.done, Check{Name: name, Level: LevelUnknown, Text: fmt.Sprintf(format, args...)})
}

func (c *checker) bad(level, name, code, fix, format string, args ...any) {
	c.done = append(c.done, Check{Name: name, Level: level, Code: code, Text: fmt.Sprintf(format, args...), Fix: fix})
}

func (c *checker) problem(name string, p Problem) {
	level := LevelFail
	if p.Severity == Warning {
		level = LevelWarn
	}
	c.done = append(c.done, Check{Name: name, Level: level, Code: p.Code, Text: p.Text, Fix: p.Fix})
}

// take reports the problems with these codes under a name, and whether there were any.
func (c *checker) take(name string, codes ...string) bool {
	left := make([]Problem, 0, len(c.problems))
	for _, p := range c.problems {
		if slices.Contains(codes, p.Code) {
			c.problem(name, p)
		} else {
			left = append(left, p)
		}
	}
	found := len(left) < len(c.problems)
	c.problems = left
	return found
}

func (c *checker) server() {
	c.ok("connection", "%s", c.Servers)
	if older(c.ServerVersion, testedVersion) {
		c.bad(LevelWarn, "nats_version", CodeServerVersion, "", "nats-server %s is older than %s, with which the relay is not tested", c.ServerVersion, testedVersion)
	} else {
		c.ok("nats_version", "nats-server %s", c.ServerVersion)
	}
	switch a := c.Account; {
	case errors.Is(c.AccountErr, ErrNoJetStream):
		c.bad(LevelFail, "jetstream", CodeJetStreamOff, Advice(c.AccountErr), "%s has no JetStream for this account and domain", c.Servers)
	case a == nil && c.Stream != nil:
		c.ok("jetstream", "on; the account's limits are not known: %v", c.AccountErr)
	case a == nil:
		c.unknown("jetstream", "%v", c.AccountErr)
	default:
		c.ok("jetstream", "on, API level %d", a.API.Level)
		c.account(a)
	}
}

func (c *checker) account(a *Account) {
	used, limit, what := a.Storage, a.Limits.MaxStorage, "file storage"
	if c.Stream != nil && c.Stream.Storage == "memory" {
		used, limit, what = a.Memory, a.Limits.MaxMemory, "memory"
	}
	text := fmt.Sprintf("%s of %s of %s are used", sizeText(used), sizeText(limit), what)
	switch {
	case limit <= 0:
		c.ok("account_storage", "no limit")
	case float64(used) >= full*float64(limit):
		c.bad(LevelFail, "account_storage", CodeAccountStorage, "raise the account's limit, or remove streams and messages", "%s: JetStream refuses events", text)
	case float64(used) >= nearlyFull*float64(limit):
		c.bad(LevelWarn, "account_storage", CodeAccountStorage, "raise the account's limit, or remove streams and messages", "%s", text)
	default:
		c.ok("account_storage", "%s", text)
	}
}

// user judges what the server lets the relay's user do. Only publishing could prove it; the server's word has to do.
func (c *checker) user() {
	if c.User == nil {
		c.unknown("permissions", "not checked: %v; a right to publish cannot be tried without publishing", c.UserErr)
		return
	}
	if left := c.User.Expires; left > 0 && left < soonExpired {
		c.bad(LevelWarn, "credentials", CodeCredentialsExpire, "", "they end in %s", left.Round(time.Minute))
	}
	if c.User.Permissions == nil {
		c.ok("permissions", "none is denied to this user")
		return
	}
	before := len(c.done)
	for _, subject := range c.publishes() {
		c.permission(c.User.Permissions.Publish, "publish to", subject)
	}
	c.permission(c.User.Permissions.Subscribe, "subscribe to", c.Inboxes)
	if len(c.done) == before {
		c.ok("permissions", "may publish to %s and subscribe to %s, says the server", strings.Join(c.publishes(), ", "), c.Inboxes)
	}
}

// publishes lists the subjects that a relay sends to.
func (c *checker) publishes() []string {
	api := "$JS.API."
	if c.Domain != "" {
		api = "$JS." + c.Domain + ".API."
	}
	subjects := []string{api + "STREAM.INFO." + c.StreamName, api + "STREAM.MSG.GET." + c.StreamName}
	if pattern, err := templatePattern(c.Template); err == nil {
		subjects = append([]string{pattern}, subjects...)
	}
	return subjects
}

func (c *checker) permission(rule subjectRule, verb, subject string) {
	fix := fmt.Sprintf("let this user %s %s in the server's configuration or its account", verb, subject)
	switch all, some := rule.allows(subject); {
	case all:
	case some:
		c.bad(LevelWarn, "permissions", CodePermission, fix, "this user may %s only a part of %s", verb, subject)
	default:
		c.bad(LevelFail, "permissions", CodePermission, fix, "this user may not %s %s", verb, subject)
	}
}

// noStream says why there is nothing more to judge.
func (c *checker) noStream() {
	err := c.StreamErr
	switch {
	case errors.Is(err, ErrNoJetStream): // said already
	case errors.Is(err, ErrStreamMissing):
		c.bad(LevelFail, "stream", CodeStreamMissing, "relay stream create --stream "+c.StreamName, "stream %s does not exist", c.StreamName)
	case errors.Is(err, ErrNoPermission):
		if !slices.ContainsFunc(c.done, func(check Check) bool { return check.Code == CodePermission }) {
			c.bad(LevelFail, "stream", CodePermission, Advice(err), "%v", err)
		}
	case errors.Is(err, ErrStreamUnavailable):
		c.bad(LevelFail, "stream", CodeStreamNoLeader, Advice(err), "%v", err)
	default:
		c.bad(LevelFail, "stream", CodeStreamUnknown, Advice(err), "%v", err)
	}
}

// older compares the first two numbers of versions like 2.15.3. What cannot be read is not older.
func older(version, than string) bool {
	var have, want [2]int
	if n, _ := fmt.Sscanf(version, "%d.%d", &have[0], &have[1]); n != 2 {
		return false
	}
	_, _ = fmt.Sscanf(than, "%d.%d", &want[0], &want[1])
	return slices.Compare(have[:], want[:]) < 0
}

func sizeText(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }
