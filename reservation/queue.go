package reservation

import (
	"slices"

	"github.com/bourse-dev/bourse/fsm"
)

// queue is the waiting requests, in the order in which they are served.
type queue struct {
	sorted []*request
	byKey  map[string]*request
}

func newQueue() queue { return queue{byKey: map[string]*request{}} }

// put adds the request, in place of an earlier one of the same key.
func (q *queue) put(r *request) {
	q.drop(r.key)
	i, _ := slices.BinarySearchFunc(q.sorted, r, before)
	q.sorted = slices.Insert(q.sorted, i, r)
	q.byKey[r.key] = r
}

// drop removes and returns the request of that key, nil where none waits.
func (q *queue) drop(key string) *request {
	r, ok := q.byKey[key]
	if !ok {
		return nil
	}
	delete(q.byKey, key)
	if i, found := slices.BinarySearchFunc(q.sorted, r, before); found {
		q.sorted = slices.Delete(q.sorted, i, i+1)
	}
	return r
}

// before is the order of service: the higher priority, then the older. What is stored is older
// than what has just arrived.
func before(a, b *request) int {
	switch {
	case a.priority != b.priority:
		return int(b.priority) - int(a.priority)
	case a.created != b.created:
		return compareAge(a.created, b.created)
	default:
		return compareAge(fsm.Revision(a.arrival), fsm.Revision(b.arrival))
	}
}

// compareAge orders revisions; 0, not stored yet, is the youngest.
func compareAge(a, b fsm.Revision) int {
	switch {
	case a == b:
		return 0
	case b == 0 || a != 0 && a < b:
		return -1
	default:
		return 1
	}
}
