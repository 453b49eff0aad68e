package inbox

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// logBuffer is a log to read. It is safe for concurrent use.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *logBuffer) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// wait waits until the log has a text.
func (b *logBuffer) wait(t testing.TB, text string) {
	t.Helper()
	sandbox.WaitFor(t, limit, "the log says "+text, func() (bool, error) { return strings.Contains(b.String(), text), nil })
}
