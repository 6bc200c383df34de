package reservation

import (
	"slices"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// A batch that is not atomic is decided in chunks: one command each, that stores the reservations of
// the next items and their results in the batch's row, guarded by the results as they were. So an item
// is decided once, whoever leads, and what is left is in the state.

// chunk is what such a command decides.
type chunk struct {
	results []broker.BatchResult // of all items, as they will be
	decided []int                // the items of this chunk
	last    bool
}

// decideChunk proposes the next chunk: items that come before those behind the batch, as many as there is
// room for. The first one creates the batch, with as many items as fit beside it. Where others come after
// it half of the room is theirs. It returns whether items are left, and the priority of the first of them.
func (t *term) decideChunk(r *request, behind []*request) (next int32, left bool) {
	b := r.batch
	items := b.object.Spec.Items
	c := chunk{results: slices.Clone(b.results)}
	txn := t.chunkTxn(r)
	most := min(maxDecisions-t.plan.decisions, max(1, t.cfg.chunkItems>>r.refusals))
	room := maxEntryBytes - t.plan.bytes - itemBytes(txn) - resultBytes*len(b.results)
	if len(behind) > 0 {
		room /= 2
	}
	p := proposal{key: r.key, request: r, chunk: &c}
	for _, i := range b.order {
		if len(c.decided) >= most || len(behind) > 0 && !r.itemBefore(i, behind[0]) ||
			room < 0 && (len(c.decided) > 0 || r.intent != nil) || t.plan.busy(itemKey(b.object, i)) {
			break
		}
		if part := t.decideItem(r, i, &c); part != nil {
			addPart(txn, part)
			p.parts = append(p.parts, part.request.key)
			room -= writeBytes(&txn.Writes[len(txn.Writes)-1])
		}
	}
	if len(c.decided) == 0 && r.intent == nil {
		t.plan.left = true // its next item's name is being changed by this Step
		return r.priority, true
	}
	c.last = len(c.decided) == len(b.order)
	var old *fsm.Ledger
	if r.row != nil {
		old = r.row.Ledger
	}
	ledger := batchLedger(&b.object.Spec, c.results, t.now, old)
	txn.Writes[r.write].Ledger, txn.Writes[r.write].Facts = ledger, store.EncodeBatchResults(c.results)
	if c.last {
		txn.Writes = append(txn.Writes, t.batchEvent(r, ledger, c.results))
	}
	t.propose(p, txn)
	if c.last {
		return 0, false
	}
	return items[b.order[len(c.decided)]].Spec.Priority, true
}

// itemBefore says whether an item comes before another request: it is as old as its batch.
func (r *request) itemBefore(i int, other *request) bool {
	item := request{priority: r.batch.object.Spec.Items[i].Spec.Priority, created: r.created, arrival: r.arrival}
	return before(&item, other) < 0
}

// chunkTxn is the command without the items: the intent's at first, then one on the row.
func (t *term) chunkTxn(r *request) *fsm.Txn {
	if r.intent != nil {
		return &fsm.Txn{ID: r.id(), Guards: slices.Clone(r.intent.Txn.Guards), Writes: slices.Clone(r.intent.Txn.Writes)}
	}
	return &fsm.Txn{
		Guards: []fsm.Guard{fsm.GuardFacts(r.row), fsm.GuardLedger(r.row)},
		Writes: []fsm.Write{{Key: r.key}},
	}
}

// decideItem decides one item of the chunk. nil: it has no reservation of its own.
func (t *term) decideItem(r *request, i int, c *chunk) *placed {
	b := r.batch.object
	t.plan.decisions++
	c.decided = append(c.decided, i)
	result := &c.results[i]
	result.Phase = broker.ReservationFailed
	if t.state.Row(itemKey(b, i)) != nil {
		result.Message = takenMessage(broker.ItemReservationName(b.Name, result.Name))
		return nil
	}
	if r.refusals > maxRefusals {
		result.Message = "the offers changed whenever it was decided: ask again"
		return nil
	}
	item, err := itemRequest(b, i)
	if err != nil {
		result.Message = clip(err.Error())
		return nil
	}
	done := t.placer().place(item)
	*result = resultOf(result.Name, &done)
	return &done
}

func takenMessage(name string) string {
	return clip("the name " + name + " is taken by another reservation")
}

// firstIntent is who asked first for a batch; nil where nobody waits for it.
func (r *request) firstIntent() *cluster.Intent {
	if r.intent == nil && len(r.batch.waiting) > 0 {
		return r.batch.waiting[0]
	}
	return r.intent
}

// chunkDone goes on with the rest, or answers who waits for all.
func (t *term) chunkDone(p *proposal, s *cluster.Settled) {
	r := p.request
	r.refusals = 0
	if r.intent != nil {
		r.batch.waiting = append(r.batch.waiting, r.intent)
		r.intent, r.write = nil, 0
	}
	for _, i := range p.chunk.decided {
		t.cfg.Observe(outcomes[p.chunk.results[i].Phase])
	}
	r.setResults(p.chunk.results)
	if !p.chunk.last {
		t.open[r.key] = r
		return
	}
	delete(t.open, r.key)
	t.batches[r.key] = struct{}{} // the same entry may have ended one of its items
	t.answerAll(r, s.Result)
}

var outcomes = map[broker.ReservationPhase]Outcome{
	broker.ReservationReserved: OutcomeGranted,
	broker.ReservationPending:  OutcomeWaiting,
	broker.ReservationFailed:   OutcomeFailed,
}

func (t *term) answerAll(r *request, result fsm.Result) {
	for _, in := range r.batch.waiting {
		t.plan.answer(in, result)
	}
	r.batch.waiting = nil
}

// chunkRefused: an offer, a name or the batch itself was not as the state showed it. What comes next
// is decided anew, in smaller chunks each time.
func (t *term) chunkRefused(p *proposal, s *cluster.Settled) {
	r := p.request
	r.refusals++
	if r.intent == nil {
		return // its row, if it changed, comes with the changes
	}
	if r.another(s.Result.Refusal) {
		t.fresh = append(t.fresh, r)
		return
	}
	t.plan.answer(r.intent, s.Result)
}

// syncBatch brings the room up to one batch's row; nil: it is gone. Like a reservation that waits, one
// that is being deleted gets nothing more.
func (t *term) syncBatch(key string, row *fsm.Row) {
	open := t.open[key]
	var object *broker.ReservationBatch
	if row != nil && phaseOf(row) == store.PhasePending {
		if object = store.BatchOf(row); object == nil {
			t.cfg.Logger.Error("a stored batch can't be read and is never decided", "key", key)
		}
	}
	if object == nil || object.DeletionTimestamp != nil {
		if open != nil { // deleted, or decided by somebody else
			delete(t.open, key)
			t.answerAll(open, fsm.Result{Revision: t.state.Revision()})
		}
		t.noteBatch(key, row)
		return
	}
	results, err := store.BatchResults(row, object.Spec.Items)
	if err != nil {
		t.cfg.Logger.Error("the results of a batch can't be read and it is never decided", "key", key, "error", err)
		delete(t.open, key)
		return
	}
	if open == nil {
		open = newBatchRequest(key, object)
		t.open[key] = open
	}
	open.batch.object, open.row, open.created = object, row, row.Created
	open.setResults(results)
}
