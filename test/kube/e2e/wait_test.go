package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

const (
	// pollInterval is how often a condition is looked at; small beside every limit that is asserted.
	pollInterval = 10 * time.Millisecond
	// patience is how long a condition may take that has no limit of its own.
	patience = 30 * time.Second
	// subtestTimeout bounds each subtest, so that a hang ends with a message of its own.
	subtestTimeout = 3 * time.Minute
)

// waitFor calls cond until it returns nil. Its error says what was waited for and what was seen last.
func waitFor(ctx context.Context, limit time.Duration, what string, cond func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var last error
	for {
		err := cond(ctx)
		if err == nil {
			return nil
		}
		// What the end of the context itself did to the last look says nothing.
		if last == nil || !errors.Is(err, context.DeadlineExceeded) {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %s in vain for %s; last seen: %w", limit, what, last)
		case <-ticker.C:
		}
	}
}

// eventually is waitFor with the usual patience; it ends the test where the condition never holds.
func eventually(t *testing.T, ctx context.Context, what string, cond func(context.Context) error) {
	t.Helper()
	must(t, waitFor(ctx, patience, what, cond))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// value is must for functions with a result.
func value[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		must(t, err)
		return v
	}
}

func subtestContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), subtestTimeout)
	t.Cleanup(cancel)
	return ctx
}
