package reservation

import (
	"maps"
	"slices"

	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// conditionShort marks a holder whose promise the provider can't keep at the moment.
const conditionShort = "CapacityShort"

// shortIndex remembers who is marked, so that only changes are proposed.
type shortIndex struct {
	marked  map[string]map[string]struct{} // account -> holders
	account map[string]string              // marked holder -> account
	check   map[string]struct{}            // accounts that changed
}

func newShortIndex() shortIndex {
	return shortIndex{
		marked: map[string]map[string]struct{}{}, account: map[string]string{}, check: map[string]struct{}{},
	}
}

// note keeps up with a reservation's row; nil: it is gone.
func (x *shortIndex) note(key string, row *fsm.Row) {
	if account, ok := x.account[key]; ok {
		delete(x.account, key)
		delete(x.marked[account], key)
	}
	if row == nil || phaseOf(row) != store.PhaseReserved || !isShort(row.Ledger) {
		return
	}
	for _, held := range row.Ledger.Holds {
		x.account[key] = held.Account
		if x.marked[held.Account] == nil {
			x.marked[held.Account] = map[string]struct{}{}
		}
		x.marked[held.Account][key] = struct{}{}
	}
}

func isShort(ledger *fsm.Ledger) bool {
	for i := range ledger.Conditions {
		if ledger.Conditions[i].Type == conditionShort {
			return ledger.Conditions[i].Status
		}
	}
	return false
}

// markShort proposes the condition for who has become short on the accounts that changed, and
// takes it from who no longer is.
func (t *term) markShort() {
	for _, account := range slices.Sorted(maps.Keys(t.short.check)) {
		if t.markAccount(account) {
			delete(t.short.check, account)
		}
	}
}

// markAccount returns false where something is left for the next Step.
func (t *term) markAccount(account string) bool {
	row := t.state.Row(account)
	if row == nil || row.Account == nil {
		return true
	}
	marked := t.short.marked[account]
	want := store.ShortHolders(row.Account)
	done := true
	for _, holder := range slices.Sorted(maps.Keys(want)) {
		if _, already := marked[holder]; !already {
			done = t.setShort(account, holder, true) && done
		}
	}
	for _, holder := range slices.Sorted(maps.Keys(marked)) {
		if _, still := want[holder]; !still {
			done = t.setShort(account, holder, false) && done
		}
	}
	return done
}

func (t *term) setShort(account, holder string, short bool) bool {
	row := t.state.Row(holder)
	if row == nil || !isReservation(holder) || phaseOf(row) != store.PhaseReserved {
		return true
	}
	if t.plan.busy(holder) || t.plan.endingsFull() {
		return false
	}
	object := store.ReservationOf(row)
	condition := fsm.Condition{
		Type: conditionShort, Status: short, Since: t.now, Observed: object.Generation,
		Reason:  "CapacityRestored",
		Message: clusterIDOf(account) + " has the promised capacity again",
	}
	kind := "Normal"
	if short {
		condition.Reason = "CapacityShrank"
		condition.Message = clusterIDOf(account) + " has less capacity than it has promised; this reservation is the first to miss it"
		kind = "Warning"
	}
	ledger := *row.Ledger
	ledger.Conditions = withCondition(ledger.Conditions, condition)
	t.propose(proposal{key: holder, account: account}, &fsm.Txn{
		Guards: []fsm.Guard{fsm.GuardLedger(row)},
		Writes: []fsm.Write{
			{Key: holder, Ledger: &ledger},
			t.eventWrite(holder, object, kind, conditionReason(short), condition.Message),
		},
	})
	t.plan.endings++
	return true
}

func conditionReason(short bool) string {
	if short {
		return conditionShort
	}
	return "CapacityRestored"
}

// withCondition returns a copy of the list with one condition set.
func withCondition(list []fsm.Condition, set fsm.Condition) []fsm.Condition {
	out := slices.Clone(list)
	for i := range out {
		if out[i].Type == set.Type {
			out[i] = set
			return out
		}
	}
	return append(out, set)
}
