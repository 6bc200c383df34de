package store

import "github.com/bourse-dev/bourse/fsm"

// Compact forgets the history up to revision, as overflow does.
func (db *DB) Compact(revision fsm.Revision) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.feed.drop(db.feed.after(revision))
	db.feed.oldest = max(db.feed.oldest, revision)
}

// NewSmallDB has a history of at most maxChanges.
func NewSmallDB(state *fsm.State, maxChanges int) *DB {
	db := NewDB(state)
	db.feed.maxChanges = maxChanges
	return db
}
