package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
)

// version is one build of ours, with its exchange.
type version struct {
	name string
	bin  string
	*members
	leader *serverNode
}

// beforeSection holds an earlier build of ours against this one: what a change is worth, where the machine
// differs more from hour to hour than the two builds do.
func (b *bench) beforeSection(ctx context.Context) error {
	if b.before == "" {
		return errors.New("-before names no binary")
	}
	versions := []*version{{name: "before", bin: b.before}, {name: "after", bin: b.bin}}
	var contenders []named
	var sides []watchSide
	for _, v := range versions {
		e, err := startExchange(ctx, v.bin, filepath.Join(b.dir, v.name), "--stale-after=24h")
		if err != nil {
			return err
		}
		defer e.stop()
		v.members = &members{exchange: e}
		if v.leader, _, err = e.leader(ctx); err != nil {
			return err
		}
		contenders = append(contenders,
			named{name: v.name + ", any node", contender: anyNode{v.members}},
			named{name: v.name + ", the leader", contender: &oneNode{members: v.members, leads: true}, clients: 1},
			named{name: v.name + ", a follower", contender: &oneNode{members: v.members}, clients: 1})
		var servers []*rest.Config
		for _, n := range e.nodes {
			servers = append(servers, n.raw)
		}
		sides = append(sides, watchSide{v.name, servers, func(ctx context.Context) error { return v.leader.reserve(ctx, nextName()) }})
	}
	c, err := b.size.compare(ctx, b.table, contenders, beforeClusters)
	if err != nil {
		return err
	}
	c.rows(b.table, contenders, b.size.clients)
	if err := b.effort(ctx, versions); err != nil {
		return err
	}
	return b.watch(ctx, sides, watchGoal)
}

const beforeClusters = 100

// effort is the processor time of all nodes for one create: it tells what other work on the machine hides.
func (b *bench) effort(ctx context.Context, versions []*version) error {
	efforts := map[string]series{}
	for round := range b.size.rounds {
		for i := range versions {
			v := versions[(i+round)%len(versions)]
			before, err := v.exchange.cpuTime()
			if err != nil {
				return err
			}
			all, err := run(ctx, anyNode{v.members}.reserve, goalClients, b.size.burst, burstMost)
			if err != nil {
				return err
			}
			after, err := v.exchange.cpuTime()
			if err != nil {
				return err
			}
			efforts[v.name] = append(efforts[v.name], milliseconds(after-before)/float64(len(all.took)))
		}
	}
	for _, v := range versions {
		b.table.add(row{what: fmt.Sprintf("CPU time of all nodes for a create, %d clients, %s", goalClients, v.name), unit: "ms", values: efforts[v.name]})
		cores, err := b.cores(ctx, v.leader.pid)
		if err != nil {
			return err
		}
		b.table.add(row{what: "CPU of the idle leader, " + v.name, unit: "core", values: series{cores}})
	}
	return nil
}

// cpuTime of all nodes so far.
func (e *exchange) cpuTime() (all time.Duration, err error) {
	for _, n := range e.nodes {
		took, err := cpuTime(n.pid)
		if err != nil {
			return 0, err
		}
		all += took
	}
	return all, nil
}
