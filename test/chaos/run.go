package main

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse/test/chaos/history"
)

// errViolated is wrapped by every error that fails the run for what the exchange did.
var errViolated = history.ErrViolation

// run is one chaos run.
type run struct {
	config    config
	began     time.Time
	group     *group
	client    *client
	history   *history.History
	registers *history.Registers
	watchers  []*watcher
	objects   *objects

	gate  sync.RWMutex  // operations hold it for reading; who needs quiet, for writing
	told  atomic.Uint64 // the newest revision that anybody was told
	names atomic.Int64  // of operations

	ops      tally // client operations by kind
	failures tally // answers that were no success, by kind
	faults   tally // faults that took effect
	missed   tally // faults that did not

	windows, undecided, retired atomic.Int64
	lastCut                     uint64                 // the revision of the last moment of quiet
	doing                       atomic.Pointer[string] // what goes wrong now
	agents                      []*agent

	fail func(error) // ends the run with a violation
	once sync.Once
	bad  *history.Window // the window that failed
}

func newRun(c config, g *group) *run {
	return &run{
		config: c, began: time.Now(), group: g, client: newClient(g.nodes),
		registers: history.NewRegisters(), objects: newObjects(),
		ops: newTally(), failures: newTally(), faults: newTally(), missed: newTally(),
	}
}

// check ends the run where err is a violation.
func (r *run) check(err error) {
	if err != nil {
		r.once.Do(func() { r.fail(err) })
	}
}

// tell remembers that somebody was told of the revision: it is committed.
func (r *run) tell(rev uint64) {
	for {
		told := r.told.Load()
		if rev <= told || r.told.CompareAndSwap(told, rev) {
			return
		}
	}
}

// since the run began.
func (r *run) since() time.Duration { return time.Since(r.began) }

// newOp names an operation.
func (r *run) newOp() string { return fmt.Sprintf("op%d", r.names.Add(1)) }

// tally counts things by name.
type tally struct {
	mu     *sync.Mutex
	counts map[string]int64
}

func newTally() tally { return tally{&sync.Mutex{}, map[string]int64{}} }

func (t tally) add(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[what]++
}

func (t tally) of(what string) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[what]
}

func (t tally) all() map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.counts)
}

func (t tally) sum() (sum int64) {
	for _, n := range t.all() {
		sum += n
	}
	return sum
}

func (t tally) names() []string { return slices.Sorted(maps.Keys(t.all())) }
