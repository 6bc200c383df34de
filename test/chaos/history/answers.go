package history

import "container/heap"

// check is something a client was told that can be judged once the revision is proven.
type check struct {
	rev   uint64
	judge func() error
}

type waiting []check

func (w waiting) Len() int           { return len(w) }
func (w waiting) Less(i, j int) bool { return w[i].rev < w[j].rev }
func (w waiting) Swap(i, j int)      { w[i], w[j] = w[j], w[i] }
func (w *waiting) Push(x any)        { *w = append(*w, x.(check)) }
func (w *waiting) Pop() any {
	last := len(*w) - 1
	c := (*w)[last]
	(*w)[last] = check{}
	*w = (*w)[:last]
	return c
}

// when under the lock: judges now, or once the revision is proven.
func (h *History) when(kind Kind, rev uint64, judge func() error) error {
	if rev <= h.proven[kind] {
		return judge()
	}
	heap.Push(&h.waiting[kind], check{rev, judge})
	return nil
}

// settle under the lock: judges what can be judged.
func (h *History) settle(kind Kind) error {
	w := &h.waiting[kind]
	for len(*w) > 0 && (*w)[0].rev <= h.proven[kind] {
		if err := heap.Pop(w).(check).judge(); err != nil {
			return err
		}
	}
	return nil
}

// Wrote says that a write was acknowledged with this row. since is the newest revision that anybody had
// been told before it was asked for.
func (h *History) Wrote(row Row, since uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts.Writes++
	if row.Rev <= since {
		return violation("a write that began after revision %d was acknowledged at %+v", since, row)
	}
	return h.when(row.Kind, row.Rev, func() error {
		if at, ok := h.exactly(row); !ok {
			return violation("acknowledged %+v, but the history has %+v", row, at)
		}
		return nil
	})
}

// Read: a client was given this row. since is 0 for a read of any age.
func (h *History) Read(row Row, since uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts.Rows++
	return h.when(row.Kind, max(row.Rev, since), func() error {
		at, ok := h.exactly(row)
		if !ok {
			return violation("a client read %+v, but the history has %+v", row, at)
		}
		if next := h.next(name{row.Kind, row.Key}, row.Rev); next != 0 && next <= since {
			return violation("a read that began after revision %d gave %+v, which revision %d had replaced", since, row, next)
		}
		return nil
	})
}

// exactly under the lock: is there such a version? One that is discarded can't be judged.
func (h *History) exactly(row Row) (Row, bool) {
	at, ok := h.at(name{row.Kind, row.Key}, row.Rev)
	if row.Rev <= h.dropped[row.Kind] && at.Rev != row.Rev {
		return at, true
	}
	return at, ok && at == row
}

// Listed says that a client was given these rows of the kind under the prefix, as of the revision.
func (h *History) Listed(kind Kind, prefix string, rev, since uint64, rows []Row) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts.Lists++
	if rev < since {
		return violation("a list that began after revision %d is of revision %d", since, rev)
	}
	if kind == Reservations {
		listed := make(map[string]Row, len(rows))
		for _, row := range rows {
			listed[row.Key] = row
		}
		if err := wholesIn(listed); err != nil {
			return violation("a list at revision %d: %v", rev, err)
		}
	}
	return h.when(kind, rev, func() error {
		if rev <= h.dropped[kind] {
			return nil
		}
		standing := h.standing(kind, prefix, rev)
		for _, row := range rows {
			if at, ok := standing[row.Key]; !ok || at != row {
				return violation("a list at revision %d has %+v, the history %+v", rev, row, at)
			}
			delete(standing, row.Key)
		}
		for _, key := range sortedKeys(standing) {
			return violation("a list at revision %d lacks %+v", rev, standing[key])
		}
		return nil
	})
}
