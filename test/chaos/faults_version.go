package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	adminv1 "github.com/bourse-dev/bourse/api/admin/v1"
)

// versionFaults can be done until the group is upgraded: one node still runs the old build.
var versionFaults = []fault{
	{"old build leads present ones", func(ctx context.Context, n *nemesis) error {
		return n.leads(ctx, n.group.nodes[nodeCount-1])
	}},
	{"present build leads old ones", func(ctx context.Context, n *nemesis) error {
		// A directory whose log is in segments was made by the present build, and the old one refuses it.
		upgraded := slices.DeleteFunc(slices.Clone(n.group.nodes[:nodeCount-1]), func(node *node) bool {
			return (&disk{node.dataDir()}).inSegments()
		})
		if len(upgraded) == 0 {
			return fmt.Errorf("%w: no node can go back to the old build", errNoEffect)
		}
		back := upgraded[n.rng.IntN(len(upgraded))]
		if err := n.restartAs(back, n.config.old); err != nil {
			return err
		}
		for _, node := range n.group.nodes {
			if node.binary == n.config.binary {
				return n.leads(ctx, node)
			}
		}
		return fmt.Errorf("%w: all run the old build", errNoEffect)
	}},
}

// upgrade completes the upgrade. Where the present build brings another behaviour version, the leader raises
// it now, not earlier, and the old build is not let in any more.
var upgrade = fault{"upgraded", func(ctx context.Context, n *nemesis) error {
	if n.config.raises && n.raised() > 0 {
		return fmt.Errorf("%w: the behaviour version was raised beside a node of the old build", errViolated)
	}
	last := n.group.nodes[nodeCount-1]
	last.proper = n.config.binary
	if err := n.restartAs(last, n.config.binary); err != nil {
		return err
	}
	if !n.config.raises {
		return nil
	}
	err := until(ctx, 20*time.Second, func() error {
		if n.raised() == 0 {
			return errors.New("all are upgraded and nobody raises the behaviour version")
		}
		return nil
	})
	if err != nil {
		return violatedUnlessOver(ctx, err)
	}
	if err := n.refusesOldBuild(ctx, last, saysNewer, saysNewerGroup, saysNewerLog); err != nil {
		return err
	}
	if err := n.takesLogOver(ctx, last); err != nil {
		return err
	}
	return n.refusesOldBuild(ctx, last, saysNewerFormat)
}}

// takesLogOver starts the present build until it makes segments of raft.db: at the first start that finds a snapshot of
// the new behaviour version.
func (n *nemesis) takesLogOver(ctx context.Context, target *node) error {
	err := until(ctx, wholeWithin, func() error {
		if err := n.restartAs(target, n.config.binary); err != nil {
			return err
		}
		if !(&disk{target.dataDir()}).inSegments() {
			return fmt.Errorf("%s keeps its log in raft.db", target.id)
		}
		return nil
	})
	return violatedUnlessOver(ctx, err)
}

// refusesOldBuild tries to go back, and wants to hear one of the reasons.
func (n *nemesis) refusesOldBuild(ctx context.Context, target *node, reasons ...string) error {
	if err := target.stop(); err != nil {
		return err
	}
	target.binary = n.config.old
	if err := target.start(); err != nil {
		return err
	}
	target.allowEnd()
	// It may need the leader to hear of the new version.
	err := until(ctx, 20*time.Second, func() error {
		if target.running() {
			return errors.New("the old build goes on after the behaviour version was raised")
		}
		if !slices.ContainsFunc(reasons, func(reason string) bool { return n.group.heard.times(target.id, reason) > 0 }) {
			return fmt.Errorf("%s ended and does not say why: see %s", target.id, target.logPath())
		}
		return nil
	})
	return violatedUnlessOver(ctx, err)
}

// violatedUnlessOver makes a violation of what did not come true, if there was time for it.
func violatedUnlessOver(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("%w: %w", errViolated, err)
}

// raised is how often a leader raised the behaviour version.
func (n *nemesis) raised() (sum int) {
	for _, node := range n.group.nodes {
		sum += n.group.heard.times(node.id, saysRaised)
	}
	return sum
}

func (n *nemesis) restartAs(node *node, binary string) error {
	if err := n.group.restart(n.life, node, binary); err != nil {
		return fmt.Errorf("%w: %w", errViolated, err)
	}
	return nil
}

// leads has the node lead for a while.
func (n *nemesis) leads(ctx context.Context, node *node) error {
	err := until(ctx, 20*time.Second, func() error {
		leader := n.group.leader(ctx)
		if leader == nil {
			return fmt.Errorf("%w: nobody leads", errNoEffect)
		}
		if leader == node {
			return nil
		}
		if err := n.group.ask(ctx, http.MethodPost, leader, adminv1.PathTransfer,
			adminv1.TransferRequest{To: node.id}, nil, 3*time.Second); err != nil {
			return fmt.Errorf("%w: %w", errNoEffect, err)
		}
		return fmt.Errorf("%w: not handed over yet", errNoEffect)
	})
	if err != nil {
		return err
	}
	return n.hold(ctx, n.seconds(4, 9))
}
