package history

// operations are the client operations that write. Each writes its own name into the object, so
// that it is known in the history; a delete is known by the uid that it ended.
type operations struct {
	refused map[string]uint64 // nothing may be seen of them; with the revision known when they were refused
	seen    map[string]Row    // the first version that carries the name
	gone    map[string]uint64 // by uid: the revision of its end
	deleted map[string]uint64 // by uid: acknowledged as deleted, with what was known when that was asked for
}

func newOperations() *operations {
	return &operations{refused: map[string]uint64{}, seen: map[string]Row{}, gone: map[string]uint64{}, deleted: map[string]uint64{}}
}

// wrote is told of every change.
func (o *operations) wrote(row Row) error {
	if row.Gone {
		o.gone[uidOf(row)] = row.Rev
		return nil
	}
	op := opOf(row)
	if op == "" {
		return nil
	}
	if _, refused := o.refused[op]; refused {
		return violation("operation %s was refused, and happened: %+v", op, row)
	}
	first, again := o.seen[op]
	if !again {
		o.seen[op] = row
		return nil
	}
	if first.Key != row.Key || uidOf(first) != uidOf(row) {
		return violation("operation %s happened twice: %+v, %+v", op, first, row)
	}
	return nil
}

func opOf(row Row) string {
	switch body := row.Body.(type) {
	case Reservation:
		return body.Op
	case Advertisement:
		return body.Op
	}
	return ""
}

func uidOf(row Row) string {
	switch body := row.Body.(type) {
	case Reservation:
		return body.UID
	case Advertisement:
		return body.UID
	}
	return ""
}

// quiet judges the deletes once everything is known and nothing is under way.
func (o *operations) quiet() error {
	for uid, since := range o.deleted {
		rev, gone := o.gone[uid]
		if !gone {
			return violation("%s was acknowledged as deleted, and no watch was told", uid)
		}
		if rev <= since {
			return violation("the delete of %s that began after revision %d was acknowledged; it was gone at %d", uid, since, rev)
		}
	}
	return nil
}

// discard what is so old that a retry of it can't be under way any more.
func (o *operations) discard(before uint64) {
	drop := func(m map[string]uint64) {
		for key, at := range m {
			if at < before {
				delete(m, key)
			}
		}
	}
	drop(o.refused)
	drop(o.gone)
	drop(o.deleted)
	for op, row := range o.seen {
		if row.Rev < before {
			delete(o.seen, op)
		}
	}
}

// Refused says that the exchange changed nothing, or was asked for a dry run.
func (h *History) Refused(op string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if row, seen := h.ops.seen[op]; seen {
		return violation("operation %s happened and was refused: %+v", op, row)
	}
	h.ops.refused[op] = h.proven[Reservations]
	return nil
}

// Happened says whether an operation is known to have happened.
func (h *History) Happened(op string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, seen := h.ops.seen[op]
	return seen
}

// Deleted says that a client was told that it has deleted the object with that uid.
func (h *History) Deleted(uid string, since uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts.Deletes++
	if _, twice := h.ops.deleted[uid]; twice {
		return violation("two deletes of %s were acknowledged", uid)
	}
	h.ops.deleted[uid] = since
	return nil
}
