package store

import "github.com/bourse-dev/bourse/fsm"

// Follower reads the change feed in order, for one key or all keys below a prefix. It misses
// nothing and repeats nothing, or ends with ErrCompacted. It is woken only for its own keys, and
// one that is up to date stays so however much else is written. One goroutine reads a Follower.
type Follower struct {
	db        *DB
	prefix    string
	recursive bool // the prefix is empty or ends in a slash
	wake      chan struct{}

	// Guarded by DB.mu.
	behind bool   // changes from sequence number next on may concern it
	next   uint64 // only if behind
	ended  bool
}

// Follow follows what is written after the present state. prefix is empty (everything), ends in a
// slash (all keys below), or is one key. Close it.
func (db *DB) Follow(prefix string) *Follower {
	_, f := db.followState(prefix)
	return f
}

// followState returns the present state and a follower of what comes after it.
func (db *DB) followState(prefix string) (*fsm.State, *Follower) {
	db.mu.Lock()
	defer db.mu.Unlock()
	f := db.newFollower(prefix)
	db.feed.add(f)
	return db.State(), f
}

func (db *DB) newFollower(prefix string) *Follower {
	recursive := prefix == "" || prefix[len(prefix)-1] == '/'
	return &Follower{db: db, prefix: prefix, recursive: recursive, wake: make(chan struct{}, 1)}
}

// FollowFrom follows what was and will be written after revision; ErrCompacted where the history
// does not reach back to it. The revision must not be beyond the state's.
func (db *DB) FollowFrom(prefix string, revision fsm.Revision) (*Follower, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if revision < db.feed.oldest {
		return nil, ErrCompacted
	}
	f := db.newFollower(prefix)
	if i := db.feed.after(revision); i < len(db.feed.items) {
		f.behind, f.next = true, db.feed.first+uint64(i)
		f.nudge()
	}
	db.feed.add(f)
	return f, nil
}

// Wake receives when Read has something to tell. It may also receive when there is nothing new.
func (f *Follower) Wake() <-chan struct{} { return f.wake }

// Read returns what is new, in order, and the revision up to which the follower now has read.
// Where there is more than one batch it wakes itself again.
func (f *Follower) Read() ([]fsm.Change, fsm.Revision, error) {
	items, revision, err := f.read()
	if err != nil || len(items) == 0 {
		return nil, revision, err
	}
	changes := make([]fsm.Change, len(items))
	for i, c := range items {
		changes[i] = c.Change
	}
	return changes, revision, nil
}

func (f *Follower) read() ([]*change, fsm.Revision, error) {
	f.db.mu.Lock()
	defer f.db.mu.Unlock()
	feed := &f.db.feed
	if f.ended || f.behind && f.next < feed.first {
		return nil, 0, ErrCompacted
	}
	revision := f.db.State().Revision()
	if !f.behind {
		return nil, revision, nil
	}
	var items []*change
	for i := f.next - feed.first; i < uint64(len(feed.items)); i++ {
		if !within(f.prefix, f.recursive, feed.items[i].Key()) {
			continue
		}
		if len(items) == followBatch {
			f.next = feed.first + i
			f.nudge()
			return items, items[len(items)-1].Revision, nil
		}
		items = append(items, feed.items[i])
	}
	f.behind = false
	return items, revision, nil
}

// Close stops following. It may be called twice.
func (f *Follower) Close() {
	f.db.mu.Lock()
	defer f.db.mu.Unlock()
	f.db.feed.remove(f)
}

func (f *Follower) nudge() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}
