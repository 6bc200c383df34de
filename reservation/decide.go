package reservation

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// decideAll serves waiters and arrivals in one order. It stops where the Step is full, and never
// skips: what comes later in the order must not take what comes earlier might get. One batch has
// one chunk; what it has left lets requests of the same priority past, those of a lower one not.
func (t *term) decideAll() {
	candidates := t.candidates()
	t.fresh = nil
	next, left := int32(0), false // the priority of what a batch has left that has had its chunk
	for i, r := range candidates {
		if t.plan.decisions >= maxDecisions || !t.plan.fits(r.bytes()) {
			t.keep(candidates[i:])
			return
		}
		switch {
		case t.plan.busy(r.key), left && !r.extends() && (r.batch != nil || r.priority < next):
			t.later(r)
		case r.batch != nil:
			if priority, more := t.decideBatch(r, candidates[i+1:]); more {
				next, left = priority, true
			}
		case r.intent == nil:
			r.untried = false
			t.placeWaiter(r)
		default:
			t.admit(r)
		}
	}
}

// candidates are what may be decided now, in the order of service.
func (t *term) candidates() []*request {
	t.rouse()
	for _, r := range t.fresh {
		r.seeRow(t.state.Row(r.key))
	}
	candidates := t.fresh
	for _, open := range t.open {
		candidates = append(candidates, open)
	}
	for _, w := range t.waiting.sorted {
		if w.untried {
			candidates = append(candidates, w)
		}
	}
	slices.SortStableFunc(candidates, before)
	return candidates
}

// later leaves a request for the next Step, and goes on with the others.
func (t *term) later(r *request) {
	if r.intent != nil {
		t.fresh = append(t.fresh, r)
	}
}

// keep leaves requests for the next Step.
func (t *term) keep(rest []*request) {
	for _, r := range rest {
		t.later(r)
	}
	t.plan.left = true
}

// rouse marks the waiters that a change could have made fit.
func (t *term) rouse() {
	if len(t.improved) == 0 {
		return
	}
	for _, w := range t.waiting.sorted {
		if !w.untried {
			w.untried = len(t.improved) > maxImproved || t.fitsImproved(w)
		}
	}
	clear(t.improved)
}

func (t *term) fitsImproved(w *request) bool {
	for key := range t.improved {
		if couldFit(t.view.offers[key], &w.ask) {
			return true
		}
	}
	return false
}

// settledBefore says whether the state alone settles the intent: Apply refuses it, or knows its id
// and answers as the first time. Either takes nothing, so nothing may be taken for it in the view.
func (t *term) settledBefore(r *request) bool {
	return !t.state.GuardsHold(r.intent.Txn.Guards) || t.state.Remembers(r.id())
}

// admit turns an intent into a command.
func (t *term) admit(r *request) {
	switch {
	case t.settledBefore(r):
		t.passOn(r)
	case r.row == nil || phaseOf(r.row) == store.PhasePending:
		t.place(r)
	case r.extends():
		t.extend(r)
	default:
		t.refuseChange(r, fsm.RefusedGuard)
	}
}

// passOn proposes an intent as it stands: Apply refuses it, or answers as the first time. What a creation finds
// in its way may go before that; then it is decided after all, and never stored as it stands.
func (t *term) passOn(r *request) {
	txn := *r.intent.Txn
	txn.ID = r.id()
	if r.row != nil && creates(&txn, r.key) {
		txn.Guards = append(slices.Clone(txn.Guards), fsm.GuardRow(r.row))
	}
	p := proposal{key: r.key, request: r, passed: true}
	if txn.Writes[r.write].Delete {
		p.request, p.leaving = nil, r
	}
	t.propose(p, &txn)
}

// refuseChange answers an edit that the reservation's phase forbids. The API layer reads the
// state again and names the phase.
func (t *term) refuseChange(r *request, kind fsm.RefusalKind) {
	t.refuse(r, &fsm.Refusal{Kind: kind, Key: r.key, Part: fsm.PartLedger, Revision: r.row.LedgerRev})
}

func (t *term) refuse(r *request, refusal *fsm.Refusal) {
	t.plan.answer(r.intent, fsm.Result{Revision: t.state.Revision(), Refusal: refusal})
}

// place decides a request that an intent brings, and stores it with the answer.
func (t *term) place(r *request) {
	t.plan.decisions++
	if r.object.DeletionTimestamp != nil && r.row != nil {
		t.commit(r, r.pending(t.now, "it is being deleted", nil), nil, OutcomeWaiting)
		return
	}
	if r.object.Spec.Split != nil {
		t.placeSplit(r)
		return
	}
	t.settlePlaced(t.placer().place(r))
}

// placeWaiter decides a request that waits in the state. Nothing is written where nothing
// changes.
func (t *term) placeWaiter(r *request) {
	t.plan.decisions++
	t.view.market.Decide(&r.ask, &t.decision)
	if t.decision.Found || r.waitFor == 0 || r.row.Ledger == nil || r.row.Ledger.Phase == 0 {
		t.settlePlaced(t.placer().placed(r))
	}
}

// settlePlaced proposes what was decided of one request.
func (t *term) settlePlaced(p placed) {
	switch {
	case p.move != nil:
		t.commit(p.request, p.ledger, []fsm.Move{*p.move}, OutcomeGranted)
	case p.ledger.Ended:
		t.commit(p.request, p.ledger, nil, OutcomeFailed)
	default:
		t.commit(p.request, p.ledger, nil, OutcomeWaiting)
	}
}

// extend gives a Reserved one a longer lease, with its pieces.
func (t *term) extend(r *request) {
	old := store.ReservationOf(r.row)
	spec := r.object.Spec
	spec.Duration = old.Spec.Duration
	bound := old.Status.PartOf != nil && old.Status.PartOf.Bound
	if bound || !equality.Semantic.DeepEqual(spec, old.Spec) {
		t.refuseChange(r, fsm.RefusedInvalid)
		return
	}
	t.extendGroup(r, r.object)
}

// placeSplit decides a request that may be met in pieces. A piece whose name is taken refuses it.
func (t *term) placeSplit(r *request) {
	whole := t.placer().placeSplit(r)
	txn := t.commitTxn(r, whole.ledger)
	p := proposal{key: r.key, request: r, outcome: OutcomeFailed}
	for i := range whole.pieces {
		piece := &whole.pieces[i]
		if t.plan.busy(piece.request.key) {
			t.placer().giveBack(whole.pieces)
			t.fresh = append(t.fresh, r)
			return
		}
		addPart(txn, piece)
		p.parts, p.outcome = append(p.parts, piece.request.key), OutcomeGranted
	}
	kind := "Warning"
	if p.outcome == OutcomeGranted {
		kind = "Normal"
		object := *r.object
		object.Status.Pieces = piecesOf(whole.pieces)
		body, err := store.ReservationBody(&object)
		if err != nil {
			t.invalid(r.intent, err)
			return
		}
		txn.Writes[r.write].Body = body
	}
	txn.Writes = append(txn.Writes, t.eventWrite(r.key, r.object, kind, whole.ledger.Reason, whole.ledger.Message))
	t.propose(p, txn)
}

// commit proposes the request's new ledger, with its event, guarded so that an edited request is
// never granted its old size.
func (t *term) commit(r *request, ledger *fsm.Ledger, moves []fsm.Move, outcome Outcome) {
	kind := "Normal"
	if outcome == OutcomeFailed {
		kind = "Warning"
	}
	txn := t.commitTxn(r, ledger)
	txn.Moves = moves
	txn.Writes = append(txn.Writes, t.eventWrite(r.key, r.object, kind, ledger.Reason, ledger.Message))
	t.propose(proposal{key: r.key, request: r, outcome: outcome}, txn)
}

func (t *term) commitTxn(r *request, ledger *fsm.Ledger) *fsm.Txn {
	txn := &fsm.Txn{}
	if r.row != nil {
		txn.Guards = append(txn.Guards, fsm.GuardSpec(r.row), fsm.GuardLedger(r.row))
	}
	if r.intent == nil {
		txn.Writes = []fsm.Write{{Key: r.key, Ledger: ledger}}
		return txn
	}
	txn.ID = r.id()
	txn.Guards = append(slices.Clone(r.intent.Txn.Guards), txn.Guards...)
	txn.Writes = slices.Clone(r.intent.Txn.Writes)
	txn.Writes[r.write].Ledger = ledger
	return txn
}
