package history

import (
	"fmt"

	"github.com/bourse-dev/bourse/test/model"
)

// Quiet is called when nothing is under way and both kinds are proven to the present: everything
// that was told must have been judged by then.
func (h *History) Quiet() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for kind, w := range h.waiting {
		if len(w) > 0 {
			return violation("a client was told of revision %d of %s, and no watch came so far: %d answers can't be judged",
				w[0].rev, Kind(kind), len(w))
		}
	}
	return h.ops.quiet()
}

// Balanced says whether book, reservations and accounts agree. They may not for a moment, where
// one change of several rows is told in part: a lease may end even when all is quiet.
func (h *History) Balanced() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	rev := min(h.proven[Reservations], h.proven[Advertisements])
	if err := h.holdsStand(rev); err != nil {
		return err
	}
	for _, row := range h.standing(Advertisements, "", rev) {
		body := row.Body.(Advertisement)
		if held := h.replay.book.Held(body.Cluster); held["cpu"] != body.Reserved.CPUMilli || held["memory"] != body.Reserved.MemoryBytes {
			return fmt.Errorf("%+v, but its reservations sum up to %v", row, held)
		}
	}
	return nil
}

// holdsStand compares the book with the reservations that are there.
func (h *History) holdsStand(rev uint64) error {
	holds := map[string]model.Hold{}
	for _, hold := range h.replay.book.Holds() {
		if hold.Holder != slicesOf(hold.Cluster) {
			holds[hold.Holder] = hold
		}
	}
	standing := h.standing(Reservations, "", rev)
	for key, row := range standing {
		body := row.Body.(Reservation)
		hold, held := holds[key]
		if held != (body.Phase == Reserved && body.Pieces == 0) {
			return fmt.Errorf("%+v, but the book has %+v", row, hold)
		}
		if held && (hold.Cluster != body.Target || hold.Fence != body.Fence || hold.ExpiresAt != body.ExpiresAt) {
			return fmt.Errorf("%+v, but the book has %+v", row, hold)
		}
		delete(holds, key)
	}
	for _, holder := range sortedKeys(holds) {
		return fmt.Errorf("the book has %+v, which is not there", holds[holder])
	}
	return wholesIn(standing)
}
