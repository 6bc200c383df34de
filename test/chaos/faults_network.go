package main

import (
	"context"
	"fmt"
	"time"

	"github.com/bourse-dev/bourse/test/chaos/proxy"
)

// networkFaults cut, delay and lose what passes between nodes, and between clients and nodes.
var networkFaults = []fault{
	{"leader alone", split(func(leader *node, followers []*node) [][2]string {
		return between([]*node{leader}, followers)
	})},
	{"halves: a follower alone", split(func(leader *node, followers []*node) [][2]string {
		return between([]*node{followers[0]}, []*node{leader, followers[1]})
	})},
	{"everybody alone", split(func(leader *node, followers []*node) [][2]string {
		return append(between([]*node{leader}, followers), between(followers[:1], followers[1:])...)
	})},
	{"ring: each hears one other", split(func(leader *node, followers []*node) [][2]string {
		return [][2]string{{leader.id, followers[1].id}, {followers[1].id, followers[0].id}, {followers[0].id, leader.id}}
	})},
	{"bridge: the followers don't meet", split(func(_ *node, followers []*node) [][2]string {
		return between(followers[:1], followers[1:])
	})},
	{"one way: the leader speaks, and hears nobody", split(func(leader *node, followers []*node) [][2]string {
		return [][2]string{{followers[0].id, leader.id}, {followers[1].id, leader.id}}
	})},
	{"one way: the leader hears, and nobody hears it", split(func(leader *node, followers []*node) [][2]string {
		return [][2]string{{leader.id, followers[0].id}, {leader.id, followers[1].id}}
	})},
	{"one way: a follower hears nobody", split(func(leader *node, followers []*node) [][2]string {
		return [][2]string{{leader.id, followers[0].id}, {followers[1].id, followers[0].id}}
	})},
	{"delay between nodes", spoiled(false, func(n *nemesis) proxy.Rule {
		return proxy.Rule{Delay: time.Duration(20+n.rng.IntN(150)) * time.Millisecond}
	})},
	{"50 % loss between nodes", spoiled(false, func(*nemesis) proxy.Rule { return proxy.Rule{Loss: 0.5} })},
	{"delay between clients and nodes", spoiled(true, func(n *nemesis) proxy.Rule {
		return proxy.Rule{Delay: time.Duration(20+n.rng.IntN(300)) * time.Millisecond}
	})},
	{"clients lose answers", func(ctx context.Context, n *nemesis) error {
		// What is asked arrives; the answer is held until the stream is reset.
		target := n.group.nodes[n.rng.IntN(nodeCount)]
		before := n.group.net.Effects()
		for range 4 {
			n.group.net.Link(target.id, clients).Set(proxy.Rule{Cut: true})
			if err := n.hold(ctx, 500*time.Millisecond); err != nil {
				return err
			}
			n.group.net.Break(func(a, b string) bool { return a == clients && b == target.id })
			n.group.net.Heal()
			if err := n.hold(ctx, 500*time.Millisecond); err != nil {
				return err
			}
		}
		return n.held(before)
	}},
	{"resets of all streams", func(ctx context.Context, n *nemesis) error {
		broken := 0
		for range 5 {
			broken += n.group.net.Break(func(string, string) bool { return true })
			if err := n.hold(ctx, 400*time.Millisecond); err != nil {
				return err
			}
		}
		if broken == 0 {
			return errNoEffect
		}
		return nil
	}},
}

// between are both directions from each of one side to each of the other.
func between(some, rest []*node) (links [][2]string) {
	for _, a := range some {
		for _, b := range rest {
			links = append(links, [2]string{a.id, b.id}, [2]string{b.id, a.id})
		}
	}
	return links
}

// split cuts links for a while. What was held arrives late, or its streams are reset.
func split(choose func(leader *node, followers []*node) [][2]string) func(context.Context, *nemesis) error {
	return func(ctx context.Context, n *nemesis) error {
		leader, followers, err := n.roles(ctx)
		if err != nil {
			return err
		}
		before := n.group.net.Effects()
		links := choose(leader, followers)
		for _, l := range links {
			n.group.net.Link(l[0], l[1]).Set(proxy.Rule{Cut: true})
		}
		if err := n.hold(ctx, n.seconds(2, 7)); err != nil {
			return err
		}
		if n.rng.IntN(2) == 0 {
			n.group.net.Break(func(a, b string) bool {
				for _, l := range links {
					if l == [2]string{a, b} {
						return true
					}
				}
				return false
			})
		}
		return n.held(before)
	}
}

func (n *nemesis) held(before proxy.Effects) error {
	if n.group.net.Effects().Held == before.Held {
		return fmt.Errorf("%w: nothing was held", errNoEffect)
	}
	return nil
}

// spoiled applies a rule to all links of one sort for a while.
func spoiled(ofClients bool, rule func(*nemesis) proxy.Rule) func(context.Context, *nemesis) error {
	return func(ctx context.Context, n *nemesis) error {
		before, what := n.group.net.Effects(), rule(n)
		for _, a := range n.group.nodes {
			if ofClients {
				n.group.net.Link(a.id, clients).Set(what)
				n.group.net.Link(clients, a.id).Set(what)
				continue
			}
			for _, b := range others(a.id) {
				n.group.net.Link(a.id, b).Set(what)
			}
		}
		if err := n.hold(ctx, n.seconds(3, 8)); err != nil {
			return err
		}
		if after := n.group.net.Effects(); after.Late == before.Late && after.Lost == before.Lost {
			return fmt.Errorf("%w: nothing was late or lost", errNoEffect)
		}
		return nil
	}
}
