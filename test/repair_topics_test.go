package test

import (
	"strings"
	"sync"
	"testing"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// Topics that are no valid subjects never reach the broker: the relay halts at each, and goes on when it is left out.
func TestC18_InvalidTopics(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms, Flags: []string{"--subject={topic}"}})
	var mu sync.Mutex
	published, connections := map[string]bool{}, map[int]bool{}
	w.NATSProxy.OnNATS(func(m sandbox.NATSMessage) sandbox.Action {
		mu.Lock()
		defer mu.Unlock()
		connections[m.Connection] = true
		if m.ToServer && (m.Op == "PUB" || m.Op == "HPUB") && !strings.HasPrefix(m.Subject, "$JS.API.") {
			published[m.Subject] = true
		}
		return sandbox.Forward
	})
	r := &rows{t: t, w: w}
	const sql = `INSERT INTO outbox (id, topic, payload) VALUES ($1, $2, '{}')`
	bad := []struct{ topic, reason string }{
		{"a b", "blank"},
		{"a\nb", "blank"},
		{"a\tb", "blank"},
		{"", "its topic is NULL or empty"},
		{".a", "empty token"},
		{"a.", "empty token"},
		{"a..b", "empty token"},
		{"*", "wildcard"},
		{"a.*", "wildcard"},
		{"a.>", "wildcard"},
		{">", "wildcard"},
		{"$JS.API.STREAM.DELETE." + w.StreamName, "belong to NATS itself"},
		{"_INBOX.x", "belong to NATS itself"},
		{w.Subject(strings.Repeat("x", 1024)), "over the limit of 1024"},
	}
	ids := make([]string, len(bad))
	good := []string{w.Subject("über.straße"), w.Subject("a*b"), w.Subject("order.created")}
	for i, b := range bad {
		r.put(sql, good[i%len(good)])
		ids[i] = r.id()
		w.Exec(sql, ids[i], b.topic)
	}
	r.put(sql, good[0])
	stored := r.good
	for i, b := range bad {
		r.good = stored[:i+1]
		r.halt(ids[i], b.reason, r.w.Slot)
	}
	r.good = stored
	r.rest()

	mu.Lock()
	defer mu.Unlock()
	for _, subject := range good {
		if !published[subject] {
			t.Errorf("nothing was published to %q", subject)
		}
		delete(published, subject)
	}
	if len(published) > 0 {
		t.Errorf("these reached the broker: %v", published)
	}
	t.Logf("%d connections of %d relays", len(connections), len(bad)+1)
	if n, relays := len(connections), len(bad)+1; n > relays {
		t.Errorf("%d connections of %d relays", n, relays)
	}
}
