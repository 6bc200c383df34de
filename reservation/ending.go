package reservation

import (
	"github.com/bourse-dev/bourse/allocation"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// The reasons of a reservation's state, in its ledger and on its events.
const (
	reasonReserved  = "Reserved"
	reasonWaiting   = "WaitingForCapacity"
	reasonNoFit     = "InsufficientResources"
	reasonTimeout   = "WaitTimeout"
	reasonExpired   = "Expired"
	reasonWithdrawn = "ProviderWithdrawn"
	reasonExtended  = "Extended"
	reasonDeleted   = "Deleted"
)

// endLeases proposes what the clock says: leases that are over, waits that are, and final
// reservations that were kept long enough.
func (t *term) endLeases() {
	var busy []deadline // what this Step does to them may be refused
	defer func() {
		for _, d := range busy {
			t.leases.add(d.at, d.key)
		}
	}()
	for !t.plan.endingsFull() {
		d, ok := t.leases.due(t.now)
		if !ok {
			return
		}
		row := t.state.Row(d.key)
		if row == nil {
			continue
		}
		if t.plan.busy(d.key) {
			busy = append(busy, d)
			continue
		}
		if at := dueAt(row); at == 0 || at > t.now {
			continue // it was extended or changed since; the newer deadline is in the heap
		}
		if !t.endDue(row) {
			t.leases.add(d.at, d.key)
			t.plan.left = true
			return
		}
	}
	t.plan.left = t.plan.left || t.leases.next() > 0 && t.leases.next() <= t.now
}

// endDue is for a row whose time has come: what is live ends as one, and what is final goes with its
// head. False: not in this Step.
func (t *term) endDue(row *fsm.Row) bool {
	head, phase := t.headOf(row), phaseOf(row)
	switch {
	case phase != store.PhaseReserved && row != head:
		return true // a final part goes with the whole
	case phase > store.PhaseReserved && len(headObject(row).GetFinalizers()) > 0 && !isLeaving(row):
		return true // they are a promise that somebody is told first
	}
	g := t.groupUnder(head)
	switch {
	case t.busyGroup(g) || !t.plan.fits(len(g.parts)*partBytes):
		return false
	case phase == store.PhasePending && !isBatch(row.Key):
		t.timeOut(row)
	case phase == store.PhaseReserved:
		// The guards name the fence and the expiry that were seen: a lease that was extended meanwhile is not ended.
		t.endGroup(g, OutcomeExpired, reasonExpired, "the reservation ended as asked", fsm.GuardLease)
	default:
		t.dissolve(g, nil)
	}
	return true
}

// releaseHolders ends every reservation on the account. False: something is left for the next
// Step.
func (t *term) releaseHolders(account string) bool {
	row := t.state.Row(account)
	if row == nil || row.Account == nil {
		return true
	}
	if o := t.view.offers[account]; o == nil || !o.Withdrawn {
		return true
	}
	done := true
	for hold := range row.Account.Holds() {
		holder := t.state.Row(hold.Holder)
		if holder == nil || !isReservation(hold.Holder) || phaseOf(holder) != store.PhaseReserved {
			continue
		}
		if t.plan.busy(holder.Key) {
			done = false
			continue
		}
		if t.plan.endingsFull() {
			return false
		}
		message := clusterIDOf(account) + " has withdrawn its offer"
		unchanged := fsm.GuardSpec(row) // the provider may have changed its mind
		g := t.groupUnder(t.headOf(holder))
		if t.busyGroup(g) || !t.plan.fits(len(g.parts)*partBytes) {
			return false
		}
		t.endGroup(g, OutcomeWithdrawn, reasonWithdrawn, message, fsm.GuardLedger, unchanged)
		// It stays in the set until the state shows no holder.
		done = false
	}
	return done
}

// free counts a hold that this Step ends as free in the same Step: its command comes first in the
// entry. Else a later request could take in this Step what, with that, a waiter fits.
func (t *term) free(account, holder string) {
	row := t.state.Row(account)
	if row == nil || row.Account == nil {
		return
	}
	if hold, ok := row.Account.Hold(holder); ok {
		t.view.give(account, &hold)
		t.improved[account] = struct{}{}
	}
}

// timeOut ends a wait.
func (t *term) timeOut(row *fsm.Row) {
	object := store.ReservationOf(row)
	ledger := *row.Ledger
	message := "waited " + object.Spec.WaitFor + " in vain"
	if r, err := newRequest(row.Key, object); err == nil {
		t.view.market.Decide(&r.ask, &t.decision)
		ledger.Decision = allocation.EncodeDecision(nil, &t.decision, uint64(t.state.Revision()))
		message += ": " + t.decision.Message(&r.ask)
	}
	message += ". Delete it and apply again, or set a longer spec.waitFor"
	ledger.Phase, ledger.Ended, ledger.EndedAt = store.PhaseFailed, true, t.now
	ledger.Reason, ledger.Message = reasonTimeout, message
	ledger.WaitUntil = keepUntil(&object.Spec, t.now)
	t.propose(proposal{key: row.Key, outcome: OutcomeTimedOut}, &fsm.Txn{
		Guards: []fsm.Guard{fsm.GuardSpec(row), fsm.GuardLedger(row)},
		Writes: []fsm.Write{
			{Key: row.Key, Ledger: &ledger},
			t.eventWrite(row.Key, object, "Warning", reasonTimeout, message),
		},
	})
	t.plan.endings++
}
