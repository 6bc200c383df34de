package cluster

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"
)

// termConfig is what every term of a node shares.
type termConfig struct {
	LeadershipConfig
	clock        clock.Clock
	tickInterval time.Duration
	// steward runs beside the rooms until ctx is done. May be nil.
	steward func(ctx context.Context, l *Leadership) error
	// opened is told when intents are let in.
	opened func(l *Leadership)
}

// runTerm takes over, lets intents in and works until ctx is done, or it can't go on: then it returns
// an error, and somebody else should lead. When it returns, nothing of the term is left.
func runTerm(ctx context.Context, cfg *termConfig) (err error) {
	defer recovered(&err)
	l := NewLeadership(cfg.LeadershipConfig)
	if err := l.TakeOver(ctx); err != nil {
		return fmt.Errorf("take over: %w", err)
	}
	cfg.opened(l)
	// The gate closes before the work is cancelled: hence a context of its own.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	group, work := errgroup.WithContext(work)
	for i := range l.Rooms() {
		group.Go(func() error { return runRoom(work, cfg.clock, l, i) })
	}
	group.Go(func() error { return tick(work, cfg, l) })
	if cfg.steward != nil {
		group.Go(func() error { return cfg.steward(work, l) })
	}
	select {
	case <-ctx.Done():
	case <-work.Done():
	}
	l.Close()
	cancel()
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// recovered turns a panic into the end of the term: the next leader may fare better, and what was
// committed is unharmed.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
	}
}

func tick(ctx context.Context, cfg *termConfig, l *Leadership) error {
	timer := cfg.clock.NewTimer(cfg.tickInterval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C():
			if err := l.Tick(); err != nil {
				return err
			}
			timer.Reset(cfg.tickInterval)
		}
	}
}

// runRoom is the term loop of one room.
func runRoom(ctx context.Context, c clock.Clock, l *Leadership, i int) error {
	defer l.EndRoom(i)
	timer := c.NewTimer(0)
	defer timer.Stop()
	for {
		if !l.Busy(i) {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-l.Woken(i):
			case <-timer.C():
			}
		}
		if err := l.Turn(i); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		timer.Stop()
		if wake := l.Wake(i); wake > 0 {
			timer.Reset(max(0, time.Duration(wake-l.Now())*time.Millisecond))
		}
	}
}
