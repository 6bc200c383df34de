package agent

import (
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is the most that a test waits for a condition; none takes a tenth of it.
const (
	patience = 30 * time.Second
	glance   = 2 * time.Millisecond
)

// logLine is one line as it was logged.
type logLine struct {
	message string
	args    map[string]any
}

// logBook keeps what was logged.
type logBook struct {
	mu    sync.Mutex
	lines []logLine
}

func newLog() (*logBook, hclog.Logger) {
	book := &logBook{}
	logger := hclog.NewInterceptLogger(&hclog.LoggerOptions{Level: hclog.Off})
	logger.RegisterSink(book)
	return book, logger
}

func (b *logBook) Accept(_ string, _ hclog.Level, message string, args ...any) {
	line := logLine{message, map[string]any{}}
	for i := 0; i+1 < len(args); i += 2 {
		line.args[args[i].(string)] = args[i+1]
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, line)
}

func (b *logBook) with(message string) []logLine {
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []logLine
	for _, line := range b.lines {
		if line.message == message {
			found = append(found, line)
		}
	}
	return found
}
