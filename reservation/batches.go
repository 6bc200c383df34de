package reservation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/internal/planted"
	"github.com/bourse-dev/bourse/store"
)

// openBatch is a ReservationBatch that is being decided: whole where it is atomic, else in chunks,
// the next of which has its turn as a request of its items' priority.
type openBatch struct {
	object  *broker.ReservationBatch // shared, never written
	results []broker.BatchResult     // of all items, in their order; undecided ones have no phase
	order   []int                    // the undecided items, in the order of service
	// waiting are the creations that are answered once all is decided.
	waiting []*cluster.Intent
}

func isBatch(key string) bool { return strings.HasPrefix(key, broker.BatchesPrefix) }

// newBatchRequest is a batch of which nothing is decided.
func newBatchRequest(key string, object *broker.ReservationBatch) *request {
	r := &request{key: key, batch: &openBatch{object: object}, untried: true}
	results := make([]broker.BatchResult, len(object.Spec.Items))
	for i := range results {
		results[i].Name = object.Spec.Items[i].Name
	}
	r.setResults(results)
	return r
}

// setResults says which items are decided. The request has the priority of the next one.
func (r *request) setResults(results []broker.BatchResult) {
	b := r.batch
	b.results, b.order = results, b.order[:0]
	for i := range results {
		if results[i].Phase == "" {
			b.order = append(b.order, i)
		}
	}
	if r.priority = b.object.Spec.Priority; b.object.Spec.Atomic || len(b.order) == 0 {
		return
	}
	items := b.object.Spec.Items
	slices.SortStableFunc(b.order, func(x, y int) int {
		return int(items[y].Spec.Priority) - int(items[x].Spec.Priority)
	})
	r.priority = items[b.order[0]].Spec.Priority
}

// itemKey is the row key of the reservation of an item.
func itemKey(b *broker.ReservationBatch, i int) string {
	return broker.ReservationKey(b.Namespace, broker.ItemReservationName(b.Name, b.Spec.Items[i].Name))
}

// itemRequest is the reservation of an item, to be decided.
func itemRequest(b *broker.ReservationBatch, i int) (*request, error) {
	item := &b.Spec.Items[i]
	object := &broker.Reservation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.Namespace, Name: broker.ItemReservationName(b.Name, item.Name), Generation: 1,
			UID:               partUID(b, item.Name),
			CreationTimestamp: b.CreationTimestamp,
			Labels:            map[string]string{broker.LabelBatch: b.Name},
			OwnerReferences:   ownedBy(broker.KindReservationBatch, b),
		},
		Spec: item.Spec,
	}
	if b.Spec.Atomic {
		object.Spec.Duration, object.Spec.Priority = b.Spec.Duration, b.Spec.Priority
		object.Spec.TTLSecondsAfterFinished = b.Spec.TTLSecondsAfterFinished
	}
	object.Status.PartOf = &broker.PartOf{
		Kind: broker.KindReservationBatch, Name: b.Name, UID: b.UID, Bound: b.Spec.Atomic,
	}
	r, err := newRequest(itemKey(b, i), object)
	if err != nil {
		return nil, fmt.Errorf("spec.items[%d].%w", i, err)
	}
	return r, nil
}

// resultOf an item that was placed.
func resultOf(name string, p *placed) broker.BatchResult {
	result := broker.BatchResult{Name: name, Phase: store.PhaseText(p.ledger.Phase), TargetClusterID: p.ledger.Target}
	if p.move == nil {
		result.Message = p.short
	}
	return result
}

// batchLedger is the ledger of a batch with these results; old is nil at creation.
func batchLedger(spec *broker.ReservationBatchSpec, results []broker.BatchResult, now fsm.Millis, old *fsm.Ledger) *fsm.Ledger {
	ledger := &fsm.Ledger{}
	if old != nil {
		*ledger = *old
	}
	counts := store.CountBatch(results)
	phase := store.PhaseOfBatch(counts)
	ledger.Reason, ledger.Message = string(phase), describeBatch(&counts, results)
	switch {
	case counts.Pending+counts.Reserved+counts.Released+counts.Failed < counts.Items:
		ledger.Phase = store.PhasePending
		return ledger
	case phase == broker.BatchReleased:
		ledger.Phase = store.PhaseReleased
	case phase == broker.BatchFailed:
		ledger.Phase = store.PhaseFailed
	default:
		ledger.Phase = store.PhaseReserved
		return ledger
	}
	ledger.Ended, ledger.EndedAt = true, now
	ledger.WaitUntil = keepUntil(spec, now)
	return ledger
}

// describeBatch as "3/3 Reserved", "0/3: tokyo lacks nvidia.com/gpu" or
// "1/4 Reserved, 1 Pending, 1 Released: paris has withdrawn its offer, 1 Failed: tokyo lacks nvidia.com/gpu":
// of each kind the first one's reason.
func describeBatch(c *broker.BatchCounts, results []broker.BatchResult) string {
	why := func(phase broker.ReservationPhase) string {
		for i := range results {
			if message := results[i].Message; results[i].Phase == phase && message != "" && message != wouldFit {
				return ": " + message
			}
		}
		return ""
	}
	if c.Failed == c.Items {
		return fmt.Sprintf("0/%d%s", c.Items, why(broker.ReservationFailed))
	}
	text := fmt.Sprintf("%d/%d Reserved", c.Reserved, c.Items)
	for _, part := range []struct {
		n         int32
		word, why string
	}{
		{c.Items - c.Pending - c.Reserved - c.Released - c.Failed, "undecided", ""},
		{c.Pending, "Pending", ""},
		{c.Released, "Released", why(broker.ReservationReleased)},
		{c.Failed, "Failed", why(broker.ReservationFailed)},
	} {
		if part.n > 0 {
			text += fmt.Sprintf(", %d %s%s", part.n, part.word, part.why)
		}
	}
	return text
}

// batchEvent tells of a batch that was decided.
func (t *term) batchEvent(r *request, ledger *fsm.Ledger, results []broker.BatchResult) fsm.Write {
	kind := "Normal"
	if store.CountBatch(results).Failed > 0 {
		kind = "Warning"
	}
	return t.eventWrite(r.key, r.batch.object, kind, ledger.Reason, ledger.Message)
}

// decideBatch gives a batch its turn, before those behind it. It returns whether items are left, and the
// priority of the first of them.
func (t *term) decideBatch(r *request, behind []*request) (next int32, left bool) {
	switch {
	case r.intent == nil:
		return t.decideChunk(r, behind)
	case r.row != nil && t.rejoin(r):
	case t.settledBefore(r):
		t.passOn(r)
	case r.row != nil:
		t.extendBatch(r)
	case r.batch.object.Spec.Atomic:
		t.decideAtomic(r)
	default:
		return t.decideChunk(r, behind)
	}
	return 0, false
}

func creates(txn *fsm.Txn, key string) bool {
	return slices.Contains(txn.Guards, fsm.GuardAbsent(key))
}

// rejoin answers the creation of a batch that is there already with the same spec: the name is the
// idempotency key. The answer comes once that one is decided. False: it is another request.
func (t *term) rejoin(r *request) bool {
	stored := store.BatchOf(r.row)
	if stored == nil || !creates(r.intent.Txn, r.key) || stored.DeletionTimestamp != nil || isLeaving(r.row) ||
		!equality.Semantic.DeepEqual(stored.Spec, r.batch.object.Spec) {
		return false
	}
	if open := t.open[r.key]; open != nil {
		open.batch.waiting = append(open.batch.waiting, r.intent)
	} else {
		t.plan.answer(r.intent, fsm.Result{Revision: t.state.Revision()})
	}
	return true
}

// takenName is the first item whose reservation's name is not free; busy: this Step changes it.
func (t *term) takenName(b *broker.ReservationBatch) (key string, busy bool) {
	for i := range b.Spec.Items {
		key := itemKey(b, i)
		if t.plan.busy(key) {
			return key, true
		}
		if t.state.Row(key) != nil {
			return key, false
		}
	}
	return "", false
}

// decideAtomic stores the batch with all its reservations, or with none and why.
func (t *term) decideAtomic(r *request) {
	b := r.batch
	items := make([]*request, len(b.object.Spec.Items))
	for i := range items {
		var err error
		if items[i], err = itemRequest(b.object, i); err != nil {
			t.refuse(r, &fsm.Refusal{Kind: fsm.RefusedInvalid, Key: err.Error()})
			return
		}
	}
	switch taken, busy := t.takenName(b.object); {
	case busy:
		t.fresh = append(t.fresh, r)
		return
	case taken != "":
		t.refuse(r, &fsm.Refusal{Kind: fsm.RefusedExists, Key: taken, Revision: t.state.Row(taken).Revision()})
		return
	}
	t.plan.decisions += len(items)
	all, ok := t.placer().placeWhole(items)
	results := wholeResults(&b.object.Spec, all, ok)
	txn := t.chunkTxn(r)
	ledger := wholeTxn(txn, r.write, &b.object.Spec, t.now, all, ok, results)
	if n := txnBytes(txn); n > fsm.MaxTxnBytes {
		t.placer().giveBack(all)
		t.refuse(r, tooLarge(t.state, r.key, n))
		return
	}
	p := proposal{key: r.key, request: r, outcome: OutcomeFailed}
	if ok {
		p.outcome = OutcomeGranted
		for i := range all {
			p.parts = append(p.parts, all[i].request.key)
		}
	}
	txn.Writes = append(txn.Writes, t.batchEvent(r, ledger, results))
	t.propose(p, txn)
}

// wholeTxn adds to the command that creates an atomic batch, with its write of that index, what became
// of it: its ledger, and all its parts where it is held.
func wholeTxn(txn *fsm.Txn, write int, spec *broker.ReservationBatchSpec, now fsm.Millis,
	all []placed, ok bool, results []broker.BatchResult,
) *fsm.Ledger {
	ledger := batchLedger(spec, results, now, nil)
	if ok {
		ledger.GrantedAt, ledger.ExpiresAt = now, all[0].ledger.ExpiresAt
		for i := range all {
			if planted.Bug == planted.TornBatch && i > 0 && i == len(all)-1 {
				break
			}
			addPart(txn, &all[i])
		}
	}
	txn.Writes[write].Ledger, txn.Writes[write].Facts = ledger, store.EncodeBatchResults(results)
	return ledger
}

// wouldFit is said of an item for which there was room, in an atomic batch without room for another.
const wouldFit = "would fit: the batch was refused"

// wholeResults: an item that would have fitted says so, and is not held.
func wholeResults(spec *broker.ReservationBatchSpec, all []placed, ok bool) []broker.BatchResult {
	results := make([]broker.BatchResult, len(all))
	for i := range all {
		results[i] = resultOf(spec.Items[i].Name, &all[i])
		if !ok {
			results[i].Phase, results[i].TargetClusterID = broker.ReservationFailed, ""
			results[i].Message = cmp.Or(results[i].Message, wouldFit)
		}
	}
	return results
}

func encodedPart(object *broker.Reservation) []byte {
	body, err := store.ReservationBody(object)
	if err != nil {
		panic("reservation: a part can't be encoded: " + err.Error()) // it was decoded from JSON
	}
	return body
}

// addPart creates the reservation of a part.
func addPart(txn *fsm.Txn, p *placed) {
	txn.Guards = append(txn.Guards, fsm.GuardAbsent(p.request.key))
	txn.Writes = append(txn.Writes, fsm.Write{
		Key: p.request.key, Body: encodedPart(p.request.object), SpecChanged: true, Ledger: p.ledger,
	})
	if p.move != nil {
		txn.Moves = append(txn.Moves, *p.move)
	}
}

// txnBytes is what the command takes in an entry. Encoding is asked only where the estimate is not
// far below the limit.
func txnBytes(txn *fsm.Txn) int {
	if n := itemBytes(txn); n < fsm.MaxTxnBytes/2 {
		return n
	}
	encoded, err := fsm.EncodeTxn(txn)
	if err != nil {
		return max(itemBytes(txn), fsm.MaxTxnBytes+1)
	}
	return len(encoded)
}

func tooLarge(state *fsm.State, key string, bytes int) *fsm.Refusal {
	refusal := &fsm.Refusal{Kind: fsm.RefusedInvalid, Key: key, Revision: state.Revision()}
	refusal.Lack.Resource, refusal.Lack.Requested, refusal.Lack.Available = store.LackBytes, int64(bytes), fsm.MaxTxnBytes
	return refusal
}
