package reservation

import (
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// request is a reservation that is to be decided: one that waits in the state, or one that an
// intent brings.
type request struct {
	key      string
	priority int32
	created  fsm.Revision // 0: not stored yet
	arrival  uint64       // the order among those

	object   *broker.Reservation // as it will be; shared, never written
	ask      allocation.Request
	duration fsm.Millis // 0: until deleted
	waitFor  fsm.Millis // 0: fails at once
	row      *fsm.Row   // as stored; nil at creation

	minPiece allocation.Amounts // of a split one

	// batch is what is decided where it is a ReservationBatch: then object and ask are not set.
	batch *openBatch

	intent *cluster.Intent // nil: it waits in the state
	write  int             // of intent.Txn.Writes

	// untried: something came since the last decision that could make it fit.
	untried bool
	// refusals is how often Apply found the view stale.
	refusals int
	// begun: a deletion takes several commands, and the first is done.
	begun bool
}

// id of the command that carries the request's intent. Apply remembers what became of an id, a
// refusal too, so another try needs another: the next of a chain that begins with the intent's
// own. A node that asks again walks the same chain and meets the answer.
func (r *request) id() fsm.RequestID {
	id := r.intent.Txn.ID
	if id != (fsm.RequestID{}) {
		id.Random += uint64(r.refusals) * idStep
	}
	return id
}

// extends: what is asked for is a longer lease, which takes nothing.
func (r *request) extends() bool { return r.row != nil && phaseOf(r.row) == store.PhaseReserved }

// bytes that the intent brings into an entry, beside its overhead.
func (r *request) bytes() int {
	if r.intent == nil {
		return 0
	}
	n := itemBytes(r.intent.Txn) - itemOverheadBytes
	if r.batch != nil && r.batch.object.Spec.Atomic {
		n += len(r.batch.object.Spec.Items) * partBytes
	}
	return n
}

// idStep is odd and large (2^64 divided by the golden ratio), so that chains don't meet.
const idStep = 0x9E3779B97F4A7C15

var errUnreadable = errors.New("the body is no reservation")

// newRequest reads what the object asks for.
func newRequest(key string, object *broker.Reservation) (*request, error) {
	ask, err := askOf(object)
	if err != nil {
		return nil, err
	}
	r := &request{key: key, priority: object.Spec.Priority, object: object, ask: ask}
	if r.duration, err = span(object.Spec.Duration); err != nil {
		return nil, fmt.Errorf("spec.duration: %w", err)
	}
	if r.waitFor, err = span(object.Spec.WaitFor); err != nil {
		return nil, fmt.Errorf("spec.waitFor: %w", err)
	}
	if object.Spec.Split != nil {
		r.minPiece, err = minPieceOf(object.Spec.Split, ask.Amounts)
	}
	return r, err
}

// minPieceOf a split one: of what is requested, and no more of it.
func minPieceOf(split *broker.Split, requested allocation.Amounts) (allocation.Amounts, error) {
	least, err := allocation.AmountsOf(split.MinPiece, true)
	if err != nil {
		return nil, fmt.Errorf("spec.split.minPiece: %w", err)
	}
	for _, a := range least {
		if a.Value > requested.Get(a.Resource) {
			return nil, fmt.Errorf("spec.split.minPiece.%s: more than is requested", a.Resource)
		}
	}
	return least, nil
}

// askOf turns a reservation's spec into the question that allocation answers.
func askOf(object *broker.Reservation) (allocation.Request, error) {
	spec := &object.Spec
	ask := allocation.Request{Requester: spec.RequesterID, Target: spec.TargetClusterID, MaxPriceNano: allocation.NoPriceLimit}
	var err error
	if ask.Amounts, err = allocation.AmountsOf(spec.RequestedResources, true); err != nil {
		return ask, fmt.Errorf("spec.requestedResources: %w", err)
	}
	if ask.Chunk, err = allocation.AmountsOf(spec.Chunk, true); err != nil {
		return ask, fmt.Errorf("spec.chunk: %w", err)
	}
	if spec.ClusterSelector != nil {
		if ask.Selector, err = metav1.LabelSelectorAsSelector(spec.ClusterSelector); err != nil {
			return ask, fmt.Errorf("spec.clusterSelector: %w", err)
		}
	}
	if spec.MaxCostPerHour != "" {
		if ask.MaxPriceNano, err = broker.ParsePrice(spec.MaxCostPerHour); err != nil {
			return ask, fmt.Errorf("spec.maxCostPerHour: %w", err)
		}
	}
	return ask, nil
}

// span parses a duration of the API; "" is 0.
func span(s string) (fsm.Millis, error) {
	if s == "" {
		return 0, nil
	}
	d, err := broker.ParseSpan(s)
	return fsm.Millis(d / time.Millisecond), err
}

// waiterOf is the request of a stored row that is to be decided, nil where it is not: only a
// Pending one that nobody is deleting waits.
func waiterOf(row *fsm.Row) (*request, error) {
	if phaseOf(row) != store.PhasePending {
		return nil, nil
	}
	object := store.ReservationOf(row)
	if object == nil {
		return nil, errUnreadable
	}
	if object.DeletionTimestamp != nil {
		return nil, nil
	}
	r, err := newRequest(row.Key, object)
	if err != nil {
		return nil, err
	}
	r.created, r.row, r.untried = row.Created, row, true
	return r, nil
}

// phaseOf a stored reservation. One without a ledger was stored undecided: it is Pending.
func phaseOf(row *fsm.Row) uint8 {
	if row.Ledger == nil || row.Ledger.Phase == 0 {
		return store.PhasePending
	}
	return row.Ledger.Phase
}

// requestOf is the request that an intent brings; seeRow comes before each decision.
func requestOf(in *cluster.Intent, write int) (*request, error) {
	w := &in.Txn.Writes[write]
	var r *request
	if isBatch(w.Key) {
		b, err := store.DecodeBatch(w.Body)
		if err != nil {
			return nil, fmt.Errorf("body: %w", err)
		}
		r = newBatchRequest(w.Key, b)
	} else {
		object, err := store.DecodeReservation(w.Body)
		if err != nil {
			return nil, fmt.Errorf("body: %w", err)
		}
		if r, err = newRequest(w.Key, object); err != nil {
			return nil, err
		}
	}
	r.intent, r.write, r.untried = in, write, true
	return r, nil
}

// seeRow brings the request up to the row that it would change, nil where it creates one. A request
// that was kept for a later Step may find that its name was given up meanwhile: then it is young again.
func (r *request) seeRow(row *fsm.Row) {
	r.row, r.created = row, 0
	if row != nil {
		r.created = row.Created
	}
}

// waitUntil is when the request stops waiting, 0 where it does not wait. An edited waitFor counts
// from when the request began to wait, not from the edit.
func (r *request) waitUntil(now fsm.Millis) fsm.Millis {
	if r.waitFor == 0 {
		return 0
	}
	began := now
	if r.row != nil && r.row.Ledger != nil && r.row.Ledger.WaitUntil > 0 {
		began = r.row.Ledger.WaitUntil
		if r.intent != nil {
			if old, err := span(store.ReservationOf(r.row).Spec.WaitFor); err == nil {
				return began - old + r.waitFor
			}
		}
		return began
	}
	return began + r.waitFor
}

// keepUntil is when a final reservation or batch may be removed.
func keepUntil(spec interface{ Retention() time.Duration }, ended fsm.Millis) fsm.Millis {
	return ended + fsm.Millis(spec.Retention()/time.Millisecond)
}
