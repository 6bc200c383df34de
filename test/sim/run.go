package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
)

// options of a range of seeds.
type options struct {
	from, seeds uint64
	workers     int
}

// outcome of one seed.
type outcome struct {
	seed uint64
	st   *stats
	err  error
}

func one(p plan) (*stats, uint64, error) {
	st := newStats()
	t := newTrace(p, st)
	err := t.run()
	st.traces, st.steps = 1, t.steps
	st.fewestSteps, st.fewestFaults = t.steps, t.faults()
	return st, t.digest, err
}

// runSeeds runs a range, each seed on one goroutine, and stops at the first violation.
func runSeeds(w io.Writer, o options) error {
	next, results, stop := make(chan uint64), make(chan outcome), make(chan struct{})
	var workers sync.WaitGroup
	for range o.workers {
		workers.Go(func() {
			for seed := range next {
				st, _, err := one(plan{seed: seed})
				results <- outcome{seed, st, err}
			}
		})
	}
	go func() {
		defer close(next)
		for seed := o.from; seed < o.from+o.seeds; seed++ {
			select {
			case next <- seed:
			case <-stop:
				return
			}
		}
	}()
	go func() { workers.Wait(); close(results) }()

	sum, began, told := newStats(), time.Now(), time.Now()
	ahead, resume := map[uint64]bool{}, o.from // every seed below resume is done
	var failed *outcome
	for r := range results {
		sum.add(r.st)
		for ahead[r.seed] = true; ahead[resume]; resume++ {
			delete(ahead, resume)
		}
		if r.err != nil && (failed == nil || r.seed < failed.seed) {
			if failed == nil {
				close(stop)
			}
			failed = &r
		}
		if time.Since(told) > 5*time.Second {
			told = time.Now()
			_, _ = fmt.Fprintf(w, "%d of %d seeds, %.0f seeds/s; go on later with FROM=%d\n", sum.traces, o.seeds,
				float64(sum.traces)/time.Since(began).Seconds(), resume)
		}
	}
	rate := float64(sum.traces) / time.Since(began).Seconds()
	_, _ = fmt.Fprintf(w, "%d seeds from %d in %v: %.0f seeds/s\n", sum.traces, o.from, time.Since(began).Round(time.Millisecond), rate)
	sum.print(w)
	if failed != nil {
		return minimised(w, failed.seed, failed.err)
	}
	if missing := sum.missing(); len(missing) > 0 && o.seeds >= 1000 {
		return fmt.Errorf("never met in %d seeds: %s", o.seeds, strings.Join(missing, "; "))
	}
	return nil
}

// minimised leaves out faults and steps as long as the seed still fails.
func minimised(w io.Writer, seed uint64, first error) error {
	_, _ = fmt.Fprintf(w, "seed %d: %v\nminimising\n", seed, first)
	fails := func(p plan) bool {
		_, _, err := one(p)
		return err != nil
	}
	p := plan{seed: seed, skip: map[int]bool{}}
	for i := range mostFaults {
		p.skip[i] = true
		if !fails(p) {
			delete(p.skip, i)
		}
	}
	low, high := 0, 1<<14 // the fewest steps that fail; it need not be so for all above
	for low+1 < high {
		middle := (low + high) / 2
		if p.steps = middle; fails(p) {
			high = middle
		} else {
			low = middle
		}
	}
	if p.steps = high; !fails(p) {
		p.steps = 0
	}
	_, _, err := one(p)
	if err == nil {
		err = errors.Join(errors.New("the minimised seed doesn't fail: not replayable"), first)
	}
	return fmt.Errorf("%w\nto see it again: make sim SEED=%d SKIP=%s STEPS=%d", err, seed, joined(p.skip), p.steps)
}

func joined(set map[int]bool) string {
	var parts []string
	for _, i := range sortedKeys(set) {
		parts = append(parts, strconv.Itoa(i))
	}
	return strings.Join(parts, ",")
}

// replay tells one seed step by step.
func replay(w io.Writer, seed uint64, skip string, steps int, everyEvent bool) error {
	p := plan{seed: seed, skip: map[int]bool{}, steps: steps}
	for part := range strings.SplitSeq(skip, ",") {
		if part == "" {
			continue
		}
		i, err := strconv.Atoi(part)
		if err != nil {
			return fmt.Errorf("-skip: %w", err)
		}
		p.skip[i] = true
	}
	t := newTrace(p, newStats())
	t.everyEvent = everyEvent
	t.narrator = func(line string) { _, _ = fmt.Fprintln(w, line) }
	err := t.run()
	t.stats.traces, t.stats.steps = 1, t.steps
	t.stats.print(w)
	return err
}
