package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"
	"k8s.io/utils/clock"

	"github.com/bourse-dev/bourse/internal/planted"
)

// owner is the one place that starts and stops leadership terms of this node. At most one term
// exists at a time: an ended one is waited for before anything may start again.
type owner struct {
	log    Log
	clock  clock.Clock
	logger hclog.Logger
	// run works for one term, until ctx is done or it fails. It calls opened when it let intents in.
	run func(ctx context.Context, opened func()) error

	current  *running
	failures int
	retry    clock.Timer // nil, or runs out when another try to take over is due
}

// running is a term under way.
type running struct {
	cancel context.CancelFunc
	opened chan struct{}
	done   chan error // receives once
}

// loop runs until ctx is done; no term is left when it returns.
func (o *owner) loop(ctx context.Context) error {
	defer o.end()
	for {
		var done chan error
		var opened chan struct{}
		var retry <-chan time.Time
		if o.current != nil {
			done, opened = o.current.done, o.current.opened
		}
		if o.retry != nil {
			retry = o.retry.C()
		}
		select {
		case <-ctx.Done():
			return nil
		case leads := <-o.log.LeaderCh():
			// true after true: lost and regained, so the old term ends in either case.
			o.end()
			if leads {
				o.begin(ctx)
			} else {
				o.logger.Info("leadership lost")
			}
		case <-opened:
			o.current.opened = nil
			o.failures = 0
		case err := <-done:
			o.gaveUp(err)
		case <-retry:
			o.end()
			if o.log.Leading() {
				o.begin(ctx)
			}
		}
	}
}

func (o *owner) begin(ctx context.Context) {
	o.logger.Info("leadership gained: taking over")
	ctx, cancel := context.WithCancel(ctx)
	r := &running{cancel: cancel, opened: make(chan struct{}), done: make(chan error, 1)}
	opened := r.opened
	o.current = r
	go func() { r.done <- o.run(ctx, func() { close(opened) }) }() // end waits for it
}

// end cancels the term, if any, and waits for it.
func (o *owner) end() {
	if o.retry != nil {
		o.retry.Stop()
		o.retry = nil
	}
	if o.current == nil {
		return
	}
	o.current.cancel()
	if o.current.done != nil && planted.Bug != planted.TwoPlanners {
		err := <-o.current.done
		o.logger.Debug("the term is over", "how", err)
	}
	o.current = nil
}

// gaveUp: the term ended by itself. Somebody else should lead; if nobody can, try again later.
func (o *owner) gaveUp(err error) {
	o.current.done = nil
	o.end()
	if err == nil || errors.Is(err, context.Canceled) || !o.log.Leading() {
		return // leadership is gone, LeaderCh is about to say so
	}
	o.failures++
	pause := longestTakeOver
	if o.failures < 7 {
		pause = min(pause, firstTakeOverPause<<(o.failures-1))
	}
	o.logger.Error("leading failed: handing leadership over", "error", err, "failures", o.failures, "retryIn", pause)
	if err := o.log.HandOver(); err != nil {
		o.logger.Warn("nobody takes leadership over", "error", err)
	}
	o.retry = o.clock.NewTimer(pause)
}
