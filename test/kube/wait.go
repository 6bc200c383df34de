package kube

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// pollInterval is how often a condition is looked at: small beside the seconds that a start takes, and cheap.
const pollInterval = 50 * time.Millisecond

// attemptTimeout bounds one look at a condition, so that one request that hangs does not use up the whole wait.
const attemptTimeout = 5 * time.Second

// notYet is what a condition returns while it does not hold; it says what it saw instead.
type notYet struct{ error }

func notYetf(format string, args ...any) error { return notYet{fmt.Errorf(format, args...)} }

// waitFor calls cond until it returns nil, or an error that is not notYet, or ctx ends, or a program of the cluster
// ends. The error then says what was waited for and what was seen last.
func (c *Cluster) waitFor(ctx context.Context, what string, cond func(context.Context) error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		err := cond(attempt)
		hung := attempt.Err() != nil
		cancel()
		if err == nil {
			return nil
		}
		var wait notYet
		if !errors.As(err, &wait) && !hung {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
		if dead := c.dead(); dead != nil {
			return fmt.Errorf("waiting for %s: %w", what, dead)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w; last seen: %w; logs in %s", what, context.Cause(ctx), err, c.LogPath("*"))
		case <-ticker.C:
		}
	}
}

// dead returns how a program of the cluster ended that should run.
func (c *Cluster) dead() error {
	c.procMu.Lock()
	defer c.procMu.Unlock()
	for _, p := range c.procs {
		if err := p.Exited(); err != nil && !c.killed[p.Name] {
			return err
		}
	}
	return nil
}
