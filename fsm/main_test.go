package fsm

import (
	"fmt"
	"os"
	"testing"

	"github.com/bourse-dev/bourse/test/lives"
)

// Sequences in `go test`, and in `make test-long`.
const (
	sequences     = 2000
	sequencesLong = 100000
	// shards run beside each other; each has a child process.
	shards = 2
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		if err := replayChild(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	n := sequences
	if lives.Long() {
		n = sequencesLong
	}
	lives.Default(map[string]string{"rapid.checks": fmt.Sprint(n / shards)})
	os.Exit(m.Run())
}
