package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	adminv1 "github.com/bourse-dev/bourse/api/admin/v1"
)

// diskFaults damage what lies in a data directory, or the room for it.
var diskFaults = []fault{
	{"disk of the leader full", diskFull(true)},
	{"disk of a follower full", diskFull(false)},
	{"log file cut short", damaged(refusesIfShown, (*disk).cutLog)},
	{"torn tail: half an append behind the log's end", damaged(starts, (*disk).tearLog)},
	{"bit flip in a log entry", damaged(refuses, (*disk).flipEntry)},
	{"bit flip in a snapshot", damaged(refuses, (*disk).flipSnapshot)},
	{"bit flip anywhere in the log file", damaged(refusesIfShown, (*disk).flipAnywhere)},
	{"member replaced", func(ctx context.Context, n *nemesis) error {
		target := n.replaceable()
		if err := n.killed(target); err != nil {
			return err
		}
		return n.replace(ctx, target)
	}},
	{"snapshot installed", snapshotInstalled},
}

// replaceable is any node but one that is yet to be upgraded: with that one gone for a moment, all voters are
// upgraded, and it is not let in any more.
func (n *nemesis) replaceable() *node {
	var nodes []*node
	for _, node := range n.group.nodes {
		if node.proper == n.config.binary {
			nodes = append(nodes, node)
		}
	}
	return nodes[n.rng.IntN(len(nodes))]
}

// expectation of a node that starts on a damaged directory.
type expectation int

const (
	starts expectation = iota
	refuses
	refusesIfShown // it may start where the log is one that need not show damage
)

// damaged kills a node, damages its directory and starts it again. One that refuses is replaced.
func damaged(want expectation, damage func(*disk, *nemesis) error) func(context.Context, *nemesis) error {
	return func(ctx context.Context, n *nemesis) error {
		target := n.replaceable()
		if err := n.killed(target); err != nil {
			return err
		}
		d := &disk{target.dataDir()}
		mustRefuse := want == refuses || want == refusesIfShown && d.log().damageShows()
		if err := damage(d, n); err != nil {
			return err
		}
		complaints := n.group.heard.times(target.id, saysCorrupt)
		if err := target.start(); err != nil {
			return err
		}
		target.allowEnd()
		refused, err := n.startedOrRefused(ctx, target)
		switch {
		case err != nil:
			return err
		case refused && n.group.heard.times(target.id, saysCorrupt) == complaints:
			return fmt.Errorf("%w: %s ended and does not say that its directory is corrupt: see %s", errViolated, target.id, target.logPath())
		case refused && want == starts:
			return fmt.Errorf("%w: %s does not start after what a crash may leave: see %s", errViolated, target.id, target.logPath())
		case !refused && mustRefuse:
			return fmt.Errorf("%w: %s started on damage that it must see", errViolated, target.id)
		case refused:
			return n.replace(ctx, target)
		}
		target.expectLife()
		return nil
	}
}

func (n *nemesis) startedOrRefused(ctx context.Context, target *node) (refused bool, err error) {
	err = until(ctx, wholeWithin, func() error {
		if refused = !target.running(); refused {
			return nil
		}
		return n.group.ask(ctx, http.MethodGet, target, "/readyz", nil, nil, askWithin)
	})
	if err != nil && ctx.Err() == nil {
		return false, fmt.Errorf("%w: %s neither starts nor refuses: %w", errViolated, target.id, err)
	}
	return refused, err
}

// replace a node that is down by one with an empty directory, as an operator would.
func (n *nemesis) replace(ctx context.Context, target *node) error {
	err := until(ctx, wholeWithin, func() error {
		leader := n.group.leader(ctx)
		if leader == nil {
			return errors.New("nobody leads")
		}
		err := n.group.ask(ctx, http.MethodDelete, leader, adminv1.PathPeers+target.id, nil, nil, adminWithin)
		var refused *refusedError
		if errors.As(err, &refused) && refused.code == http.StatusNotFound {
			return nil // done by an attempt whose answer was lost with its leader
		}
		return err
	})
	if err != nil {
		if ctx.Err() == nil {
			err = fmt.Errorf("%w: %s can't be removed: %w", errViolated, target.id, err)
		}
		return err
	}
	if err := os.RemoveAll(target.dataDir()); err != nil {
		return err
	}
	if err := target.start(); err != nil {
		return err
	}
	if err := n.group.whole(n.life); err != nil {
		return fmt.Errorf("%w: %s does not come back as a new member: %w", errViolated, target.id, err)
	}
	return nil
}

// diskFull: no file can grow, or be written beyond its first pages, until the node is healed or started again.
func diskFull(leads bool) func(context.Context, *nemesis) error {
	return func(ctx context.Context, n *nemesis) error {
		target, followers, err := n.roles(ctx)
		if err != nil {
			return err
		}
		if !leads {
			target = followers[0]
		}
		p := target.current()
		before := n.group.heard.times(target.id, saysDiskFull)
		target.allowEnd() // a node that can't write its vote ends
		if err := limitFiles(target.pid(), fullAt); err != nil {
			return err
		}
		if err := n.hold(ctx, n.seconds(2, 5)); err != nil {
			return err
		}
		if !p.gone() {
			if err := limitFiles(target.pid(), unlimited); err != nil && !p.gone() {
				return err
			}
			target.expectLife()
		}
		if !p.gone() && n.group.heard.times(target.id, saysDiskFull) == before {
			return fmt.Errorf("%w: %s wrote nothing", errNoEffect, target.id)
		}
		return nil
	}
}

// snapshotInstalled keeps a node down until the leader's log no longer has what it lacks.
func snapshotInstalled(ctx context.Context, n *nemesis) error {
	leader, followers, err := n.roles(ctx)
	if err != nil {
		return err
	}
	target := followers[0]
	if err := n.killed(target); err != nil {
		return err
	}
	last, err := (&disk{target.dataDir()}).log().lastIndex()
	if err != nil {
		return err
	}
	err = until(ctx, 60*time.Second, func() error {
		_, index, err := (&disk{leader.dataDir()}).newestSnapshot()
		if err == nil && index <= last+trailingLogs {
			err = fmt.Errorf("the leader's log still reaches back to entry %d", last)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errNoEffect, err)
	}
	installed := n.group.heard.times(target.id, saysInstalled)
	if err := target.start(); err != nil {
		return err
	}
	if err := n.group.whole(n.life); err != nil {
		return fmt.Errorf("%w: %w", errViolated, err)
	}
	if n.group.heard.times(target.id, saysInstalled) == installed {
		return fmt.Errorf("%w: %s needed no snapshot", errNoEffect, target.id)
	}
	return nil
}
