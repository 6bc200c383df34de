package store

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/internal/planted"
)

// DB is this node's copy of the replicated state and its change feed. It starts no goroutine.
// All methods may be called from any goroutine, Apply and Restore by one at a time.
type DB struct {
	state atomic.Pointer[fsm.State] // stored under mu, so that it always fits the feed

	mu      sync.Mutex
	feed    feed
	waiters []waiter

	counters counters
}

// waiter wants the state to reach a revision.
type waiter struct {
	revision fsm.Revision
	reached  chan struct{}
}

// NewDB starts from state, with an empty history: nothing before its revision can be resumed.
func NewDB(state *fsm.State) *DB {
	db := &DB{feed: newFeed(state.Revision(), MaxHistoryChanges, MaxHistoryBytes)}
	db.state.Store(state)
	return db
}

// State is the state as last applied. Immutable.
func (db *DB) State() *fsm.State { return db.state.Load() }

// Apply applies one Raft entry and wakes whom it concerns. Called by Raft's FSM goroutine only.
// An error means that this node can't go on: the state is unchanged and the node must stop.
func (db *DB) Apply(entry []byte) ([]fsm.Result, error) {
	outcome, err := db.State().Apply(entry)
	if err != nil {
		return nil, fmt.Errorf("apply after revision %d: %w", db.State().Revision(), err)
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.state.Store(outcome.State)
	woken := db.feed.append(outcome.Changes)
	db.release()
	db.counters.entries.Add(1)
	db.counters.rows.Add(uint64(len(outcome.Changes)))
	db.counters.wakes.Add(uint64(woken))
	return outcome.Results, nil
}

// Restore replaces the state by another one (an installed snapshot). The history is void: every
// follower ends with ErrCompacted. Never called while Apply runs.
func (db *DB) Restore(state *fsm.State) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.state.Store(state)
	if planted.Bug != planted.RestoreWithoutReset {
		db.feed.reset(state.Revision())
	}
	db.release()
	db.counters.restores.Add(1)
}

// WaitFor returns the state once it has reached revision, or the context's error.
func (db *DB) WaitFor(ctx context.Context, revision fsm.Revision) (*fsm.State, error) {
	if s := db.State(); s.Revision() >= revision {
		return s, nil
	}
	db.mu.Lock()
	if s := db.State(); s.Revision() >= revision {
		db.mu.Unlock()
		return s, nil
	}
	w := waiter{revision, make(chan struct{})}
	db.waiters = append(db.waiters, w)
	db.mu.Unlock()

	select {
	case <-w.reached:
		return db.State(), nil
	case <-ctx.Done():
		db.mu.Lock()
		defer db.mu.Unlock()
		db.waiters = slices.DeleteFunc(db.waiters, func(o waiter) bool { return o.reached == w.reached })
		return nil, fmt.Errorf("wait for revision %d at %d: %w", revision, db.State().Revision(), context.Cause(ctx))
	}
}

// release lets go whoever waited for a revision that is reached. Under mu. A scan: those who wait
// are requests in flight, and the server bounds them.
func (db *DB) release() {
	revision := db.State().Revision()
	db.waiters = slices.DeleteFunc(db.waiters, func(w waiter) bool {
		if w.revision > revision {
			return false
		}
		close(w.reached)
		return true
	})
}
