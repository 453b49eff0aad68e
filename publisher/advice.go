package publisher

import "errors"

// Advice says what a person can do about an error of this package, "" if there is nothing to do but wait.
func Advice(err error) string {
	if e, ok := errors.AsType[*ConnectError](err); ok {
		return e.Advice
	}
	if e, ok := errors.AsType[*UnfitError](err); ok {
		return e.Problem.Fix
	}
	if e, ok := errors.AsType[*EpochError](err); ok {
		return e.advice()
	}
	switch {
	case errors.Is(err, ErrStreamMissing):
		return "create it (relay stream create), or check --stream and the account"
	case errors.Is(err, ErrNoJetStream):
		return "enable it (nats-server -js, or jetstream {} in its configuration), or check --js-domain"
	case errors.Is(err, ErrNoPermission):
		return "let this user publish to $JS.API.> (or the subject above) and subscribe to _INBOX.>"
	case errors.Is(err, ErrStreamUnavailable):
		return "wait for the cluster, then look at: nats stream info"
	}
	return ""
}

func (e *EpochError) advice() string {
	switch e.Reason {
	case ReasonRefused:
		return "look at the stream's limits and state (nats stream info), and at the server's log"
	case ReasonNoResponders:
		return "see that the stream is there, listens to the subject and has a leader: relay status"
	case ReasonPermission:
		return "let this user publish to the subject, and subscribe to _INBOX.>"
	case ReasonOtherStream, ReasonAnswer:
		return "something else listens to the subject: give it to this stream alone"
	case ReasonDuplicate, ReasonSequence:
		return "somebody else writes into the stream: give this relay a stream of its own"
	case ReasonTimeout, ReasonConnection: // what comes back by itself
	}
	return ""
}
