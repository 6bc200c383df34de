// Command chaos runs a real exchange of three broker processes behind a network that fails, kills
// and stops them, damages their disks, lets clients work against it all the while, and judges
// whether what they were told can be true. See DESIGN.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"github.com/bourse-dev/bourse/test/chaos/history"
)

// config is what a run is told.
type config struct {
	duration  time.Duration
	seed      uint64
	dir       string
	keep      bool
	rate      float64
	workers   int
	faults    string
	binary    string // the build under test
	old       string // the build of the commit recorded, beside it
	oldCommit string
	raises    bool // the present build brings another behaviour version
	commit    string
}

func main() {
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func start() error {
	var c config
	flag.DurationVar(&c.duration, "duration", 2*time.Minute, "how long clients work and faults happen")
	flag.Uint64Var(&c.seed, "seed", 0, "of the order of faults and of the clients' choices; 0: any")
	flag.StringVar(&c.dir, "dir", "", "report directory (default: a new one, kept on failure)")
	flag.BoolVar(&c.keep, "keep", os.Getenv("KEEP") == "1", "keep the report directory of a run without violation")
	flag.Float64Var(&c.rate, "rate", 600, "client operations per second, at most")
	flag.IntVar(&c.workers, "workers", 48, "clients that do everything; beside them a sixth as many only read what nodes have")
	flag.StringVar(&c.faults, "faults", "", "names of the faults to do, with commas (default: all)")
	flag.StringVar(&c.binary, "binary", "", "bourse to run (default: built from this checkout)")
	flag.StringVar(&c.old, "old", "", "bourse to run beside it (default: built from -old-commit)")
	flag.StringVar(&c.oldCommit, "old-commit", oldCommit, "commit of the old build")
	flag.Parse()
	if c.seed == 0 {
		c.seed = uint64(time.Now().UnixNano()) % 1_000_000_000
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	made := c.dir == ""
	var err error
	if made {
		c.dir, err = os.MkdirTemp("", fmt.Sprintf("bourse-chaos-%d-", c.seed))
	} else {
		c.dir, err = filepath.Abs(c.dir)
	}
	if err != nil {
		return err
	}
	fmt.Printf("seed %d, %s, report in %s\n", c.seed, c.duration, c.dir)
	if err := c.build(ctx); err != nil {
		return err
	}
	if err := runChaos(ctx, c); err != nil {
		return err
	}
	if made && !c.keep {
		return os.RemoveAll(c.dir)
	}
	return nil
}

func runChaos(ctx context.Context, c config) (err error) {
	kinds, err := chosen(allFaults(), c.faults)
	if err != nil {
		return err
	}
	g, err := newGroup(c.dir, c.binary, c.old)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	r := newRun(c, g)
	if err := g.found(ctx); err != nil {
		return fmt.Errorf("the group does not come up: %w", err)
	}
	live, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	r.fail = func(err error) { fail(err) }
	err = r.live(live, kinds)
	return r.report(err)
}

// live runs everybody until the time is over, then looks at everything once more.
func (r *run) live(ctx context.Context, kinds []fault) error {
	start, err := r.beginning(ctx)
	if err != nil {
		return err
	}
	r.history = history.New(start, consents)
	everybody, endAll := context.WithCancel(ctx)
	defer endAll()
	var watching, working sync.WaitGroup
	for kind := range history.Kind(2) {
		for home := range nodeCount {
			r.watchers = append(r.watchers, newWatcher(r, kind, home, false, start))
		}
		r.watchers = append(r.watchers, newWatcher(r, kind, 0, true, start), newWatcher(r, kind, 1, true, start))
	}
	for _, w := range r.watchers {
		watching.Go(func() { w.watch(everybody) })
	}
	if err := r.makeMarks(ctx); err != nil {
		return err
	}
	timed, over := context.WithTimeout(everybody, r.config.duration)
	defer over()
	pace := rate.NewLimiter(rate.Limit(r.config.rate), r.config.workers)
	for i := range r.config.workers {
		w := &worker{run: r, id: i + 1, rng: rand.New(rand.NewPCG(r.config.seed, uint64(i+1)))}
		working.Go(func() { w.work(timed, pace, duties) })
	}
	for i := range r.config.workers / 6 {
		w := &worker{run: r, id: 1000 + i, rng: rand.New(rand.NewPCG(r.config.seed, uint64(1<<20+i)))}
		working.Go(func() { w.work(timed, pace, localDuties) })
	}
	for i := range clusterCount {
		a := newAgent(r, clusterName(i), rand.New(rand.NewPCG(r.config.seed, uint64(1000+i))))
		r.agents = append(r.agents, a)
		working.Go(func() { a.report(timed) })
	}
	working.Go(func() { r.progress(timed) })
	n := &nemesis{run: r, rng: rand.New(rand.NewPCG(r.config.seed, 1<<32)), life: ctx}
	err = n.reign(timed, kinds)
	over()
	working.Wait()
	if err == nil && context.Cause(ctx) == nil {
		if err = n.heal(); err == nil {
			err = r.cut(ctx)
		}
	}
	endAll()
	r.history.Close()
	watching.Wait()
	if cause := context.Cause(ctx); err == nil || errors.Is(cause, errViolated) {
		return cause
	}
	return err
}

// beginning is the revision of the empty exchange.
func (r *run) beginning(ctx context.Context) (start uint64, err error) {
	a := r.client.do(ctx, r.client.nodes[0], get(apiPath+"/reservations", ""))
	if !a.ok() {
		return 0, fmt.Errorf("list the empty exchange: %s", a)
	}
	start, _, err = decodeList(history.Reservations, a.body)
	return start, err
}

// allFaults are all kinds.
func allFaults() []fault {
	return slices.Concat(processFaults, networkFaults, diskFaults, clockFaults, versionFaults, agentFaults)
}
