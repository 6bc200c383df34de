package history

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
)

// ErrViolation is wrapped by everything that must not be.
var ErrViolation = errors.New("violation")

func violation(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrViolation, fmt.Sprintf(format, args...))
}

// History is what happened. Methods may be called on any goroutine.
type History struct {
	mu      sync.Mutex
	grown   *sync.Cond
	events  [kinds][]Row   // in order of revision, until Discard
	dropped [kinds]uint64  // the newest revision that was discarded
	proven  [kinds]uint64  // every change up to here is known
	rows    map[name][]Row // the versions of each object, oldest first
	closed  bool

	replay  *replay
	ops     *operations
	waiting [kinds]waiting // checks whose revision is not proven yet

	counts Counts
}

type name struct {
	kind Kind
	key  string
}

// Counts of what was checked.
type Counts struct {
	Events, Repeats, Rows, Lists, Deletes, Writes, Grants, Extensions, Ends, Expiries, Waiting int
}

// New is a history that begins at revision start, with nothing in it. consents says which clusters run
// blueprints; nil: none does.
func New(start uint64, consents func(cluster string) bool) *History {
	h := &History{rows: map[name][]Row{}, replay: newReplay(consents), ops: newOperations()}
	h.grown = sync.NewCond(&h.mu)
	h.proven = [kinds]uint64{start, start}
	h.dropped = h.proven
	return h
}

// Counts so far.
func (h *History) Counts() Counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.counts
	c.Waiting = len(h.waiting[Reservations]) + len(h.waiting[Advertisements])
	return c
}

// Close wakes everybody who waits.
func (h *History) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.grown.Broadcast()
}

// Cursor is how far one watcher has come.
type Cursor struct {
	Kind Kind
	At   uint64
}

// Saw is called with every event of a watcher, in its order. The watcher claims that there is none
// between the cursor and this one. Watchers that began later than what is proven wait here until
// others have told the time between.
func (h *History) Saw(c *Cursor, row Row) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if row.Rev <= c.At {
		return violation("a watch of %s at revision %d was told %s at revision %d", c.Kind, c.At, row.Key, row.Rev)
	}
	for c.At > h.proven[c.Kind] && !h.closed {
		h.grown.Wait()
	}
	if c.At < h.dropped[c.Kind] || h.closed {
		c.At = row.Rev // checked long ago by others, nothing is left to compare with
		return nil
	}
	events := h.events[c.Kind]
	next := sort.Search(len(events), func(i int) bool { return events[i].Rev > c.At })
	if next < len(events) {
		if events[next] != row {
			return violation("after revision %d of %s one watcher was told %+v, another %+v", c.At, c.Kind, events[next], row)
		}
		h.counts.Repeats++
		c.At = row.Rev
		return nil
	}
	if row.Rev <= h.proven[c.Kind] {
		return violation("%s: %+v comes late: everything up to revision %d had been told", c.Kind, row, h.proven[c.Kind])
	}
	c.At = row.Rev
	h.counts.Events++
	h.events[c.Kind] = append(events, row)
	of := name{row.Kind, row.Key}
	h.rows[of] = append(h.rows[of], row)
	if err := h.ops.wrote(row); err != nil {
		return err
	}
	return h.prove(c.Kind, row.Rev)
}

// Bookmark says that a watcher has been told everything up to the revision.
func (h *History) Bookmark(c *Cursor, rev uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if rev < c.At {
		return violation("a bookmark of %s goes back from revision %d to %d", c.Kind, c.At, rev)
	}
	for c.At > h.proven[c.Kind] && !h.closed {
		h.grown.Wait()
	}
	events := h.events[c.Kind]
	next := sort.Search(len(events), func(i int) bool { return events[i].Rev > c.At })
	if next < len(events) && events[next].Rev <= rev && c.At >= h.dropped[c.Kind] {
		return violation("a watch of %s passes from revision %d to %d without %+v", c.Kind, c.At, rev, events[next])
	}
	c.At = rev
	if rev > h.proven[c.Kind] {
		return h.prove(c.Kind, rev)
	}
	return nil
}

// prove under the lock: every change of the kind up to rev is known.
func (h *History) prove(kind Kind, rev uint64) error {
	h.proven[kind] = rev
	h.grown.Broadcast()
	if err := h.replayProven(); err != nil {
		return err
	}
	return h.settle(kind)
}

// Proven is the revision up to which every change of the kind is known.
func (h *History) Proven(kind Kind) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.proven[kind]
}

// replayProven follows both kinds in the order of revisions, as far as both are known.
func (h *History) replayProven() error {
	limit := min(h.proven[Reservations], h.proven[Advertisements])
	for {
		var next *Row
		for k := range h.events {
			i := h.replay.done[k]
			if i < len(h.events[k]) && h.events[k][i].Rev <= limit && (next == nil || h.events[k][i].Rev < next.Rev) {
				next = &h.events[k][i]
			}
		}
		if next == nil {
			return nil
		}
		if err := h.replay.follow(*next, &h.counts); err != nil {
			return fmt.Errorf("%w: %w (%+v)", ErrViolation, err, *next)
		}
		h.replay.done[next.Kind]++
	}
}

// at is the object as of the revision; ok is false where it was absent or has been discarded.
func (h *History) at(of name, rev uint64) (row Row, ok bool) {
	versions := h.rows[of]
	i := sort.Search(len(versions), func(i int) bool { return versions[i].Rev > rev })
	if i == 0 || versions[i-1].Gone {
		return Row{}, false
	}
	return versions[i-1], true
}

// next is the revision of the first change after rev; 0 where there is none yet.
func (h *History) next(of name, rev uint64) uint64 {
	versions := h.rows[of]
	i := sort.Search(len(versions), func(i int) bool { return versions[i].Rev > rev })
	if i == len(versions) {
		return 0
	}
	return versions[i].Rev
}

// Discard forgets what is older than the revision, but for what still stands then.
func (h *History) Discard(before uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k := range h.events {
		i := sort.Search(len(h.events[k]), func(i int) bool { return h.events[k][i].Rev >= before })
		i = min(i, h.replay.done[k])
		if i > 0 {
			h.dropped[k] = h.events[k][i-1].Rev
			h.events[k] = slices.Clone(h.events[k][i:])
			h.replay.done[k] -= i
		}
	}
	for of, versions := range h.rows {
		i := sort.Search(len(versions), func(i int) bool { return versions[i].Rev >= before })
		if i > 0 && !versions[i-1].Gone {
			i--
		}
		if i == len(versions) {
			delete(h.rows, of)
		} else if i > 0 {
			h.rows[of] = slices.Clone(versions[i:])
		}
	}
	h.ops.discard(before)
}

// Standing are the objects of a kind whose key begins with the prefix, as of the newest revision known.
func (h *History) Standing(kind Kind, prefix string) map[string]Row {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.standing(kind, prefix, h.proven[kind])
}

func (h *History) standing(kind Kind, prefix string, rev uint64) map[string]Row {
	rows := map[string]Row{}
	for of := range h.rows {
		if of.kind == kind && strings.HasPrefix(of.key, prefix) {
			if row, ok := h.at(of, rev); ok {
				rows[of.key] = row
			}
		}
	}
	return rows
}

// Tail is the end of what happened, for a report: the newest events of each kind that are kept.
func (h *History) Tail() []Row {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := slices.Concat(h.events[Reservations], h.events[Advertisements])
	slices.SortFunc(all, func(a, b Row) int { return int(int64(a.Rev) - int64(b.Rev)) })
	return all
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
