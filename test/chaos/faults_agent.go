package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/bourse-dev/bourse/test/chaos/history"
)

// agentFaults are what goes wrong in member clusters.
var agentFaults = []fault{
	{"agents fall silent", func(ctx context.Context, n *nemesis) error {
		some := n.someAgents()
		for _, a := range some {
			a.silent.Store(time.Now().Add(3 * staleAfter).UnixNano())
		}
		return n.seen(ctx, 3*staleAfter, "no offer became Stale", some, func(a history.Advertisement) bool { return a.Phase == "Stale" })
	}},
	{"facts shrink under holds", func(ctx context.Context, n *nemesis) error {
		some := n.someAgents()
		for _, a := range some {
			a.shrink.Store(true)
		}
		return n.seen(ctx, 2*staleAfter, "no cluster had less than it had promised", some, func(a history.Advertisement) bool {
			return a.Reserved.CPUMilli > a.Allocatable.CPUMilli
		})
	}},
	{"two agents for one cluster", func(ctx context.Context, n *nemesis) error {
		before := n.ops.of("report superseded")
		second, end := context.WithTimeout(ctx, 3*time.Second)
		defer end()
		var both sync.WaitGroup
		for _, a := range n.someAgents() {
			twin := newAgent(n.run, a.cluster, rand.New(rand.NewPCG(n.rng.Uint64(), 0)))
			both.Go(func() { twin.report(second) })
		}
		both.Wait()
		if err := n.hold(ctx, 2*time.Second); err != nil {
			return err
		}
		if n.ops.of("report superseded") == before {
			return fmt.Errorf("%w: no agent was superseded", errNoEffect)
		}
		return nil
	}},
}

// someAgents of the seed's choice.
func (n *nemesis) someAgents() (some []*agent) {
	for _, i := range n.rng.Perm(len(n.agents))[:3] {
		some = append(some, n.agents[i])
	}
	return some
}

// seen waits until the history shows it of one of the clusters.
func (n *nemesis) seen(ctx context.Context, within time.Duration, not string, of []*agent, is func(history.Advertisement) bool) error {
	err := until(ctx, within, func() error {
		for _, row := range n.history.Standing(history.Advertisements, "") {
			body := row.Body.(history.Advertisement)
			for _, a := range of {
				if a.cluster == body.Cluster && is(body) {
					return nil
				}
			}
		}
		return fmt.Errorf("%w: %s", errNoEffect, not)
	})
	if err != nil {
		return err
	}
	return n.hold(ctx, time.Second)
}
