package reservation

import (
	"maps"
	"slices"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// The items of a batch that is not atomic live on as reservations of their own: they are granted
// later, extended, ended, deleted. The batch's row follows them, level-triggered and a second late at
// most, so that many changes are one write.

// noteBatch remembers a batch that is decided; nil: it is gone.
func (t *term) noteBatch(key string, row *fsm.Row) {
	delete(t.batches, key)
	if row == nil {
		delete(t.stale, key)
		return
	}
	t.leases.add(dueAt(row), key)
	if row.Ledger != nil && row.Ledger.Ended {
		delete(t.stale, key)
		return
	}
	t.batches[key] = struct{}{}
}

func (t *term) markStale(key string) {
	if _, noted := t.stale[key]; !noted {
		t.stale[key] = t.now + refreshDelay
	}
}

// noteItem marks the batches that a reservation's name may speak of. It reads no object: the name
// is a hint, what counts is asked when the batch is looked at.
func (t *term) noteItem(c *fsm.Change) {
	if len(t.batches)+len(t.open) == 0 || c.Before == nil || c.After != nil && phaseOf(c.After) == phaseOf(c.Before) {
		return
	}
	path := pathOf(c.Key())
	for i := len(path) - 1; i > 0 && path[i] != '/'; i-- {
		if path[i] != '-' {
			continue
		}
		key := broker.BatchesPrefix + path[:i]
		if _, live := t.batches[key]; live || t.open[key] != nil {
			t.markStale(key)
		}
	}
}

// nextRefresh is when to look at a batch; 0 where none changed.
func (t *term) nextRefresh() (next fsm.Millis) {
	for _, at := range t.stale {
		if next == 0 || at < next {
			next = at
		}
	}
	return next
}

// refreshBatches writes what has become of the items of those whose time has come.
func (t *term) refreshBatches() {
	if len(t.stale) == 0 {
		return
	}
	looked := 0
	for _, key := range slices.Sorted(maps.Keys(t.stale)) {
		if t.stale[key] > t.now {
			continue
		}
		if looked >= maxRefreshed || t.plan.endingsFull() || t.plan.bytes > maxEntryBytes/2 {
			t.plan.left = true
			return
		}
		if t.open[key] != nil || t.plan.busy(key) {
			t.stale[key] = t.now + refreshDelay
			continue
		}
		looked += t.refresh(key)
		delete(t.stale, key)
	}
}

// refresh returns how many items it looked at.
func (t *term) refresh(key string) int {
	row := t.state.Row(key)
	if row == nil || phaseOf(row) != store.PhaseReserved {
		return 0
	}
	b := store.BatchOf(row)
	if b == nil || b.Spec.Atomic {
		return 1
	}
	results, err := store.BatchResults(row, b.Spec.Items)
	if err != nil {
		return 1
	}
	changed := false
	for i := range results {
		if phase := results[i].Phase; phase == broker.ReservationPending || phase == broker.ReservationReserved {
			now := t.resultNow(b, i, phase)
			if now.Phase != phase || now.TargetClusterID != results[i].TargetClusterID {
				results[i], changed = now, true
			}
		}
	}
	if changed {
		t.propose(proposal{key: key}, &fsm.Txn{
			Guards: []fsm.Guard{fsm.GuardFacts(row), fsm.GuardLedger(row)},
			Writes: []fsm.Write{{
				Key: key, Facts: store.EncodeBatchResults(results),
				Ledger: batchLedger(&b.Spec, results, t.now, row.Ledger),
			}},
		})
		t.plan.endings++
	}
	return len(results)
}

// resultNow is what has become of an item that was granted or waited.
func (t *term) resultNow(b *broker.ReservationBatch, i int, was broker.ReservationPhase) broker.BatchResult {
	result := broker.BatchResult{Name: b.Spec.Items[i].Name, Phase: broker.ReservationReleased, Message: "deleted"}
	row := t.state.Row(itemKey(b, i))
	if part := store.PartOf(row); part == nil || part.UID != b.UID {
		if was == broker.ReservationPending {
			result.Phase = broker.ReservationFailed // it held nothing
		}
		return result
	}
	result.Phase, result.Message = store.PhaseOf(row), ""
	switch {
	case result.Phase == broker.ReservationReserved:
		result.TargetClusterID = row.Ledger.Target
	case row.Ledger != nil:
		result.Message = clip(row.Ledger.Message)
	}
	return result
}
