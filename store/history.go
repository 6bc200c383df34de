package store

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse/fsm"
)

// Changes returns every change after revision, oldest first; ErrCompacted where the history does
// not reach back to it.
func (db *DB) Changes(after fsm.Revision) ([]fsm.Change, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if after < db.feed.oldest {
		return nil, ErrCompacted
	}
	items := db.feed.items[db.feed.after(after):]
	changes := make([]fsm.Change, len(items))
	for i, c := range items {
		changes[i] = c.Change
	}
	return changes, nil
}

// OldestRevision is the oldest from which a watch can resume.
func (db *DB) OldestRevision() fsm.Revision {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.feed.oldest
}

// changeAt returns the newest change of key that is not after revision, nil where the history has
// none. It finds what a Txn that ended at revision did to the row.
func (db *DB) changeAt(key string, revision fsm.Revision) *change {
	db.mu.Lock()
	defer db.mu.Unlock()
	for i := db.feed.after(revision) - 1; i >= 0; i-- {
		if c := db.feed.items[i]; c.Key() == key {
			return c
		}
	}
	return nil
}

// newest is the row as it last was: who asks again for something that was made in several steps may come when it
// is gone.
func (db *DB) newest(row *fsm.Row) *fsm.Row {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, c := range slices.Backward(db.feed.items) {
		if c.After != nil && c.Key() == row.Key && c.After.Created == row.Created {
			return c.After
		}
	}
	return row
}

// rowsAt returns the rows of a scan as they were at revision, in key order: the present
// ones with every later change undone. The revision must not be beyond the state's.
func (db *DB) rowsAt(prefix string, recursive bool, revision fsm.Revision) ([]*fsm.Row, error) {
	state, undo, err := db.undo(prefix, recursive, revision)
	if err != nil {
		return nil, err
	}
	var rows []*fsm.Row
	for row := range scan(state, prefix, recursive) {
		before, changed := undo[row.Key]
		delete(undo, row.Key)
		if !changed {
			before = row
		}
		if before != nil {
			rows = append(rows, before)
		}
	}
	inOrder := len(rows)
	for _, before := range undo { // deleted since
		if before != nil {
			rows = append(rows, before)
		}
	}
	if len(rows) > inOrder {
		slices.SortFunc(rows, func(a, b *fsm.Row) int { return cmp.Compare(a.Key, b.Key) })
	}
	return rows, nil
}

// undo returns, for each key changed after revision, its row before; nil: there was none.
func (db *DB) undo(prefix string, recursive bool, revision fsm.Revision) (*fsm.State, map[string]*fsm.Row, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if revision < db.feed.oldest {
		return nil, nil, ErrCompacted
	}
	before := make(map[string]*fsm.Row)
	later := db.feed.items[db.feed.after(revision):]
	for _, c := range slices.Backward(later) {
		if within(prefix, recursive, c.Key()) {
			before[c.Key()] = c.Before
		}
	}
	return db.State(), before, nil
}

// scan yields the row of a key, or in key order all rows whose keys begin with it.
func scan(state *fsm.State, prefix string, recursive bool) iter.Seq[*fsm.Row] {
	if recursive {
		return state.Scan(prefix)
	}
	return func(yield func(*fsm.Row) bool) {
		if row := state.Row(prefix); row != nil {
			yield(row)
		}
	}
}

// within says whether scan would come to the key.
func within(prefix string, recursive bool, key string) bool {
	return key == prefix || recursive && strings.HasPrefix(key, prefix)
}
