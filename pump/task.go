package pump

import "context"

// task is a piece of work beside the loop that owns it. It touches nothing of the loop's and wakes it when it ends.
type task[T any] struct {
	done   chan struct{}
	cancel context.CancelFunc
	value  T
	err    error
}

func startTask[T any](ctx context.Context, wake func(), work func(context.Context) (T, error)) *task[T] {
	ctx, cancel := context.WithCancel(ctx)
	t := &task[T]{done: make(chan struct{}), cancel: cancel}
	go func() {
		defer cancel()
		t.value, t.err = work(ctx)
		close(t.done)
		wake()
	}()
	return t
}

// ended reports whether value and err may be read.
func (t *task[T]) ended() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// stop cancels the work and waits for its end.
func (t *task[T]) stop() {
	t.cancel()
	<-t.done
}
