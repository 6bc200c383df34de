package reservation

import (
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	v := newView(state)
	var d allocation.Decision
	for _, w := range waitersBefore(state, r) {
		if v.market.Decide(&w.ask, &d); d.Found {
			v.market.Take(d.Best().ClusterID, w.ask.Amounts)
		}
	}
	v.market.Decide(&r.ask, &d)
	record := allocation.EncodeDecision(nil, &d, uint64(state.Revision()))
	if d.Found {
		winner := d.Best()
		return statusOf(r, r.granted(now, winner, v.offers[broker.AdvertisementKey(winner.ClusterID)].endpoint, record))
	}
	return statusOf(r, r.notGranted(now, d.Message(&r.ask), record))
}

// decideDecided is a dry-run on one that is Reserved or final: only its lease may change.
func decideDecided(r *request) broker.ReservationStatus {
	if phaseOf(r.row) == store.PhaseReserved {
		if ledger, longer := r.extended(*r.row.Ledger); longer {
			return statusOf(r, ledger)
		}
	}
	return statusOf(r, r.row.Ledger)
}

// statusOf is the status that the object would have with that ledger: as store puts it together.
func statusOf(r *request, ledger *fsm.Ledger) broker.ReservationStatus {
	body, err := json.Marshal(struct {
		Metadata metav1.ObjectMeta      `json:"metadata"`
		Spec     broker.ReservationSpec `json:"spec"`
	}{r.object.ObjectMeta, r.object.Spec})
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
