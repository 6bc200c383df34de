package store

import (
	"sync/atomic"

	"github.com/bourse-dev/bourse/fsm"
)

type counters struct {
	entries, rows, wakes, restores atomic.Uint64
	events, overruns               atomic.Uint64
	watches                        atomic.Int64
}

// Counters is what a DB and the storage on it have counted since the start, for metrics.
type Counters struct {
	Entries  uint64 // Raft entries applied
	Rows     uint64 // rows written by them
	Wakes    uint64 // followers woken
	Restores uint64 // snapshots installed

	Watches  int64  // open now
	Events   uint64 // watch events sent
	Overruns uint64 // watches ended because the client fell out of the history

	Followers      int // open now, watches included
	HistoryChanges int
	HistoryBytes   int
	OldestRevision fsm.Revision // a watch can resume from here
}

// Counters takes a reading.
func (db *DB) Counters() Counters {
	db.mu.Lock()
	defer db.mu.Unlock()
	c := &db.counters
	return Counters{
		Entries: c.entries.Load(), Rows: c.rows.Load(), Wakes: c.wakes.Load(), Restores: c.restores.Load(),
		Watches: c.watches.Load(), Events: c.events.Load(), Overruns: c.overruns.Load(),
		Followers: db.feed.count, HistoryChanges: len(db.feed.items), HistoryBytes: db.feed.bytes,
		OldestRevision: db.feed.oldest,
	}
}
