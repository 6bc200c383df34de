package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	adminv1 "github.com/bourse-dev/bourse/api/admin/v1"
)

// versionFaults run an old build beside the present one.
var versionFaults = []fault{
	{"old build beside the present one", func(ctx context.Context, n *nemesis) error {
		return n.oldBuild(ctx, 1)
	}},
	{"present build beside old ones", func(ctx context.Context, n *nemesis) error {
		return n.oldBuild(ctx, 2)
	}},
}

// oldBuild restarts so many nodes as the old build, and has one of them lead for a while.
func (n *nemesis) oldBuild(ctx context.Context, count int) error {
	var old *node
	for _, i := range n.rng.Perm(nodeCount)[:count] {
		old = n.group.nodes[i]
		if err := old.stop(); err != nil {
			return err
		}
		old.binary = n.config.old
		if err := old.start(); err != nil {
			return err
		}
		if err := n.group.whole(n.life); err != nil {
			return fmt.Errorf("%w: %w", errViolated, err)
		}
	}
	err := until(ctx, 20*time.Second, func() error {
		leader := n.group.leader(ctx)
		if leader == nil {
			return fmt.Errorf("%w: nobody leads", errNoEffect)
		}
		if leader == old {
			return nil
		}
		if err := n.group.ask(ctx, http.MethodPost, leader, adminv1.PathTransfer,
			adminv1.TransferRequest{To: old.id}, nil, 3*time.Second); err != nil {
			return fmt.Errorf("%w: %w", errNoEffect, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return n.hold(ctx, n.seconds(4, 9))
}
