package main

import (
	"context"
	"fmt"
	"net/http"
	"syscall"
	"time"

	adminv1 "github.com/bourse-dev/bourse/api/admin/v1"
)

// processFaults end or stop processes.
var processFaults = []fault{
	{"kill -9 of the leader", func(ctx context.Context, n *nemesis) error {
		leader, _, err := n.roles(ctx)
		if err != nil {
			return err
		}
		if err := n.killed(leader); err != nil {
			return err
		}
		_, err = n.group.waitLeader(ctx, leader)
		return err
	}},
	{"kill -9 of a follower", func(ctx context.Context, n *nemesis) error {
		_, followers, err := n.roles(ctx)
		if err != nil {
			return err
		}
		if err := n.killed(followers[0]); err != nil {
			return err
		}
		return n.hold(ctx, n.seconds(1, 3))
	}},
	{"kill -9 of all", func(_ context.Context, n *nemesis) error {
		for _, node := range n.group.nodes {
			if err := n.killed(node); err != nil {
				return err
			}
		}
		return nil
	}},
	{"kill -9, again and again", func(ctx context.Context, n *nemesis) error {
		for range 3 {
			leader, _, err := n.roles(ctx)
			if err != nil {
				return err
			}
			if err := n.killed(leader); err != nil {
				return err
			}
			if err := n.heal(); err != nil {
				return err
			}
		}
		return nil
	}},
	{"SIGSTOP of the leader for 1 s", paused(true, time.Second)},
	{"SIGSTOP of the leader for 5 s", paused(true, 5*time.Second)},
	{"SIGSTOP of a follower for 5 s", paused(false, 5*time.Second)},
	{"SIGSTOP of the leader for 30 s", paused(true, 30*time.Second)},
	{"rolling restart", func(ctx context.Context, n *nemesis) error {
		for _, i := range n.rng.Perm(nodeCount) {
			if err := n.group.nodes[i].stop(); err != nil {
				return err
			}
			if err := n.heal(); err != nil {
				return err
			}
			if err := n.group.whole(ctx); err != nil {
				return fmt.Errorf("%w: %w", errViolated, err)
			}
		}
		return nil
	}},
	{"leader-transfer storm", transferStorm},
}

// killed ends a process as kill -9 does, and sees to it that it did.
func (n *nemesis) killed(node *node) error {
	p := node.current()
	if !node.running() {
		return fmt.Errorf("%w: %s did not run", errNoEffect, node.id)
	}
	if err := node.kill(); err != nil {
		return err
	}
	if p.exitCode() != -1 {
		return fmt.Errorf("%w: %s had ended before", errNoEffect, node.id)
	}
	return nil
}

func paused(leads bool, d time.Duration) func(context.Context, *nemesis) error {
	return func(ctx context.Context, n *nemesis) error {
		target, followers, err := n.roles(ctx)
		if err != nil {
			return err
		}
		if !leads {
			target = followers[0]
		}
		if err := target.signal(syscall.SIGSTOP); err != nil {
			return err
		}
		// A stopped process answers nothing; that it doesn't is the proof.
		err = until(ctx, 2*time.Second, func() error {
			if n.group.ask(ctx, http.MethodGet, target, "/livez", nil, nil, askWithin) == nil {
				return fmt.Errorf("%w: %s still answers", errNoEffect, target.id)
			}
			return nil
		})
		if err != nil {
			return err
		}
		return n.hold(ctx, d-askWithin)
	}
}

// transferStorm hands leadership on as fast as it goes.
func transferStorm(ctx context.Context, n *nemesis) error {
	_, before := n.group.heard.leaderships()
	for range 12 {
		leader, followers, err := n.roles(ctx)
		if err != nil {
			return err
		}
		// Refused where a transfer is under way, or the target lags: the storm goes on.
		_ = n.group.ask(ctx, http.MethodPost, leader, adminv1.PathTransfer,
			adminv1.TransferRequest{To: followers[0].id}, nil, 3*time.Second)
		if err := n.hold(ctx, 100*time.Millisecond); err != nil || ctx.Err() != nil {
			return err
		}
	}
	if _, after := n.group.heard.leaderships(); after-before < 4 {
		return fmt.Errorf("%w: the leader changed %d times", errNoEffect, after-before)
	}
	return nil
}
