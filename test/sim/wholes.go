package main

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// wholes follows what is granted as one thing: atomic batches and split reservations. After every command
// each is held whole or not at all.
type wholes struct {
	rows map[string]*fsm.Row // batches and reservations, as of the newest command
	made map[string]bool     // items and pieces, by their whole's uid and their key
}

func newWholes() wholes { return wholes{rows: map[string]*fsm.Row{}, made: map[string]bool{}} }

// followWholes brings them up to one command, and holds it to the rules.
func (h *history) followWholes(changes []fsm.Change) {
	touched := false
	for i := range changes {
		c := &changes[i]
		if !strings.HasPrefix(c.Key(), broker.ReservationsPrefix) && !strings.HasPrefix(c.Key(), broker.BatchesPrefix) {
			continue
		}
		touched = true
		if c.After == nil {
			delete(h.wholes.rows, c.Key())
		} else {
			h.wholes.rows[c.Key()] = c.After
		}
		h.countWhole(c)
		h.madeOnce(c)
	}
	if !touched {
		return
	}
	revision := uint64(changes[len(changes)-1].Revision)
	for _, key := range sortedKeys(h.wholes.rows) {
		h.checkWhole(revision, h.wholes.rows[key])
	}
}

// madeOnce: no item or piece is ever granted twice, however often it was asked for.
func (h *history) madeOnce(c *fsm.Change) {
	part := reservationOf(c.After)
	if c.Before != nil || part == nil || part.Status.PartOf == nil {
		return
	}
	once := string(part.Status.PartOf.UID) + " " + c.Key()
	if h.wholes.made[once] {
		h.trace.fail("revision %d: %s was made twice for one %s", c.Revision, c.Key(), part.Status.PartOf.Kind)
	}
	h.wholes.made[once] = true
}

func (h *history) checkWhole(revision uint64, row *fsm.Row) {
	if b := batchOf(row); b != nil && b.Spec.Atomic {
		h.wholeOrNothing(revision, row, itemKeys(b), b.UID)
	}
	r := reservationOf(row)
	if r == nil {
		return
	}
	if whole := r.Status.PartOf; whole != nil && whole.Bound && row.Ledger.Phase == store.PhaseReserved {
		h.checkBelongs(revision, row, whole)
	}
	if len(r.Status.Pieces) == 0 {
		return
	}
	var keys []string
	for i := range r.Status.Pieces {
		keys = append(keys, broker.ReservationKey(r.Namespace, r.Status.Pieces[i].Name))
	}
	sum := h.wholeOrNothing(revision, row, keys, r.UID)
	asked, err := allocation.AmountsOf(r.Spec.RequestedResources, true)
	if err != nil || sum != nil && !equal(sum, amountsOf(asked)) {
		h.trace.fail("revision %d: %s asks for %v, its pieces hold %v", revision, row.Key, asked, sum)
	}
	h.checkPieces(revision, row.Key, r)
}

// checkPieces: no more than the user allows, none smaller, no two on one cluster.
func (h *history) checkPieces(revision uint64, key string, r *broker.Reservation) {
	clusters := map[string]bool{}
	for i := range r.Status.Pieces {
		piece := &r.Status.Pieces[i]
		clusters[piece.TargetClusterID] = true
		for name, least := range r.Spec.Split.MinPiece {
			if amount := piece.RequestedResources[name]; amount.Cmp(least) < 0 {
				h.trace.fail("revision %d: %s has a piece of %s %s, the least is %s", revision, key, amount.String(), name, least.String())
			}
		}
	}
	if n := len(r.Status.Pieces); n > int(r.Spec.Split.MaxPieces) || len(clusters) < n {
		h.trace.fail("revision %d: %s is held in %d pieces on %d clusters, the most is %d", revision, key, n, len(clusters), r.Spec.Split.MaxPieces)
	}
}

// wholeOrNothing returns what is held, nil for nothing. A name may have been taken by something else since
// the whole has ended.
func (h *history) wholeOrNothing(revision uint64, row *fsm.Row, keys []string, uid types.UID) (sum map[string]int64) {
	var err error
	if row.Ledger.Phase == store.PhaseReserved {
		sum, err = h.book.Whole(revision, row.Key, keys, int64(row.Ledger.ExpiresAt))
	} else {
		keys = slices.DeleteFunc(keys, func(key string) bool {
			part := reservationOf(h.wholes.rows[key])
			return part == nil || part.Status.PartOf == nil || part.Status.PartOf.UID != uid
		})
		err = h.book.Nothing(revision, row.Key, keys)
	}
	if err != nil {
		h.trace.fail("%v", err)
	}
	return sum
}

// checkBelongs: what is held as a part belongs to a whole that is held.
func (h *history) checkBelongs(revision uint64, row *fsm.Row, of *broker.PartOf) {
	key := broker.ReservationKey("rome", of.Name)
	uid := types.UID("")
	if of.Kind == broker.KindReservationBatch {
		key = broker.BatchKey("rome", of.Name)
		if b := batchOf(h.wholes.rows[key]); b != nil {
			uid = b.UID
		}
	} else if r := reservationOf(h.wholes.rows[key]); r != nil {
		uid = r.UID
	}
	if uid != of.UID || h.wholes.rows[key].Ledger.Phase != store.PhaseReserved {
		h.trace.fail("revision %d: %s is held as a part of %s, which is not", revision, row.Key, key)
	}
}

func itemKeys(b *broker.ReservationBatch) []string {
	keys := make([]string, len(b.Spec.Items))
	for i := range keys {
		keys[i] = broker.ReservationKey(b.Namespace, broker.ItemReservationName(b.Name, b.Spec.Items[i].Name))
	}
	return keys
}

// lostProvider says whether a part's whole lost one of its providers: then all of it ends.
func (h *history) lostProvider(c *fsm.Change, changes []fsm.Change) bool {
	if h.withdrawn[c.Before.Ledger.Holds[0].Account] {
		return true
	}
	of := reservationOf(c.Before).Status.PartOf
	return of != nil && of.Bound && slices.ContainsFunc(changes, func(other fsm.Change) bool {
		part, hold := reservationOf(other.Before), holdOf(other.Before)
		return hold != nil && part != nil && part.Status.PartOf != nil && part.Status.PartOf.UID == of.UID && h.withdrawn[hold.Account]
	})
}

// countWhole counts what became of wholes.
func (h *history) countWhole(c *fsm.Change) {
	group, row := "batch", c.After
	if row == nil {
		row = c.Before
	}
	if r := reservationOf(row); r != nil {
		if r.Spec.Split == nil {
			return
		}
		group = "split"
	} else if batchOf(row).Spec.Atomic {
		group = "atomic batch"
	}
	held := func(row *fsm.Row) bool { return row.Ledger != nil && row.Ledger.Phase == store.PhaseReserved }
	switch was, is := c.Before, c.After; {
	case was == nil && held(is):
		h.trace.stats.count(group, "granted")
	case was == nil:
		h.trace.stats.count(group, "not granted at once")
	case is == nil && held(was):
		h.trace.stats.count(group, "deleted")
	case is == nil:
	case held(was) && held(is) && was.Ledger.ExpiresAt != is.Ledger.ExpiresAt:
		h.trace.stats.count(group, "extended")
	case held(was) && !held(is):
		h.trace.stats.count(group, is.Ledger.Reason)
	}
}

// batchOf and reservationOf a row of that kind; nil where it is of another, or none.
func batchOf(row *fsm.Row) *broker.ReservationBatch {
	if row == nil || !strings.HasPrefix(row.Key, broker.BatchesPrefix) {
		return nil
	}
	return store.BatchOf(row)
}

func reservationOf(row *fsm.Row) *broker.Reservation {
	if row == nil || !strings.HasPrefix(row.Key, broker.ReservationsPrefix) {
		return nil
	}
	return store.ReservationOf(row)
}
