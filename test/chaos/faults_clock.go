package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// clockFaults move the clock of a node. The nodes run a build whose clock reads an offset from a
// file (cmd/bourse/clock_skewed.go); a static binary can't be told otherwise.
var clockFaults = []fault{
	{"clock of the leader 1 min ahead", func(ctx context.Context, n *nemesis) error {
		leader, _, err := n.roles(ctx)
		if err != nil {
			return err
		}
		if err := n.skew(ctx, leader, time.Minute); err != nil {
			return err
		}
		// A clock so far ahead of all others must not lead.
		if _, err := n.group.waitLeader(ctx, leader); err != nil && ctx.Err() == nil {
			return fmt.Errorf("%w: %s leads on with its clock ahead: %w", errViolated, leader.id, err)
		}
		return n.hold(ctx, n.seconds(1, 3))
	}},
	{"clock of the leader 1 min behind", func(ctx context.Context, n *nemesis) error {
		leader, _, err := n.roles(ctx)
		if err != nil {
			return err
		}
		if err := n.skew(ctx, leader, -time.Minute); err != nil {
			return err
		}
		return n.hold(ctx, n.seconds(2, 5))
	}},
	{"clocks jump to and fro", func(ctx context.Context, n *nemesis) error {
		for range 6 {
			target := n.group.nodes[n.rng.IntN(nodeCount)]
			if err := n.skew(ctx, target, n.seconds(0, 16)-8*time.Second); err != nil {
				return err
			}
			if err := n.hold(ctx, 500*time.Millisecond); err != nil {
				return err
			}
		}
		return nil
	}},
}

func (n *node) clockPath() string { return filepath.Join(n.dir, "clock") }

// skew a node's clock, and wait until it says so.
func (n *nemesis) skew(ctx context.Context, target *node, by time.Duration) error {
	before := n.group.heard.times(target.id, saysSkewed)
	if err := os.WriteFile(target.clockPath(), []byte(by.String()), 0o644); err != nil {
		return err
	}
	return until(ctx, 2*time.Second, func() error {
		if n.group.heard.times(target.id, saysSkewed) == before {
			return fmt.Errorf("%w: %s keeps its clock", errNoEffect, target.id)
		}
		return nil
	})
}

// rightClocks undoes skew.
func (n *nemesis) rightClocks() error {
	for _, node := range n.group.nodes {
		if err := os.WriteFile(node.clockPath(), []byte("0s"), 0o644); err != nil {
			return err
		}
	}
	return nil
}
