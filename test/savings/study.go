package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// study is everything that is compared, and how often.
type study struct {
	books    []book
	sizes    []demand
	clusters []int
	loads    []float64
	seeds    int
}

// usualLoad is the one that the tables show policy by policy.
const usualLoad = 0.75

// rivals are what 70/30 is compared with.
var rivals = []chooser{randomChoice, resourceOnly, cheapest, firstFit}

// sweep are the weights that are tried beside.
var sweep = []chooser{
	weighing("50/50", 50, 50), weighing("30/70", 30, 70), weighing("10/90", 10, 90),
	weighing("5/95", 5, 95), weighing("2/98", 2, 98), weighing("1/1000", 1, 1000),
}

// key names one comparison.
type key struct {
	book     string
	clusters int
	load     float64
	chooser  string
}

// figures are what the seeds gave for one key.
type figures struct {
	money, perCoreHour, refused, fragmented, used spread
	savedRandom, savedResource                    spread
}

type results struct {
	mu   sync.Mutex
	of   map[key]*figures
	done int
}

func choosers() []chooser {
	return slices.Concat([]chooser{standard}, rivals, sweep)
}

// run simulates everything, one scene a core at a time.
func (s *study) run(ctx context.Context, progress io.Writer) (*results, error) {
	r := &results{of: map[key]*figures{}}
	started := time.Now()
	all := len(s.books) * len(s.clusters) * len(s.loads) * s.seeds
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, b := range s.books {
		for _, clusters := range s.clusters {
			for _, load := range s.loads {
				for seed := range s.seeds {
					group.Go(func() error {
						if ctx.Err() != nil {
							return ctx.Err()
						}
						if err := s.compare(r, b, clusters, load, uint64(seed)); err != nil {
							return err
						}
						r.tell(progress, all, started)
						return nil
					})
				}
			}
		}
	}
	return r, group.Wait()
}

// compare gives one scene to every chooser.
func (s *study) compare(r *results, b book, clusters int, load float64, seed uint64) error {
	scene := newScene(seed, clusters, load, b, s.sizes)
	outcomes := map[string]*outcome{}
	for _, c := range choosers() {
		out, err := simulate(&scene, c)
		if err != nil {
			return fmt.Errorf("%s, %d clusters, seed %d, %s: %w", b.name, clusters, seed, c.name, err)
		}
		outcomes[c.name] = &out
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, out := range outcomes {
		r.figures(key{b.name, clusters, load, name}).add(out, outcomes)
	}
	return nil
}

func (f *figures) add(out *outcome, all map[string]*outcome) {
	f.money.add(out.money)
	f.perCoreHour.add(out.money / out.coreHours)
	f.refused.add(100 * float64(out.refused) / float64(out.asked))
	f.fragmented.add(100 * out.fragmented)
	f.used.add(100 * out.used)
	f.savedRandom.add(saved(out, all[randomChoice.name]))
	f.savedResource.add(saved(out, all[resourceOnly.name]))
}

func (r *results) figures(k key) *figures {
	f := r.of[k]
	if f == nil {
		f = &figures{}
		r.of[k] = f
	}
	return f
}

// tell says how far it is, ten times.
func (r *results) tell(progress io.Writer, all int, started time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	if r.done == all || r.done*10/all > (r.done-1)*10/all {
		fmt.Fprintf(progress, "savings: %d of %d federations, %s\n", r.done, all, time.Since(started).Round(time.Second)) //nolint:errcheck // to the terminal
	}
}
