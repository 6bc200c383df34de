//go:build skewed

package main

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// skewedClockFile names the file that holds by how much this node's clock is wrong, as "-8s".
const skewedClockFile = "BOURSE_SKEWED_CLOCK"

// skewedClock is for chaos runs only: a static binary's clock can't be moved from outside.
type skewedClock struct {
	clock.RealClock
	offset atomic.Int64
}

func newClock() clock.Clock {
	c := &skewedClock{}
	path := os.Getenv(skewedClockFile)
	if path == "" {
		return c
	}
	c.follow(path)
	go func() {
		for range time.Tick(50 * time.Millisecond) {
			c.follow(path)
		}
	}()
	return c
}

func (c *skewedClock) follow(path string) {
	data, err := os.ReadFile(path)
	if err != nil {
		return // not skewed yet
	}
	offset, err := time.ParseDuration(strings.TrimSpace(string(data)))
	if err == nil && c.offset.Swap(int64(offset)) != int64(offset) {
		fmt.Fprintf(os.Stderr, "clock skewed by %s\n", offset) //nolint:errcheck // a log
	}
}

func (c *skewedClock) Now() time.Time { return c.RealClock.Now().Add(time.Duration(c.offset.Load())) }

func (c *skewedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
