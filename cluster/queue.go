package cluster

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

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
