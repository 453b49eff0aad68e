package app

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// signalError is the cause of a context that a signal ended.
type signalError struct{ signal os.Signal }

func (e *signalError) Error() string { return fmt.Sprintf("signal %v", e.signal) }

// withSignals returns a context that the first SIGTERM or SIGINT cancels, with a *signalError as its cause. At a second
// one it calls force, which should end the process at once. stop gives the signals back and waits for its goroutine.
func withSignals(parent context.Context, force func()) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	done := make(chan struct{})
	var owner sync.WaitGroup
	owner.Go(func() {
		for received := 0; ; received++ {
			select {
			case s := <-signals:
				if received > 0 {
					force()
					return
				}
				cancel(&signalError{signal: s})
			case <-done:
				return
			}
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		owner.Wait()
		cancel(context.Canceled)
	}
}

// exitNow ends the process without any clean-up.
func exitNow() {
	os.Exit(exitFailed) //nolint:forbidigo // a second signal means: at once
}
