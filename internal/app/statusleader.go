package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/seed-1cfd9858/relay/pump"
	"github.com/seed-1cfd9858/relay/slot"
)

// leaderTimeout is how long a relay may take to say how it is.
const leaderTimeout = 2 * time.Second

// relayAddress is where the leader can be asked.
type relayAddress struct {
	url   *url.URL // nil: nowhere
	given bool     // the operator said so; else it is the local port, which may be anybody's
}

func (a *app) readRelay(s *setting) relayAddress {
	values, given := a.reader.raw(s)
	text := s.def
	switch {
	case given:
		text = values[len(values)-1]
	case a.reader.none(s):
		return relayAddress{}
	}
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		a.reader.wrong(s, "", "want http://host:port, as the relay's log names it") // not shown: it may hold a password
		return relayAddress{}
	}
	return relayAddress{url: u, given: given}
}

// errNotLeader is the error of a relay that answers and does not hold the slot.
var errNotLeader = errors.New("does not hold the slot")

// ask asks the relay that holds the slot how it is. A relay of another slot, or of a slot of the same name elsewhere, is not
// taken for it: process and start of the session tell them apart.
func (r relayAddress) ask(ctx context.Context, held *slot.Slot) (*selfStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url.JoinPath("status").String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, fmt.Errorf("cannot ask the relay at %s: %w", r.name(), err)
	}
	defer func() { _ = response.Body.Close() }()
	var status selfStatus
	const most = 1 << 20
	if err := json.NewDecoder(io.LimitReader(response.Body, most)).Decode(&status); err != nil || status.State == "" || response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s does not answer as a relay does: %s", r.name(), response.Status)
	}
	if !r.holds(&status, held) {
		return nil, fmt.Errorf("the relay at %s %w: it is in state %s, for the slot %q", r.name(), errNotLeader, status.State, status.Slot)
	}
	return &status, nil
}

func (r relayAddress) holds(status *selfStatus, held *slot.Slot) bool {
	state := pump.State(status.State)
	leading := (&pump.Status{State: state}).Leading()
	if !leading || status.Slot != held.Name || status.Holder == nil || held.ActivePID == nil || status.Holder.PID != *held.ActivePID {
		return false
	}
	if held.Holder == nil || held.Holder.Since == nil || status.Holder.Since == nil { // hidden from one of the two roles
		return r.given
	}
	return held.Holder.Since.Equal(*status.Holder.Since)
}

// name is the address without a password.
func (r relayAddress) name() string { return r.url.Redacted() }

// addLeader takes in what the leader says of itself.
func (r *statusReport) addLeader(address relayAddress, s *selfStatus) {
	name := address.name()
	if r.Leader == nil {
		return
	}
	r.Leader.State, r.Leader.WaitingFor, r.Leader.WaitingSince, r.Leader.URL = &s.State, s.WaitingFor, s.WaitingSince, &name
	r.LastFailure = s.LastFailure
	if !s.Ready {
		fix := ""
		if s.LastFailure != nil && s.WaitingFor != nil {
			fix = valueOr(s.LastFailure.Advice, "")
		}
		r.add(broken, codeLeaderNotReady, "the leader is not ready: "+oneLine(valueOr(s.Reason, s.State)), fix)
	}
}

// addLeaderUnknown says why the leader's own figures are missing. Nobody has to run one at the local port.
func (r *statusReport) addLeaderUnknown(address relayAddress, err error) {
	if !address.given {
		return
	}
	code := codeRelayUnreachable
	if errors.Is(err, errNotLeader) {
		code = codeRelayNotLeader
	}
	r.add(warning, code, oneLine(err.Error()), "give the address that the leader's log names, or leave --relay out")
}
