package cluster

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/bourse-dev/bourse/fsm"
)

// termConfig is what every term of a node shares.
type termConfig struct {
	log             Log
	feed            Feed
	rooms           []Room // the last takes everything
	clock           clock.Clock
	logger          hclog.Logger
	takeOverTimeout time.Duration
	tickInterval    time.Duration
	// check, before the first entry, fails where this node must not lead (its clock). May be nil.
	check func(ctx context.Context) error
	// steward runs beside the rooms until ctx is done. May be nil.
	steward func(ctx context.Context, t *term) error
	// opened and closed say when intents are let in. closed comes first of all when a term ends.
	opened func(t *term)
	closed func(t *term)
}

// term is one leadership term of this node. Methods are safe for concurrent use.
type term struct {
	cfg    *termConfig
	queues []*intentQueue
	number uint64 // Raft's, as it was before the barrier

	// State time within the term: base at start, then the monotonic clock.
	base  fsm.Millis
	start time.Time
}

// run takes over, lets intents in and works until ctx is done, or it can't go on: then it returns
// an error, and somebody else should lead. When it returns, nothing of the term is left.
func (t *term) run(ctx context.Context) (err error) {
	defer recovered(&err)
	if err := t.takeOver(ctx); err != nil {
		return fmt.Errorf("take over: %w", err)
	}
	now := t.now()
	var steppers []*Stepper
	for _, room := range t.cfg.rooms {
		t.queues = append(t.queues, newIntentQueue(room))
		steppers = append(steppers, NewStepper(room, t.cfg.feed, now))
	}
	// The gate closes before the work is cancelled: hence a context of its own.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	group, work := errgroup.WithContext(work)
	t.cfg.opened(t)
	for i, q := range t.queues {
		group.Go(func() error { return t.runRoom(work, q, steppers[i]) })
	}
	group.Go(func() error { return t.tick(work) })
	if t.cfg.steward != nil {
		group.Go(func() error { return t.cfg.steward(work, t) })
	}
	select {
	case <-ctx.Done():
	case <-work.Done():
	}
	t.cfg.closed(t)
	for _, q := range t.queues {
		q.close()
	}
	cancel()
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// recovered turns a panic into the end of the term: the next leader may fare better, and what was
// committed is unharmed.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
	}
}

// takeOver catches up with earlier terms and enters the wall clock, so that time without a leader counts.
func (t *term) takeOver(ctx context.Context) error {
	if err := t.cfg.log.Barrier(t.cfg.takeOverTimeout); err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if t.cfg.check != nil {
		if err := t.cfg.check(ctx); err != nil {
			return err
		}
	}
	t.start = t.cfg.clock.Now()
	t.base = max(millisOf(t.start), t.cfg.feed.State().Time())
	return t.propose(fsm.Entry{Time: t.base})
}

// now is state time: it doesn't follow jumps of the wall clock within the term.
func (t *term) now() fsm.Millis {
	return t.base + fsm.Millis(t.cfg.clock.Since(t.start).Milliseconds())
}

// propose enters a tick or a raise of the behaviour version.
func (t *term) propose(entry fsm.Entry) error {
	data, err := fsm.EncodeEntry(&entry)
	if err != nil {
		return err
	}
	if err := t.cfg.log.Propose([][]byte{data})[0].Err; err != nil {
		return fmt.Errorf("propose at state time %d: %w", entry.Time, err)
	}
	return nil
}

func (t *term) tick(ctx context.Context) error {
	timer := t.cfg.clock.NewTimer(t.cfg.tickInterval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C():
			if err := t.propose(fsm.Entry{Time: t.now()}); err != nil {
				return err
			}
			timer.Reset(t.cfg.tickInterval)
		}
	}
}

// submit hands an intent to the room that takes it. An error means that nothing happened.
func (t *term) submit(intent *Intent) error {
	i := slices.IndexFunc(t.queues, func(q *intentQueue) bool { return q.room.Takes(intent) })
	if i < 0 {
		return fmt.Errorf("%w: no room takes this", ErrInvalid)
	}
	return t.queues[i].add(intent)
}

// stateChanged tells every room; called after each applied entry, must not block.
func (t *term) stateChanged() {
	for _, q := range t.queues {
		q.nudge()
	}
}

// runRoom is the term loop of one room.
func (t *term) runRoom(ctx context.Context, q *intentQueue, s *Stepper) (err error) {
	defer recovered(&err)
	defer func() {
		s.End()
		q.end()
	}()
	timer := t.cfg.clock.NewTimer(0)
	defer timer.Stop()
	for {
		if !s.Busy() {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-q.wake:
			case <-timer.C():
			}
		}
		now := t.now()
		batches, err := s.Step(now, q.take(maxIntentsPerStep))
		if err != nil {
			return err
		}
		if len(batches) > 0 {
			entries := make([][]byte, len(batches))
			for i := range batches {
				entries[i] = batches[i].Entry
			}
			if err := s.Settle(batches, t.cfg.log.Propose(entries)); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		timer.Stop()
		if wake := s.Wake(); wake > 0 {
			timer.Reset(max(0, time.Duration(wake-t.now())*time.Millisecond))
		}
	}
}

// intentQueue is what waits for one room.
type intentQueue struct {
	room Room
	wake chan struct{}

	mu      sync.Mutex
	waiting []*Intent
	closed  bool
}

func newIntentQueue(room Room) *intentQueue {
	return &intentQueue{room: room, wake: make(chan struct{}, 1)}
}

func (q *intentQueue) add(intent *Intent) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrNotLeader
	}
	if len(q.waiting) >= maxQueuedIntents {
		return fmt.Errorf("%w: %d for room %s", ErrOverloaded, maxQueuedIntents, q.room.Name())
	}
	q.waiting = append(q.waiting, intent)
	q.nudge()
	return nil
}

func (q *intentQueue) take(limit int) []*Intent {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(limit, len(q.waiting))
	taken := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	if len(q.waiting) > 0 {
		q.nudge()
	}
	return taken
}

func (q *intentQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

// end answers what no step has seen.
func (q *intentQueue) end() {
	q.close()
	for _, intent := range q.take(maxQueuedIntents) {
		intent.end(Reply{Err: ErrNotLeader})
	}
}

func (q *intentQueue) nudge() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// checkIntent refuses what only the leader's rooms may write.
func checkIntent(intent *Intent) error {
	if (intent.Txn == nil) == (intent.Report == nil) {
		return fmt.Errorf("%w: an intent is exactly one of Txn and Report", ErrInvalid)
	}
	if intent.Txn == nil {
		return nil
	}
	if len(intent.Txn.Moves) > 0 {
		return fmt.Errorf("%w: an intent carries no moves", ErrInvalid)
	}
	for i := range intent.Txn.Writes {
		w := &intent.Txn.Writes[i]
		switch {
		case w.Ledger != nil:
			return fmt.Errorf("%w: an intent carries no ledger part (row %s)", ErrInvalid, w.Key)
		case strings.HasPrefix(w.Key, NodesPrefix):
			return fmt.Errorf("%w: row %s belongs to the group itself", ErrInvalid, w.Key)
		}
	}
	return nil
}
