package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"
)

// errNoEffect: the fault was done and nothing came of it; it doesn't count.
var errNoEffect = errors.New("no effect")

// fault is one thing that goes wrong. do returns when it is over or can be healed, and nil only
// where it really took effect.
type fault struct {
	name string
	do   func(context.Context, *nemesis) error
}

// nemesis does one fault after another.
type nemesis struct {
	*run
	rng  *rand.Rand
	life context.Context //nolint:containedctx // of the run: judging goes on when the time for faults is over
}

// faultsPerWindow faults come between two moments of quiet.
const faultsPerWindow = 3

// reign until ctx ends: every kind once in each round, in an order of the seed's. The first round is
// in the middle of an upgrade, which is completed after it.
func (n *nemesis) reign(ctx context.Context, kinds []fault) error {
	isEarly := func(f fault) bool {
		return slices.ContainsFunc(versionFaults, func(v fault) bool { return v.name == f.name })
	}
	early := slices.DeleteFunc(slices.Clone(kinds), func(f fault) bool { return !isEarly(f) })
	kinds = slices.DeleteFunc(slices.Clone(kinds), isEarly)
	done := 0
	for round := 0; ctx.Err() == nil; round++ {
		order := n.shuffled(kinds)
		switch round {
		case 0: // before any node is made anew by the present build: that one can't go back
			order = append(n.shuffled(early), order...)
		case 1:
			if err := n.strike(ctx, upgrade); err != nil || len(kinds) == 0 {
				return err
			}
		}
		for _, f := range order {
			if ctx.Err() != nil {
				break
			}
			if err := n.strike(ctx, f); err != nil {
				return err
			}
			if done++; done%faultsPerWindow == 0 {
				n.note("judging")
				if err := n.cut(n.life); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (n *nemesis) shuffled(kinds []fault) []fault {
	kinds = slices.Clone(kinds)
	n.rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	return kinds
}

// strike does one fault, heals, and waits until the group is whole.
func (n *nemesis) strike(ctx context.Context, f fault) error {
	n.note(f.name)
	err := f.do(ctx, n)
	n.note("healing after " + f.name)
	if healErr := n.heal(); healErr != nil {
		return healErr
	}
	switch {
	case n.life.Err() != nil:
	case ctx.Err() != nil && !errors.Is(err, errViolated): // the time was over before the fault was
	case err == nil:
		n.faults.add(f.name)
	case errors.Is(err, errViolated):
		return fmt.Errorf("%s: %w", f.name, err)
	case errors.Is(err, errNoEffect):
		n.missed.add(f.name)
		n.say("%s: %v", f.name, err)
	default:
		n.missed.add(f.name)
		n.say("%s could not be done: %v", f.name, err)
	}
	if err := n.group.whole(n.life); err != nil && n.life.Err() == nil {
		return fmt.Errorf("%w: after %s the group did not get whole: %w", errViolated, f.name, err)
	}
	n.note("calm")
	return n.hold(ctx, time.Second)
}

// heal undoes all that can be undone.
func (n *nemesis) heal() error {
	n.group.net.Heal()
	if err := n.rightClocks(); err != nil {
		return err
	}
	for _, node := range n.group.nodes {
		if node.running() && node.binary != node.proper {
			if err := node.stop(); err != nil {
				return err
			}
		}
		if node.running() {
			if err := node.signal(syscall.SIGCONT); err != nil && node.running() {
				return err
			}
			continue
		}
		if err := node.diedUnasked(); err != nil {
			return err
		}
		node.binary = node.proper
		if err := node.start(); err != nil {
			return err
		}
	}
	return nil
}

// hold lets a fault last. It ends early, without an error, with the run.
func (n *nemesis) hold(ctx context.Context, d time.Duration) error {
	deadline := time.NewTimer(d)
	defer deadline.Stop()
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	for {
		for _, node := range n.group.nodes {
			if err := node.diedUnasked(); err != nil {
				return err
			}
		}
		select {
		case <-deadline.C:
			return nil
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
	}
}

// roles are who leads and who follows just now, the followers in an order of the seed's.
func (n *nemesis) roles(ctx context.Context) (leader *node, followers []*node, err error) {
	if leader, err = n.group.waitLeader(ctx, nil); err != nil {
		return nil, nil, err
	}
	for _, other := range n.group.nodes {
		if other != leader {
			followers = append(followers, other)
		}
	}
	n.rng.Shuffle(len(followers), func(i, j int) { followers[i], followers[j] = followers[j], followers[i] })
	return leader, followers, nil
}

// seconds between the two, by chance.
func (n *nemesis) seconds(least, most int) time.Duration {
	return time.Duration(least)*time.Second + time.Duration(n.rng.Int64N(int64(time.Duration(most-least)*time.Second)+1))
}

func (n *nemesis) note(what string) {
	n.doing.Store(&what)
}

// chosen are the faults that the run was told to do; all where it was told nothing.
func chosen(all []fault, names string) (list []fault, err error) {
	if names == "" {
		return all, nil
	}
	for _, name := range strings.Split(names, ",") {
		found := false
		for _, f := range all {
			if f.name == strings.TrimSpace(name) {
				list, found = append(list, f), true
			}
		}
		if !found {
			return nil, fmt.Errorf("no fault %q", name)
		}
	}
	return list, nil
}
