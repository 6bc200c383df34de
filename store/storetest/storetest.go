// Package storetest stands in for the cluster in tests: Writers that apply to a store.DB at once,
// in this process, and a follower that gets every entry late. No Raft, no rooms, no network.
package storetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// Leader is a store.Writer that is its own cluster. Safe for concurrent use.
type Leader struct {
	db    *store.DB
	clock func() fsm.Millis

	mu        sync.Mutex
	fault     error // what every call returns instead of working
	followers []*Follower
	entries   uint64
}

var _ store.Writer = (*Leader)(nil)

// NewLeader writes to db, which nobody else may write to.
func NewLeader(db *store.DB) *Leader {
	return &Leader{db: db, clock: func() fsm.Millis { return fsm.Millis(time.Now().UnixMilli()) }}
}

// NewDB is an empty DB and its leader.
func NewDB() (*store.DB, *Leader) {
	db := store.NewDB(fsm.New())
	return db, NewLeader(db)
}

// Fail makes every later call return err, as a Writer does without a leader; nil ends that.
func (l *Leader) Fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = err
}

// Entries is how many entries were proposed so far.
func (l *Leader) Entries() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries
}

// Propose applies one entry, as a leader room's proposals are. A zero time is filled in.
func (l *Leader) Propose(entry fsm.Entry) ([]fsm.Result, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fault != nil {
		return nil, l.fault
	}
	if entry.Time == 0 {
		entry.Time = l.clock()
	}
	encoded, err := fsm.EncodeEntry(&entry)
	if err != nil {
		return nil, err
	}
	results, err := l.db.Apply(encoded)
	if err != nil {
		return nil, err
	}
	l.entries++
	for _, f := range l.followers {
		f.enqueue(encoded)
	}
	return results, nil
}

// Write is store.Writer's.
func (l *Leader) Write(ctx context.Context, txn fsm.Txn) (fsm.Result, error) {
	return l.one(ctx, fsm.Entry{Txns: []fsm.Txn{txn}})
}

// Report is store.Writer's.
func (l *Leader) Report(ctx context.Context, report fsm.Report) (fsm.Result, error) {
	return l.one(ctx, fsm.Entry{Reports: []fsm.Report{report}})
}

// ReadIndex is store.Writer's.
func (l *Leader) ReadIndex(ctx context.Context) (fsm.Revision, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fault != nil {
		return 0, l.fault
	}
	return l.db.State().Revision(), ctx.Err()
}

func (l *Leader) one(ctx context.Context, entry fsm.Entry) (fsm.Result, error) {
	if err := ctx.Err(); err != nil {
		return fsm.Result{}, err
	}
	results, err := l.Propose(entry)
	if err != nil {
		return fsm.Result{}, err
	}
	if len(results) != 1 {
		return fsm.Result{}, fmt.Errorf("one command had %d results", len(results))
	}
	return results[0], nil
}
