package reservation

import (
	"fmt"
	"slices"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// Decide says what would become of the object if it were written now: the status of a dry-run.
// It holds nothing. Waiters that come before it in the order of service are placed first, as the
// leader would. Pure; any node may ask of any state, on any goroutine.
func Decide(state *fsm.State, object *broker.Reservation, now fsm.Millis) broker.ReservationStatus {
	key := broker.ReservationKey(object.Namespace, object.Name)
	r, err := newRequest(key, object)
	if err != nil {
		return broker.ReservationStatus{Phase: broker.ReservationFailed, Message: err.Error()}
	}
	if r.row = state.Row(key); r.row != nil {
		r.created = r.row.Created
		if phaseOf(r.row) != store.PhasePending {
			return decideDecided(r)
		}
	}
	p := dryPlacer(state, r, now)
	if object.Spec.Split == nil {
		return statusOf(r, p.place(r).ledger)
	}
	whole := p.placeSplit(r)
	status := statusOf(r, whole.ledger)
	if len(whole.pieces) > 0 {
		status.Pieces = piecesOf(whole.pieces)
	}
	return status
}

// dryPlacer is what is left of the market once those that come before the request are placed.
func dryPlacer(state *fsm.State, r *request, now fsm.Millis) *placer {
	p := &placer{view: newView(state), now: now, revision: state.Revision(), decision: &allocation.Decision{}}
	for _, w := range waitersBefore(state, r) {
		if p.view.market.Decide(&w.ask, p.decision); p.decision.Found {
			p.view.market.Take(p.decision.Best().ClusterID, w.ask.Amounts)
		}
	}
	return p
}

// DecideBatch is Decide for a batch: its status if it were created, or extended, now; or how the leader
// would refuse it, where it is atomic and larger than one log entry.
func DecideBatch(state *fsm.State, object *broker.ReservationBatch, now fsm.Millis) (broker.ReservationBatchStatus, *fsm.Refusal) {
	key := broker.BatchKey(object.Namespace, object.Name)
	if row := state.Row(key); row != nil && row.Ledger != nil {
		ledger := row.Ledger
		if duration, err := span(object.Spec.Duration); err == nil && object.Spec.Atomic && phaseOf(row) == store.PhaseReserved {
			if later, longer := extended(*ledger, duration); longer {
				ledger = later
			}
		}
		return batchStatusOf(object, ledger, row.Facts), nil
	}
	r := newBatchRequest(key, object)
	results := r.batch.results
	items := make([]*request, len(results))
	for i := range items {
		var err error
		if items[i], err = itemRequest(object, i); err != nil {
			return broker.ReservationBatchStatus{Phase: broker.BatchFailed, Message: err.Error()}, nil
		}
	}
	p := dryPlacer(state, r, now)
	if object.Spec.Atomic {
		return p.decideWhole(state, object, items)
	}
	for _, i := range r.batch.order {
		if state.Row(items[i].key) != nil {
			results[i].Phase, results[i].Message = broker.ReservationFailed, takenMessage(items[i].object.Name)
			continue
		}
		done := p.place(items[i])
		results[i] = resultOf(results[i].Name, &done)
	}
	return batchStatusOf(object, batchLedger(&object.Spec, results, now, nil), store.EncodeBatchResults(results)), nil
}

// decideWhole is decideAtomic without the intent, whose write of the batch it makes itself.
func (p *placer) decideWhole(state *fsm.State, object *broker.ReservationBatch, items []*request) (broker.ReservationBatchStatus, *fsm.Refusal) {
	key := broker.BatchKey(object.Namespace, object.Name)
	body, err := store.BatchBody(object)
	if err != nil {
		return broker.ReservationBatchStatus{Phase: broker.BatchFailed, Message: err.Error()}, nil
	}
	all, ok := p.placeWhole(items)
	results := wholeResults(&object.Spec, all, ok)
	txn := &fsm.Txn{
		Guards: []fsm.Guard{fsm.GuardAbsent(key)},
		Writes: []fsm.Write{{Key: key, Body: body, SpecChanged: true}},
	}
	ledger := wholeTxn(txn, 0, &object.Spec, p.now, all, ok, results)
	if n := txnBytes(txn); n > fsm.MaxTxnBytes {
		return broker.ReservationBatchStatus{}, tooLarge(state, key, n)
	}
	return batchStatusOf(object, ledger, txn.Writes[0].Facts), nil
}

// batchStatusOf is the status that the batch would have: as store puts it together.
func batchStatusOf(object *broker.ReservationBatch, ledger *fsm.Ledger, facts []byte) broker.ReservationBatchStatus {
	body, err := store.BatchBody(object)
	if err != nil {
		return broker.ReservationBatchStatus{Phase: broker.BatchFailed, Message: err.Error()}
	}
	composed := store.BatchOf(&fsm.Row{Key: broker.BatchKey(object.Namespace, object.Name), Body: body, Facts: facts, Ledger: ledger})
	if composed == nil {
		return broker.ReservationBatchStatus{Phase: broker.BatchFailed, Message: errUnreadable.Error()}
	}
	return composed.Status
}

// decideDecided is a dry-run on one that is Reserved or final: only its lease may change.
func decideDecided(r *request) broker.ReservationStatus {
	if phaseOf(r.row) == store.PhaseReserved {
		if ledger, longer := r.extended(); longer {
			return statusOf(r, ledger)
		}
	}
	return statusOf(r, r.row.Ledger)
}

// statusOf is the status that the object would have with that ledger: as store puts it together.
func statusOf(r *request, ledger *fsm.Ledger) broker.ReservationStatus {
	body, err := store.ReservationBody(r.object)
	if err != nil {
		return broker.ReservationStatus{Phase: broker.ReservationFailed, Message: err.Error()}
	}
	row := &fsm.Row{Key: r.key, Body: body, Ledger: ledger}
	if r.row != nil {
		row.Facts = r.row.Facts
	}
	composed := store.ReservationOf(row)
	if composed == nil {
		return broker.ReservationStatus{Phase: broker.ReservationFailed, Message: errUnreadable.Error()}
	}
	return composed.Status
}

// waitersBefore are the waiters that are served before the request, in their order.
func waitersBefore(state *fsm.State, r *request) []*request {
	var waiters []*request
	for row := range state.Scan(broker.ReservationsPrefix) {
		if row.Key == r.key {
			continue
		}
		if w, err := waiterOf(row); err == nil && w != nil && before(w, r) < 0 {
			waiters = append(waiters, w)
		}
	}
	slices.SortFunc(waiters, before)
	return waiters[:min(len(waiters), maxDryRunWaiters)]
}

// Explain is the full table of candidates for the object on the present state. Pure; any node
// may ask of any state, on any goroutine.
func Explain(state *fsm.State, object *broker.Reservation, _ fsm.Millis) broker.Decision {
	ask, err := askOf(object)
	if err != nil {
		return broker.Decision{Revision: int64(state.Revision()), Candidates: []broker.Candidate{{Reason: fmt.Sprintf("invalid: %v", err)}}}
	}
	return newView(state).market.Explanation(&ask, uint64(state.Revision()))
}
