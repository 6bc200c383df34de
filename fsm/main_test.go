package fsm

import (
	"flag"
	"fmt"
	"os"
	"testing"
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
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "rapid.checks" })
	if !chosen {
		n := sequences
		if os.Getenv("BOURSE_LONG") != "" {
			n = sequencesLong
		}
		if err := flag.Set("rapid.checks", fmt.Sprint(n/shards)); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
