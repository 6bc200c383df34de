package reservation

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// isLeaving: a part of the batch is gone already.
func isLeaving(row *fsm.Row) bool {
	return isBatch(row.Key) && row.Ledger != nil && row.Ledger.Ended && row.Ledger.Reason == reasonDeleted
}

// removeLeaving deletes what intents ask for, with everything that it is made of.
func (t *term) removeLeaving() {
	rest := t.leaving
	t.leaving = nil
	for _, r := range rest {
		row := t.state.Row(r.key)
		switch {
		case row == nil && r.begun:
			t.plan.answer(r.intent, fsm.Result{Revision: t.state.Revision()})
			continue
		case !r.begun && (row == nil || t.settledBefore(r)):
			t.passOn(r)
			t.leaving = append(t.leaving, r)
			continue
		}
		if !t.plan.endingsFull() {
			if g := t.groupUnder(row); !t.busyGroup(g) {
				t.dissolve(g, r)
				continue
			}
		}
		t.leaving = append(t.leaving, r)
		t.plan.left = true
	}
}

// dissolve deletes a head with its parts: in one command where that is enough, else the next ones, and
// the row itself comes last. Until then it says that it is being deleted, so that whoever leads goes
// on. A part with finalizers is a promise that somebody is told first: it ends now, and goes later.
// r is nil where nobody asks: the row was kept long enough.
func (t *term) dissolve(g *group, r *request) {
	row, bound := g.head, true // bound ones go in one command: 128 parts fit
	if isBatch(row.Key) {
		b := store.BatchOf(row)
		bound = b != nil && b.Spec.Atomic
	}
	txn, more := &fsm.Txn{}, false
	p := proposal{key: row.Key, outcome: OutcomeRemoved, leaving: r}
	for _, part := range g.parts {
		object := store.ReservationOf(part)
		finalizers := len(object.Finalizers) > 0
		if finalizers && object.DeletionTimestamp != nil && phaseOf(part) >= store.PhaseReleased {
			continue
		}
		if more = !bound && (len(p.parts) == t.cfg.dissolved || len(p.parts) > 0 && itemBytes(txn) > maxEntryBytes); more {
			break
		}
		p.parts = append(p.parts, part.Key)
		txn.Guards = append(txn.Guards, fsm.GuardBody(part))
		if finalizers {
			txn.Guards = append(txn.Guards, fsm.GuardLedger(part))
			txn.Writes = append(txn.Writes, t.endedPart(part, object.DeepCopy()))
		} else {
			txn.Writes = append(txn.Writes, fsm.Write{Key: part.Key, Delete: true})
			t.events.doomOwner(part.Key)
		}
		if part.Ledger != nil {
			for _, held := range part.Ledger.Holds {
				t.free(held.Account, part.Key)
			}
		}
	}
	t.closeDissolve(txn, row, r, more)
	p.partial = more
	t.propose(p, txn)
	t.plan.endings++
	if r != nil {
		t.leaving = append(t.leaving, r)
	}
}

// closeDissolve deletes the row, or says that it is being deleted.
func (t *term) closeDissolve(txn *fsm.Txn, row *fsm.Row, r *request, more bool) {
	switch {
	case more:
		ledger := fsm.Ledger{}
		if row.Ledger != nil {
			ledger = *row.Ledger
		}
		ledger.Phase, ledger.Ended, ledger.EndedAt, ledger.WaitUntil = store.PhaseReleased, true, t.now, t.now
		ledger.Reason, ledger.Message = reasonDeleted, "being deleted"
		txn.Guards = append(txn.Guards, fsm.GuardLedger(row))
		txn.Writes = append(txn.Writes, fsm.Write{Key: row.Key, Ledger: &ledger})
	case r == nil || r.begun:
		txn.Guards = append(txn.Guards, fsm.GuardLedger(row), fsm.GuardBody(row))
		txn.Writes = append(txn.Writes, fsm.Write{Key: row.Key, Delete: true})
		t.events.doomOwner(row.Key)
	default:
		txn.Guards = append(txn.Guards, r.intent.Txn.Guards...)
		txn.Guards = append(txn.Guards, fsm.GuardLedger(row))
		txn.Writes = append(txn.Writes, r.intent.Txn.Writes...)
	}
	if r != nil && !more {
		txn.ID = r.id()
	}
}

// endedPart ends a part that can't be deleted yet, and says that it is being deleted: it goes with its last finalizer.
func (t *term) endedPart(part *fsm.Row, object *broker.Reservation) (w fsm.Write) {
	const message = "what it was a part of was deleted"
	switch phaseOf(part) {
	case store.PhaseReserved:
		w = t.ended(part, reasonDeleted, message)
	case store.PhasePending:
		ledger := fsm.Ledger{}
		if part.Ledger != nil {
			ledger = *part.Ledger
		}
		ledger.Phase, ledger.Ended, ledger.EndedAt = store.PhaseFailed, true, t.now
		ledger.Reason, ledger.Message = reasonDeleted, message
		ledger.WaitUntil = keepUntil(&object.Spec, t.now)
		w = fsm.Write{Key: part.Key, Ledger: &ledger}
	default:
		w.Key = part.Key
	}
	if object.DeletionTimestamp == nil {
		at, grace := metav1.NewTime(timeOf(t.now)), int64(0)
		object.DeletionTimestamp, object.DeletionGracePeriodSeconds = &at, &grace
		w.Body = encodedPart(object)
	}
	return w
}

// asks says whether the intent itself asked what Apply found untrue.
func (r *request) asks(refusal *fsm.Refusal) bool {
	return slices.ContainsFunc(r.intent.Txn.Guards, func(g fsm.Guard) bool { return g.Key == refusal.Key && g.Part == refusal.Part })
}

// leavingSettled says what became of a step of a deletion.
func (t *term) leavingSettled(p *proposal, s *cluster.Settled) {
	r := p.leaving
	at := slices.Index(t.leaving, r)
	switch {
	case at < 0:
		return
	case s.Result.Refusal == nil && p.partial:
		r.begun = true
		return
	case s.Result.Refusal != nil && (r.begun || r.refusals < maxRefusals && !r.asks(s.Result.Refusal)):
		r.refusals++ // a part was not as it was: look again
		return
	}
	t.plan.answer(r.intent, s.Result)
	t.leaving = slices.Delete(t.leaving, at, at+1)
}
