package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// contender is one way to grant reservations.
type contender interface {
	// grow adds clusters until there are so many.
	grow(ctx context.Context, clusters int) error
	// reserve returns once the reservation is granted and kept by a majority.
	reserve(ctx context.Context, name string) error
}

// The contenders as the table calls them.
const (
	oursAny    = "ours, any node"
	oursLeader = "ours, the leader"
	oursFollow = "ours, a follower"
	kubeOne    = "(a) CRD + controller, 1 worker"
	kubeTuned  = "(a) CRD + controller, tuned"
	casSingle  = "(b) etcd Txn, single worker"
	casTopK    = "(b) etcd Txn, random top-8"
	upperBound = "(c) assume: upper bound, NOT correct"
)

// anyNode sends each request to another node; its clusters are those of the members.
type anyNode struct{ *members }

func (a anyNode) reserve(ctx context.Context, name string) error {
	return a.exchange.next().reserve(ctx, name)
}

// oneNode sends all to one node, which leads or follows; it looks for it again at each number of clusters.
type oneNode struct {
	*members
	leads bool
	node  *serverNode
}

func (o *oneNode) grow(ctx context.Context, clusters int) error {
	if err := o.members.grow(ctx, clusters); err != nil {
		return err
	}
	leader, _, err := o.exchange.leader(ctx)
	if err != nil {
		return err
	}
	o.node = o.exchange.nodes[slices.IndexFunc(o.exchange.nodes, func(n *serverNode) bool { return (n == leader) == o.leads })]
	return nil
}

func (o *oneNode) reserve(ctx context.Context, name string) error {
	return o.node.reserve(ctx, name)
}

// named keeps the order in which contenders are shown.
type named struct {
	name string
	contender
	clients int // it runs with so many only; 0: with any number
	each    int // reservations it makes with one request; 0: one
}

// surely repeats what an election has refused, and counts it: where the load is not what is measured, that must
// neither end the section nor be taken for work.
func surely(reserve func(context.Context, string) error, refused *atomic.Int64) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		return repeated(ctx, refused, func() error { return reserve(ctx, name) })
	}
}

// burst is what one round gave.
type burst struct {
	perSecond float64
	took      latencies
}

// names keeps the reservations of all measurements apart.
var names atomic.Int64

func nextName() string { return fmt.Sprintf("bench-%08d", names.Add(1)) }

// run lets clients make reservations, each one after the other, until the time is over or there are enough.
func run(ctx context.Context, reserve func(context.Context, string) error, clients int, during time.Duration, most int) (b burst, err error) {
	var mu sync.Mutex
	var left atomic.Int64
	left.Store(int64(most))
	group, ctx := errgroup.WithContext(ctx)
	started := time.Now()
	for range clients {
		group.Go(func() error {
			for time.Since(started) < during && left.Add(-1) >= 0 {
				before := time.Now()
				if err := reserve(ctx, nextName()); err != nil {
					return err
				}
				took := time.Since(before)
				mu.Lock()
				b.took = append(b.took, took)
				mu.Unlock()
			}
			return nil
		})
	}
	err = group.Wait()
	b.perSecond = float64(len(b.took)) / time.Since(started).Seconds()
	return b, err
}

// burstMost keeps the fastest from filling the federation before the others have had their turn.
const burstMost = 1500

// comparison is one number of clusters: the rounds of every contender at every number of clients.
type comparison struct {
	clusters int
	rates    map[string]map[int]series // by contender and clients
	p50, p99 map[string]map[int]series // in ms
	failed   map[string]error
}

// compare lets the contenders take turns, another one first in each round.
func (n *size) compare(ctx context.Context, t *table, contenders []named, clusters int) (*comparison, error) {
	c := &comparison{clusters, map[string]map[int]series{}, map[string]map[int]series{}, map[string]map[int]series{}, map[string]error{}}
	for _, contender := range contenders {
		c.rates[contender.name], c.p50[contender.name], c.p99[contender.name] = map[int]series{}, map[int]series{}, map[int]series{}
		started := time.Now()
		if err := contender.grow(ctx, clusters); err != nil {
			return nil, fmt.Errorf("%s: %d clusters: %w", contender.name, clusters, err)
		}
		t.say("%s: %d clusters after %s", contender.name, clusters, time.Since(started).Round(time.Millisecond))
	}
	for round := range n.rounds {
		for _, clients := range n.clients {
			for i := range contenders {
				contender := contenders[(i+round)%len(contenders)]
				if c.failed[contender.name] != nil || contender.clients != 0 && contender.clients != clients {
					continue
				}
				each := max(1, contender.each)
				b, err := run(ctx, contender.reserve, clients, n.burst, max(2, burstMost/each))
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				if err != nil {
					c.failed[contender.name] = fmt.Errorf("%d clients, round %d: %w", clients, round+1, err)
					t.say("%s: %v", contender.name, c.failed[contender.name])
					continue
				}
				c.rates[contender.name][clients] = append(c.rates[contender.name][clients], b.perSecond*float64(each))
				c.p50[contender.name][clients] = append(c.p50[contender.name][clients], milliseconds(b.took.quantile(0.5)))
				c.p99[contender.name][clients] = append(c.p99[contender.name][clients], milliseconds(b.took.quantile(0.99)))
			}
		}
		t.say("%d clusters: round %d of %d", clusters, round+1, n.rounds)
	}
	return c, nil
}

// goalClients is where the goals of one-by-one creates are set.
const goalClients = 64

// rows of one comparison: rates with ratios, then latencies at one client.
func (c *comparison) rows(t *table, contenders []named, clients []int) {
	for _, n := range clients {
		for _, contender := range contenders {
			if contender.clients != 0 && contender.clients != n {
				continue
			}
			what := fmt.Sprintf("%d clusters, %d clients: %s", c.clusters, n, contender.name)
			if err := c.failed[contender.name]; err != nil && len(c.rates[contender.name][n]) == 0 {
				t.missing(what, err)
				continue
			}
			r := row{what: what, unit: "/s", values: c.rates[contender.name][n]}
			if contender.name == oursAny || contender.name == oursLeader {
				r.note = c.ratios(contender.name, n)
			}
			if contender.name == oursAny && n == goalClients {
				r.goals = c.rateGoals(n)
			}
			if contender.each > 0 {
				r.note, r.goals = fmt.Sprintf("its goals: beside %d clients of the peers", goalClients), c.batchGoals(r.values.median())
			}
			t.add(r)
		}
	}
	for _, contender := range contenders {
		if len(c.p50[contender.name][1]) == 0 {
			continue
		}
		r := row{
			what: fmt.Sprintf("%d clusters, 1 client, create to Reserved, p50: %s", c.clusters, contender.name),
			unit: "ms", values: c.p50[contender.name][1], note: "p99 " + figure(c.p99[contender.name][1].median()),
		}
		if contender.name == oursAny || contender.name == oursLeader || contender.name == oursFollow {
			share := r.values.median() / c.better(c.p50, 1).median()
			r.note += fmt.Sprintf(", %.2f of (a)", share)
			r.goals = []goal{atMost(share, 0.2, "of (a)")}
		}
		t.add(r)
	}
}

// ratios to every peer that has figures.
func (c *comparison) ratios(ours string, clients int) (text string) {
	for _, peer := range []struct{ short, name string }{
		{"a1", kubeOne}, {"a tuned", kubeTuned}, {"b single", casSingle}, {"b top-8", casTopK}, {"c", upperBound},
	} {
		if theirs := c.rates[peer.name][clients].median(); theirs > 0 {
			text += fmt.Sprintf("%.1fx %s, ", c.rates[ours][clients].median()/theirs, peer.short)
		}
	}
	if text == "" {
		return ""
	}
	return text[:len(text)-2]
}

// rateGoals of the issue for creates one by one; (a) is the better of the two.
func (c *comparison) rateGoals(clients int) []goal {
	ours := c.rates[oursAny][clients].median()
	return append(against(ours, c.betterRate(clients), "(a)", 5, 10), against(ours, c.rates[casSingle][clients], "(b single)", 1.5, 3)...)
}

// against is the goals of one ratio; what has no figure is no goal met.
func against(ours float64, peer series, name string, factors ...float64) (goals []goal) {
	if len(peer) == 0 {
		return nil
	}
	for i, factor := range factors {
		text := fmt.Sprintf("%gx %s", factor, name)
		if i > 0 {
			text = fmt.Sprintf("moonshot %gx", factor)
		}
		goals = append(goals, goal{text, ours/peer.median() >= factor})
	}
	return goals
}

func (c *comparison) betterRate(clients int) series {
	one, tuned := c.rates[kubeOne][clients], c.rates[kubeTuned][clients]
	if one.median() > tuned.median() {
		return one
	}
	return tuned
}

// better is the quicker of the two of (a).
func (c *comparison) better(of map[string]map[int]series, clients int) series {
	one, tuned := of[kubeOne][clients], of[kubeTuned][clients]
	if len(tuned) == 0 || len(one) > 0 && one.median() < tuned.median() {
		return one
	}
	return tuned
}
