package cluster

import (
	"context"
	"fmt"
	"sync"

	"github.com/bourse-dev/bourse/fsm"
)

// readIndex answers, on the leader, which revision a linearizable read must have applied. Callers
// that come while one proof of leadership is under way share the next.
type readIndex struct {
	prove func() (fsm.Revision, error) // see Leadership.ReadIndex
	kick  chan struct{}                // room for one: a round waits

	mu   sync.Mutex
	next *readRound // those who come now; nil: none waits
}

type readRound struct {
	done     chan struct{}
	revision fsm.Revision
	err      error
}

// get waits for a round that began after the call.
func (r *readIndex) get(ctx context.Context) (fsm.Revision, error) {
	r.mu.Lock()
	if r.next == nil {
		r.next = &readRound{done: make(chan struct{})}
	}
	round := r.next
	r.mu.Unlock()
	select {
	case r.kick <- struct{}{}:
	default:
	}
	select {
	case <-round.done:
		return round.revision, round.err
	case <-ctx.Done():
		return 0, fmt.Errorf("%w (%w)", ErrNotLeader, ctx.Err())
	}
}

// loop runs until ctx is done; rounds that wait then are left to their callers' contexts.
func (r *readIndex) loop(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.kick:
		}
		r.mu.Lock()
		round := r.next
		r.next = nil
		r.mu.Unlock()
		if round == nil {
			continue
		}
		round.revision, round.err = r.prove()
		close(round.done)
	}
}
