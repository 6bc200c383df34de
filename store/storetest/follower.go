package storetest

import (
	"context"
	"sync"
	"time"

	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// Follower is a store.Writer on another node than the leader: it forwards, and answers once its own
// DB has applied what the leader did. Entries reach that DB after a delay. Close it.
type Follower struct {
	leader *Leader
	db     *store.DB
	delay  time.Duration

	mu     sync.Mutex
	queue  []late
	paused bool
	wake   chan struct{}
	stop   chan struct{}
	done   chan struct{}
}

type late struct {
	entry []byte
	due   time.Time
}

var _ store.Writer = (*Follower)(nil)

// NewFollower follows leader from its present state on. It panics where the two diverge.
func NewFollower(leader *Leader, delay time.Duration) (*store.DB, *Follower) {
	leader.mu.Lock()
	defer leader.mu.Unlock()
	f := &Follower{
		leader: leader, db: store.NewDB(leader.db.State()), delay: delay,
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	leader.followers = append(leader.followers, f)
	go f.run()
	return f.db, f
}

// Close stops replicating and waits until it has stopped.
func (f *Follower) Close() {
	close(f.stop)
	<-f.done
}

// Pause holds entries back until resumed is called: a follower that lags for as long as a test needs.
func (f *Follower) Pause() (resume func()) {
	f.setPaused(true)
	return func() { f.setPaused(false) }
}

func (f *Follower) setPaused(paused bool) {
	f.mu.Lock()
	f.paused = paused
	f.mu.Unlock()
	f.nudge()
}

func (f *Follower) enqueue(entry []byte) {
	f.mu.Lock()
	f.queue = append(f.queue, late{entry, time.Now().Add(f.delay)})
	f.mu.Unlock()
	f.nudge()
}

func (f *Follower) nudge() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *Follower) run() {
	defer close(f.done)
	timer := time.NewTimer(f.delay)
	defer timer.Stop()
	for {
		if wait, waiting := f.applyDue(); waiting {
			timer.Reset(wait)
		}
		select {
		case <-f.stop:
			return
		case <-f.wake:
		case <-timer.C:
		}
	}
}

// applyDue applies what is due and says how long the next one has to wait.
func (f *Follower) applyDue() (wait time.Duration, waiting bool) {
	for {
		f.mu.Lock()
		if f.paused || len(f.queue) == 0 {
			f.mu.Unlock()
			return 0, false
		}
		next := f.queue[0]
		if wait := time.Until(next.due); wait > 0 {
			f.mu.Unlock()
			return wait, true
		}
		f.queue = f.queue[1:]
		f.mu.Unlock()
		if _, err := f.db.Apply(next.entry); err != nil {
			panic(err)
		}
	}
}

// Write is store.Writer's.
func (f *Follower) Write(ctx context.Context, txn fsm.Txn) (fsm.Result, error) {
	return f.applied(ctx)(f.leader.Write(ctx, txn))
}

// Report is store.Writer's.
func (f *Follower) Report(ctx context.Context, report fsm.Report) (fsm.Result, error) {
	return f.applied(ctx)(f.leader.Report(ctx, report))
}

// ReadIndex is store.Writer's.
func (f *Follower) ReadIndex(ctx context.Context) (fsm.Revision, error) {
	revision, err := f.leader.ReadIndex(ctx)
	if err != nil {
		return 0, err
	}
	_, err = f.db.WaitFor(ctx, revision)
	return revision, err
}

// applied waits until the follower's DB has come to the leader's result.
func (f *Follower) applied(ctx context.Context) func(fsm.Result, error) (fsm.Result, error) {
	return func(result fsm.Result, err error) (fsm.Result, error) {
		if err != nil {
			return result, err
		}
		_, err = f.db.WaitFor(ctx, result.Revision)
		return result, err
	}
}
