package reservation

import (
	"slices"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// group is what is granted, extended, ended and removed as one: a reservation alone, a split one with
// its pieces, or an atomic batch with the reservations of its items. Every change of it is one command,
// so at no revision does a part differ from the whole. A batch that is not atomic is removed with its
// items, which otherwise stand alone.
type group struct {
	head  *fsm.Row
	parts []*fsm.Row // those that are there; final ones may be gone
}

// partSpace makes a part's uid from the whole's: the same whichever leader decides.
var partSpace = uuid.MustParse("5b1f6f0e-7f0e-4b8c-9d7c-0f6a6c8d1b52")

func partUID(whole metav1.Object, part string) types.UID {
	return types.UID(uuid.NewSHA1(partSpace, []byte(string(whole.GetUID())+"/"+part)).String())
}

// headOf is the row that the row is ended with: its own where it is no bound part.
func (t *term) headOf(row *fsm.Row) *fsm.Row {
	if isReservation(row.Key) {
		if head := WholeOf(t.state, store.ReservationOf(row)); head != nil {
			return head
		}
	}
	return row
}

// WholeOf is the row that a bound part is ended with. nil: it is none, or it outlived the whole for the
// sake of a finalizer.
func WholeOf(state *fsm.State, object *broker.Reservation) *fsm.Row {
	if object == nil || object.Status.PartOf == nil || !object.Status.PartOf.Bound {
		return nil
	}
	whole := object.Status.PartOf
	key := broker.ReservationKey(object.Namespace, whole.Name)
	if whole.Kind == broker.KindReservationBatch {
		key = broker.BatchKey(object.Namespace, whole.Name)
	}
	head := state.Row(key)
	if head == nil || headObject(head).GetUID() != whole.UID {
		return nil
	}
	return head
}

func (t *term) groupUnder(head *fsm.Row) *group {
	g := &group{head: head}
	uid := headObject(head).GetUID()
	for _, key := range partKeys(head) {
		if row := t.state.Row(key); isPartOf(row, uid) {
			g.parts = append(g.parts, row)
		}
	}
	return g
}

// headObject is the batch or split reservation of a row.
func headObject(row *fsm.Row) metav1.Object {
	if isBatch(row.Key) {
		if b := store.BatchOf(row); b != nil {
			return b
		}
	} else if r := store.ReservationOf(row); r != nil {
		return r
	}
	return &metav1.ObjectMeta{}
}

// partKeys are the rows that a batch or split reservation is made of.
func partKeys(head *fsm.Row) (keys []string) {
	if isBatch(head.Key) {
		if b := store.BatchOf(head); b != nil {
			for i := range b.Spec.Items {
				keys = append(keys, itemKey(b, i))
			}
		}
		return keys
	}
	if r := store.ReservationOf(head); r != nil {
		for i := range r.Status.Pieces {
			keys = append(keys, broker.ReservationKey(r.Namespace, r.Status.Pieces[i].Name))
		}
	}
	return keys
}

// isPartOf: the name alone says little, another object may have it.
func isPartOf(row *fsm.Row, whole types.UID) bool {
	object := store.ReservationOf(row)
	return object != nil && object.Status.PartOf != nil && object.Status.PartOf.UID == whole
}

func (g *group) rows() []*fsm.Row { return append([]*fsm.Row{g.head}, g.parts...) }

func (g *group) keysOfParts() []string {
	keys := make([]string, len(g.parts))
	for i := range g.parts {
		keys[i] = g.parts[i].Key
	}
	return keys
}

// busy says whether this Step changes something of the group already.
func (t *term) busyGroup(g *group) bool {
	return slices.ContainsFunc(g.rows(), func(row *fsm.Row) bool { return t.plan.busy(row.Key) })
}

// endGroup ends everything that is live, and what it holds.
func (t *term) endGroup(g *group, outcome Outcome, reason, message string, guard func(*fsm.Row) fsm.Guard, others ...fsm.Guard) {
	txn := &fsm.Txn{Guards: others}
	for _, row := range g.rows() {
		if phaseOf(row) != store.PhaseReserved {
			continue
		}
		txn.Guards = append(txn.Guards, guard(row))
		txn.Writes = append(txn.Writes, t.ended(row, reason, message))
		for _, held := range row.Ledger.Holds {
			t.free(held.Account, row.Key)
		}
	}
	txn.Writes = append(txn.Writes, t.eventWrite(g.head.Key, headObject(g.head), "Normal", reason, message))
	t.propose(proposal{key: g.head.Key, parts: g.keysOfParts(), outcome: outcome}, txn)
	t.plan.endings++
}

// ended is the write that ends a Reserved row; Apply ends its holds with it.
func (t *term) ended(row *fsm.Row, reason, message string) fsm.Write {
	ledger := *row.Ledger
	ledger.Phase, ledger.Ended, ledger.EndedAt = store.PhaseReleased, true, t.now
	ledger.Reason, ledger.Message = reason, message
	w := fsm.Write{Key: row.Key, Ledger: &ledger}
	if !isBatch(row.Key) {
		ledger.WaitUntil = keepUntil(&store.ReservationOf(row).Spec, t.now)
		return w
	}
	b := store.BatchOf(row)
	ledger.WaitUntil = keepUntil(&b.Spec, t.now)
	results := make([]broker.BatchResult, len(b.Spec.Items))
	for i := range results {
		results[i] = broker.BatchResult{Name: b.Spec.Items[i].Name, Phase: broker.ReservationReleased, Message: clip(message)}
	}
	counts := store.CountBatch(results)
	ledger.Message = describeBatch(&counts, results)
	w.Facts = store.EncodeBatchResults(results)
	return w
}

// extendBatch gives an atomic batch a longer lease; every other edit is refused.
func (t *term) extendBatch(r *request) {
	old := store.BatchOf(r.row)
	if old == nil {
		t.refuseChange(r, fsm.RefusedInvalid)
		return
	}
	spec := r.batch.object.Spec
	spec.Duration = old.Spec.Duration
	var err error
	if r.duration, err = span(r.batch.object.Spec.Duration); err != nil || phaseOf(r.row) != store.PhaseReserved || !old.Spec.Atomic || !equality.Semantic.DeepEqual(spec, old.Spec) {
		t.refuseChange(r, fsm.RefusedInvalid)
		return
	}
	t.extendGroup(r, r.batch.object)
}

// extendGroup gives the whole and all its parts a longer lease, counted from the grant.
func (t *term) extendGroup(r *request, head metav1.Object) {
	g := t.groupUnder(r.row)
	if t.busyGroup(g) {
		t.fresh = append(t.fresh, r)
		return
	}
	ledger, longer := r.extended()
	if !longer {
		t.refuseChange(r, fsm.RefusedInvalid)
		return
	}
	txn := t.commitTxn(r, ledger)
	for _, row := range g.parts {
		txn.Guards = append(txn.Guards, fsm.GuardBody(row))
		txn.Writes = append(txn.Writes, t.extendedPart(row, ledger, head))
	}
	if n := txnBytes(txn); n > fsm.MaxTxnBytes {
		t.refuse(r, tooLarge(t.state, r.key, n))
		return
	}
	txn.Writes = append(txn.Writes, t.eventWrite(r.key, head, "Normal", reasonExtended, describeLease(ledger.ExpiresAt)))
	t.propose(proposal{key: r.key, parts: g.keysOfParts(), request: r, outcome: OutcomeExtended}, txn)
}

func (t *term) extendedPart(row *fsm.Row, head *fsm.Ledger, object metav1.Object) fsm.Write {
	part := store.ReservationOf(row).DeepCopy()
	switch whole := object.(type) {
	case *broker.ReservationBatch:
		part.Spec.Duration = whole.Spec.Duration
	case *broker.Reservation:
		part.Spec.Duration = whole.Spec.Duration
	}
	part.Generation++
	ledger := *row.Ledger
	ledger.ExpiresAt = head.ExpiresAt
	if ask, err := askOf(part); err == nil {
		ledger.Message = describeGrant(ask.Amounts, ledger.Target, ledger.ExpiresAt)
	}
	return fsm.Write{Key: row.Key, Body: encodedPart(part), SpecChanged: true, Ledger: &ledger}
}
