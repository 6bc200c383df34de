package cluster

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// intentQueue is what waits for one room. What it has let in counts until it is answered: the room
// may keep an intent for many steps, and nobody need wait for the answer any more.
type intentQueue struct {
	room Room
	wake chan struct{}

	mu        sync.Mutex
	waiting   []*Intent
	open      int // let in and not answered, waiting or with the room
	openBytes int
	closed    bool
}

func newIntentQueue(room Room) *intentQueue {
	return &intentQueue{room: room, wake: make(chan struct{}, 1)}
}

func (q *intentQueue) add(intent *Intent) error {
	size := sizeOf(intent)
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return ErrNotLeader
	case q.open >= maxOpenIntents:
		return fmt.Errorf("%w: %d for room %s", ErrOverloaded, q.open, q.room.Name())
	case q.openBytes+size > maxOpenBytes:
		return fmt.Errorf("%w: %d bytes for room %s, and this one has %d", ErrOverloaded, q.openBytes, q.room.Name(), size)
	}
	q.open++
	q.openBytes += size
	intent.answered = func() { q.answered(size) }
	q.waiting = append(q.waiting, intent)
	q.nudge()
	return nil
}

func (q *intentQueue) answered(size int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open--
	q.openBytes -= size
}

// take is what one step is given: a bounded number, and bounded bytes unless one alone is larger.
func (q *intentQueue) take() []*Intent {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, size := 0, 0
	for n < min(maxIntentsPerStep, len(q.waiting)) {
		if size += sizeOf(q.waiting[n]); n > 0 && size > maxBytesPerStep {
			break
		}
		n++
	}
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
	q.mu.Lock()
	unseen := q.waiting
	q.waiting = nil
	q.mu.Unlock()
	for _, intent := range unseen {
		intent.end(Reply{Err: ErrNotLeader})
	}
}

func (q *intentQueue) nudge() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// sizeOf an intent in bytes, about: what is long in it.
func sizeOf(intent *Intent) int {
	if intent.Report != nil {
		return intentOverhead + len(intent.Report.Use)*holdUseBytes
	}
	size := intentOverhead
	for i := range intent.Txn.Writes {
		w := &intent.Txn.Writes[i]
		size += len(w.Key) + len(w.Body) + len(w.Facts)
	}
	return size
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
