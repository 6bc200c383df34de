package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// group is what loses its leader.
type group interface {
	whole(ctx context.Context) error
	// behead kills the leader with kill -9 and returns a write on each survivor, and what starts it again.
	behead(ctx context.Context) (writes []func(context.Context) error, again func() error, err error)
	stop()
}

func (e *exchange) behead(ctx context.Context) (writes []func(context.Context) error, again func() error, err error) {
	leader, _, err := e.leader(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, n := range e.nodes {
		if n != leader {
			writes = append(writes, func(ctx context.Context) error { return n.reserve(ctx, nextName()) })
		}
	}
	again = func() (err error) { leader.process, err = leader.again(); return err }
	return writes, again, leader.kill()
}

func (g *etcdGroup) behead(ctx context.Context) (writes []func(context.Context) error, again func() error, err error) {
	leader, err := g.leader(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, m := range g.members {
		if m != leader {
			writes = append(writes, func(ctx context.Context) error {
				_, err := m.client.Put(ctx, nextName(), "x")
				return err
			})
		}
	}
	again = func() (err error) { leader.process, err = leader.again(); return err }
	return writes, again, leader.kill()
}

// failoverTry is how long one write is waited for before it is tried again.
const failoverTry = 250 * time.Millisecond

// failovers kills leader after leader. Before each kill the group must be whole.
func failovers(ctx context.Context, g group, kills int) (took latencies, err error) {
	for range kills {
		if err := g.whole(ctx); err != nil {
			return took, err
		}
		started := time.Now()
		writes, again, err := g.behead(ctx)
		if err != nil {
			return took, err
		}
		after, err := firstWrite(ctx, started, writes)
		if err != nil {
			return took, err
		}
		took = append(took, after)
		if err := again(); err != nil {
			return took, err
		}
	}
	return took, nil
}

// firstWrite lets every survivor try until one write is done.
func firstWrite(ctx context.Context, started time.Time, writes []func(context.Context) error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	done := make(chan time.Duration, len(writes))
	var all errgroup.Group
	for _, write := range writes {
		all.Go(func() error {
			for ctx.Err() == nil {
				try, stop := context.WithTimeout(ctx, failoverTry)
				err := write(try)
				stop()
				if err == nil {
					done <- time.Since(started)
					cancel()
					return nil
				}
				select { // a refusal at once must not become a flood
				case <-time.After(5 * time.Millisecond):
				case <-ctx.Done():
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return 0, err
	}
	select {
	case took := <-done:
		return took, nil
	default:
		return 0, errors.New("no write within a minute after the leader was killed")
	}
}

// failoverSection measures ours and etcd, with defaults and tuned.
func (b *bench) failoverSection(ctx context.Context) error {
	for _, c := range []struct {
		name  string
		start func(dir string) (group, error)
		goals bool
	}{
		{"ours, defaults (200 ms)", func(dir string) (group, error) { return startExchange(ctx, b.bin, dir) }, true},
		{"ours, tuned (100 ms)", func(dir string) (group, error) {
			return startExchange(ctx, b.bin, dir, "--raft-heartbeat=100ms", "--raft-election=100ms", "--raft-lease=80ms", "--raft-commit=5ms")
		}, false},
		{"etcd, defaults (100 ms / 1 s)", func(dir string) (group, error) { return startEtcd(ctx, b.kube, dir) }, false},
		{"etcd, tuned (20 ms / 200 ms)", func(dir string) (group, error) {
			return startEtcd(ctx, b.kube, dir, "--heartbeat-interval=20", "--election-timeout=200")
		}, false},
	} {
		what := "leader killed to next write: " + c.name
		took, err := b.failover(ctx, c.start)
		if err != nil {
			b.table.missing(what, err)
		}
		if len(took) == 0 {
			continue
		}
		r := row{what: what, unit: "ms", values: took.milliseconds()}
		if c.goals {
			r.goals = []goal{below(r.values.median(), 600, "ms (median)"), below(milliseconds(took.quantile(1)), 1000, "ms (max)")}
		}
		b.table.add(r)
	}
	return ctx.Err()
}

func (b *bench) failover(ctx context.Context, start func(dir string) (group, error)) (latencies, error) {
	b.folders++
	g, err := start(filepath.Join(b.dir, fmt.Sprintf("failover%d", b.folders)))
	if err != nil {
		return nil, err
	}
	defer g.stop()
	if e, ours := g.(*exchange); ours {
		if err := (&members{exchange: e}).grow(ctx, 3); err != nil {
			return nil, err
		}
	}
	return failovers(ctx, g, b.size.kills)
}

// electionSection holds ours under full load and counts changes of leadership that nobody caused. The
// first heartbeat without any is the smallest that passes: the longer ones are left out.
func (b *bench) electionSection(ctx context.Context) error {
	for _, heartbeat := range b.heartbeats {
		e, err := startExchange(ctx, b.bin, filepath.Join(b.dir, "load-"+heartbeat.String()),
			"--raft-heartbeat="+heartbeat.String())
		if err != nil {
			return err
		}
		elections, err := b.elections(ctx, e, heartbeat)
		e.stop()
		if err != nil {
			return err
		}
		if elections == 0 {
			return nil
		}
	}
	return nil
}

func (b *bench) elections(ctx context.Context, e *exchange, heartbeat time.Duration) (elections uint64, err error) {
	m := &members{exchange: e}
	if err := m.grow(ctx, 100); err != nil {
		return 0, err
	}
	_, before, err := e.leader(ctx)
	if err != nil {
		return 0, err
	}
	stop := m.beating(ctx)
	var refused atomic.Int64
	load, err := run(ctx, surely(anyNode{m}.reserve, &refused), goalClients, b.size.fullLoad, 1<<30)
	if err := errors.Join(err, stop()); err != nil {
		return 0, err
	}
	what := fmt.Sprintf("spurious elections in %s of full load, heartbeat %s", b.size.fullLoad, heartbeat)
	if err := e.whole(ctx); err != nil {
		return 0, err
	}
	_, after, err := e.leader(ctx)
	if err != nil {
		return 0, err
	}
	elections = after - before
	b.table.add(row{
		what: what, values: series{float64(elections)}, goals: []goal{{"none", elections == 0}},
		note: fmt.Sprintf("%s/s, p99 %s ms, %d writes refused and repeated", figure(load.perSecond),
			figure(milliseconds(load.took.quantile(0.99))), refused.Load()),
	})
	return elections, nil
}
