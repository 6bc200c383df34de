package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	adminv1 "github.com/bourse-dev/bourse/api/admin/v1"
	"github.com/bourse-dev/bourse/fsm"
)

// footprintSection fills an exchange, and measures what it costs to keep it, its snapshot, and what a
// snapshot does to those who write meanwhile.
func (b *bench) footprintSection(ctx context.Context) error {
	e, err := startExchange(ctx, b.bin, filepath.Join(b.dir, "footprint"))
	if err != nil {
		return err
	}
	defer e.stop()
	m := &members{exchange: e}
	if err := m.grow(ctx, b.size.fullClusters); err != nil {
		return err
	}
	stop := m.beating(ctx)
	defer stop() //nolint:errcheck // said below where nothing else went wrong
	var refused atomic.Int64
	filled, err := run(ctx, surely(anyNode{m}.reserve, &refused), 256, time.Hour, b.size.fullReservations)
	if err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	full := fmt.Sprintf("%d clusters, %d reservations", b.size.fullClusters, b.size.fullReservations)
	b.table.add(row{
		what: "filling up, 256 clients: " + full, unit: "/s", values: series{filled.perSecond},
		note: fmt.Sprintf("p99 %s ms, refused and repeated: %d of clients, %d of agents",
			figure(milliseconds(filled.took.quantile(0.99))), refused.Load(), m.repeated.Load()),
	})
	if err := b.upkeep(ctx, e, full); err != nil {
		return err
	}
	if err := stop(); err != nil {
		return err
	}
	return b.snapshots(ctx, e, full)
}

// upkeep is what each node costs while agents send heartbeats.
func (b *bench) upkeep(ctx context.Context, e *exchange, full string) error {
	leader, _, err := e.leader(ctx)
	if err != nil {
		return err
	}
	before := map[string]time.Duration{}
	for _, n := range e.nodes {
		if before[n.id], err = cpuTime(n.pid); err != nil {
			return err
		}
	}
	started := time.Now()
	select {
	case <-time.After(b.size.idleFor):
	case <-ctx.Done():
		return ctx.Err()
	}
	for _, n := range e.nodes {
		after, err := cpuTime(n.pid)
		if err != nil {
			return err
		}
		rss, err := residentMiB(n.pid)
		if err != nil {
			return err
		}
		role := "follower " + n.id
		if n == leader {
			role = "leader"
		}
		b.table.add(row{what: fmt.Sprintf("RSS of the %s, heartbeats: %s", role, full), unit: "MiB", values: series{rss}})
		b.table.add(row{
			what: fmt.Sprintf("CPU of the %s, heartbeats: %s", role, full), unit: "core",
			values: series{(after - before[n.id]).Seconds() / time.Since(started).Seconds()},
		})
	}
	return nil
}

func (b *bench) snapshots(ctx context.Context, e *exchange, full string) error {
	leader, _, err := e.leader(ctx)
	if err != nil {
		return err
	}
	alone, err := b.writesDuring(ctx, leader, func(context.Context) error { return nil })
	if err != nil {
		return err
	}
	var data []byte
	var saves series
	beside, err := b.writesDuring(ctx, leader, func(ctx context.Context) error {
		for range b.size.rounds {
			started := time.Now()
			if data, err = leader.rest.Get().AbsPath(adminv1.PathSnapshot).Do(ctx).Raw(); err != nil {
				return fmt.Errorf("snapshot: %w", err)
			}
			saves = append(saves, time.Since(started).Seconds())
		}
		return nil
	})
	if err != nil {
		return err
	}
	b.table.add(row{what: "snapshot: " + full, unit: "MiB", values: series{float64(len(data)) / (1 << 20)}})
	b.table.add(row{what: "snapshot fetched from the leader: " + full, unit: "s", values: saves})
	for _, side := range []struct {
		what string
		took latencies
	}{{"no snapshot being taken", alone}, {"snapshots being taken", beside}} {
		b.table.add(row{
			what: "create at the leader, 1 client, " + side.what, unit: "ms", values: side.took.milliseconds(),
			note: "p99 " + figure(milliseconds(side.took.quantile(0.99))),
		})
	}
	return b.restore(data, full)
}

// writesDuring has one client create at the leader, for at least two seconds, while something is done.
func (b *bench) writesDuring(ctx context.Context, leader *serverNode, do func(context.Context) error) (took latencies, err error) {
	writing, stop := context.WithCancel(ctx)
	defer stop()
	var writer errgroup.Group
	writer.Go(func() error {
		for writing.Err() == nil {
			started := time.Now()
			if err := leader.reserve(ctx, nextName()); err != nil {
				return err
			}
			took = append(took, time.Since(started))
		}
		return nil
	})
	started := time.Now()
	err = do(ctx)
	time.Sleep(2*time.Second - min(2*time.Second, time.Since(started)))
	stop()
	if failed := writer.Wait(); failed != nil {
		return nil, failed
	}
	return took, err
}

// restore reads the snapshot as a node does, and measures Apply on that state alone and while it is written out.
func (b *bench) restore(data []byte, full string) error {
	var times series
	var state *fsm.State
	for range b.size.rounds {
		started := time.Now()
		var err error
		if state, err = fsm.ReadSnapshot(bytes.NewReader(data)); err != nil {
			return err
		}
		times = append(times, time.Since(started).Seconds())
	}
	r := row{what: "restore of that snapshot: " + full, unit: "s", values: times}
	if b.size.fullClusters >= 10_000 && b.size.fullReservations >= 100_000 {
		r.goals = []goal{below(times.median(), 3, "s"), below(times.median(), 1, "s (moonshot)")}
	}
	b.table.add(r)
	return b.stall(state, full)
}

// writeOut is a snapshot as Raft keeps it: to a file, with fsync.
func writeOut(path string, state *fsm.State) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer os.Remove(path) //nolint:errcheck // a temporary file
	if err := fsm.WriteSnapshot(file, state); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	return file.Close()
}
