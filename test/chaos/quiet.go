package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	adminv1 "github.com/bourse-dev/bourse/api/admin/v1"
	"github.com/bourse-dev/bourse/test/chaos/history"
)

// The marks: an object of each kind that only the run writes, so that watchers can be seen to
// have come to the present.
const (
	markNamespace = "marks"
	markName      = "mark"
	markCluster   = "mark"
)

const (
	judgeWithin = 30 * time.Second // porcupine, for one window
	toldWithin  = 60 * time.Second // every watcher must come to the present
	// balancedWithin: what one change does to several rows is told together.
	balancedWithin = 10 * time.Second
)

// cut stops everybody, waits until all that happened has been told, judges it, and forgets it.
// Faults are healed when it is called.
func (r *run) cut(ctx context.Context) error {
	r.gate.Lock()
	defer r.gate.Unlock()
	if err := r.group.whole(ctx); err != nil {
		return fmt.Errorf("%w: %w", errViolated, err)
	}
	open := r.registers.Open(r.history.Happened)
	if err := r.lastReads(ctx); err != nil {
		return err
	}
	marks, err := r.mark(ctx)
	if err != nil {
		return err
	}
	if err := r.everybodyTold(ctx, marks); err != nil {
		return err
	}
	if err := r.history.Quiet(); err != nil {
		return err
	}
	if err := until(ctx, balancedWithin, r.history.Balanced); err != nil {
		return fmt.Errorf("%w: %w", errViolated, err)
	}
	if err := until(ctx, balancedWithin, func() error { return r.slicesHeld(ctx) }); err != nil {
		return fmt.Errorf("%w: %w", errViolated, err)
	}
	if err := r.hashesEqual(ctx); err != nil {
		return err
	}
	if err := r.judge(r.registers.Cut(), open); err != nil {
		return err
	}
	r.windows.Add(1)
	r.history.Discard(r.lastCut)
	r.lastCut = min(marks[0], marks[1])
	return nil
}

// lastReads ends every window with a read: that is how the next begins.
func (r *run) lastReads(ctx context.Context) error {
	w := &worker{run: r, rng: rand.New(rand.NewPCG(r.config.seed, uint64(r.windows.Load())))}
	for _, o := range r.objects.all() {
		if o.use != plain {
			continue
		}
		err := until(ctx, wholeWithin, func() error {
			call, since := r.since(), r.told.Load()
			a := w.ask(ctx, "get, linearizable", get(reservationPath(o.namespace(), o.name()), ""))
			op := history.Op{Key: o.key(), Action: history.Get, Call: call, Return: r.since()}
			switch {
			case a.ok():
				row, ok := w.read(history.Reservations, a, since)
				if !ok {
					return errViolated
				}
				op.Value = opOf(row)
			case a.code != http.StatusNotFound:
				return errors.New(a.String())
			}
			r.registers.Add(op)
			return nil
		})
		if err != nil {
			return fmt.Errorf("%w: a whole group does not answer: %w", errViolated, err)
		}
	}
	return nil
}

// mark writes both marks and returns their revisions, by kind.
func (r *run) mark(ctx context.Context) (revs [2]uint64, err error) {
	w := &worker{run: r, rng: rand.New(rand.NewPCG(r.config.seed, 0))}
	for kind, path := range []string{reservationPath(markNamespace, markName), advertisementPath(markCluster)} {
		err := until(ctx, wholeWithin, func() error {
			op, since := r.newOp(), r.told.Load()
			a := w.ask(ctx, "mark", request{
				method: http.MethodPatch, path: path, contentType: mergePatch,
				body: fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, opAnnotation, op),
			})
			if !a.ok() {
				return errors.New(a.String())
			}
			row, ok := w.wrote(history.Kind(kind), a, op, since)
			if !ok {
				return errViolated
			}
			revs[kind] = row.Rev
			return nil
		})
		if err != nil {
			return revs, fmt.Errorf("%w: a whole group takes no write: %w", errViolated, err)
		}
	}
	return revs, nil
}

// makeMarks makes the two objects at the start of a run.
func (r *run) makeMarks(ctx context.Context) error {
	w := &worker{run: r, rng: rand.New(rand.NewPCG(r.config.seed, 0))}
	newAgent(r, markCluster, w.rng).advertise(ctx)
	what := asks{name: markName, op: r.newOp(), amounts: history.Amounts{CPUMilli: 1 << 40, MemoryBytes: 1}, duration: "1h"}
	a := w.ask(ctx, "mark", request{
		method: http.MethodPost, path: reservationPath(markNamespace, ""), contentType: jsonBody, body: what.body(),
	})
	if !a.ok() {
		return fmt.Errorf("make the mark: %s", a)
	}
	return nil
}

// everybodyTold waits until every watcher has come to the marks.
func (r *run) everybodyTold(ctx context.Context, marks [2]uint64) error {
	err := until(ctx, toldWithin, func() error {
		for _, w := range r.watchers {
			if at := w.at.Load(); at < marks[w.kind] {
				return fmt.Errorf("%s is at revision %d, the present is %d", w.name, at, marks[w.kind])
			}
		}
		return nil
	})
	return violatedUnlessOver(ctx, err)
}

// hashesEqual asks every node for the hash of its state.
func (r *run) hashesEqual(ctx context.Context) error {
	var last adminv1.StateHash
	err := until(ctx, wholeWithin, func() error {
		leader := r.group.leader(ctx)
		if leader == nil {
			return errors.New("nobody leads")
		}
		if err := r.group.ask(ctx, http.MethodGet, leader, adminv1.PathStateHash, nil, &last, adminWithin); err != nil {
			return err
		}
		hashes := map[string]bool{}
		for _, m := range last.Members {
			if m.Error != "" || m.Hash == "" {
				return fmt.Errorf("no hash of %s: %s", m.ID, m.Error)
			}
			hashes[m.Hash] = true
		}
		switch {
		case len(last.Members) != nodeCount || last.Index == 0:
			return fmt.Errorf("hashes of %d members at entry %d", len(last.Members), last.Index)
		case len(hashes) != 1 || !last.Equal:
			return fmt.Errorf("%w: states differ: %+v", errViolated, last)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errViolated) && ctx.Err() == nil {
		return fmt.Errorf("%w: no hashes to compare: %w", errViolated, err)
	}
	return err
}

// judge asks porcupine, and gives up the open names, on which something may happen yet.
func (r *run) judge(windows []history.Window, open map[string]bool) error {
	var (
		wait sync.WaitGroup
		mu   sync.Mutex
		bad  error
	)
	slots := make(chan struct{}, 2)
	for _, w := range windows {
		if open[w.Key] {
			r.objects.retire(w.Key)
			r.registers.Drop(w.Key)
			r.retired.Add(1)
		}
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			decided, err := w.Judge(judgeWithin)
			if !decided {
				r.undecided.Add(1)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil && bad == nil {
				bad, r.bad = err, &w
			}
		})
	}
	wait.Wait()
	return bad
}
