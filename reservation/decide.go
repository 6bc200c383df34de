package reservation

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// decideAll serves waiters and arrivals in one order. It stops where the Step is full, and never
// skips: what comes later in the order must not take what comes earlier might get. One batch has
// one chunk; what it has left, and other batches, let requests of the same priority past.
func (t *term) decideAll() {
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

	t.fresh = nil
	decisions := 0
	edited, chunks := map[string]struct{}{}, false
	for _, r := range candidates {
		if r.intent != nil && !t.settledBefore(r) {
			edited[r.key] = struct{}{}
		}
		chunks = chunks || r.batch != nil
	}
	var rest *request // the batch that has had its chunk, and has items left
	for i, r := range candidates {
		if decisions >= maxDecisions || !t.roomFor(r, i == 0) || rest != nil && r.priority < rest.priority {
			t.keep(candidates[i:])
			return
		}
		_, superseded := edited[r.key]
		switch {
		case t.plan.busy(r.key), r.batch != nil && rest != nil:
			t.later(r)
		case r.batch != nil:
			decided, left := t.decideBatch(r, maxDecisions-decisions, i == len(candidates)-1)
			if decisions += decided; left {
				rest = r
			}
		case r.intent == nil && superseded && !chunks:
			// The edit is decided in its place. Not where a batch may end the Step before its turn.
		case r.intent == nil:
			r.untried = false
			decisions++
			t.placeWaiter(r)
		case t.admit(r):
			decisions++
		}
	}
}

// roomFor says whether the Step has room for the request. A batch that comes first has it, whatever
// ends in this Step: it may be larger than what is ever left.
func (t *term) roomFor(r *request, first bool) bool {
	return first && r.batch != nil || !t.plan.full(itemOverheadBytes+r.bytes())
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

// admit turns an intent into a command. It returns whether that took a decision.
func (t *term) admit(r *request) bool {
	row := r.row
	switch {
	case t.settledBefore(r):
		t.passOn(r)
		return false
	case row == nil || phaseOf(row) == store.PhasePending:
		t.place(r)
		return true
	case phaseOf(row) == store.PhaseReserved:
		t.extend(r)
		return false
	default:
		t.refuseChange(r, fsm.RefusedGuard)
		return false
	}
}

// passOn proposes an intent as it stands: Apply refuses it, or answers as the first time.
func (t *term) passOn(r *request) {
	txn := *r.intent.Txn
	txn.ID = r.id()
	t.propose(proposal{key: r.key, request: r, passed: true}, &txn)
}

// refuseChange answers an edit that the reservation's phase forbids. The API layer reads the
// state again and names the phase.
func (t *term) refuseChange(r *request, kind fsm.RefusalKind) {
	t.plan.answer(r.intent, fsm.Result{
		Revision: t.state.Revision(),
		Refusal:  &fsm.Refusal{Kind: kind, Key: r.key, Part: fsm.PartLedger, Revision: r.row.LedgerRev},
	})
}

// place decides a request that an intent brings, and stores it with the answer.
func (t *term) place(r *request) {
	if r.object.DeletionTimestamp != nil && r.row != nil {
		t.commit(r, r.pending(t.now, "it is being deleted", nil), nil, OutcomeWaiting)
		return
	}
	if r.object.Spec.Split != nil {
		t.placeSplit(r)
		return
	}
	t.view.market.Decide(&r.ask, &t.decision)
	if t.decision.Found {
		t.grant(r)
		return
	}
	if ledger := r.notGranted(t.now, t.decision.Message(&r.ask), t.record()); ledger.Ended {
		t.commit(r, ledger, nil, OutcomeFailed)
	} else {
		t.commit(r, ledger, nil, OutcomeWaiting)
	}
}

// placeWaiter decides a request that waits in the state. Nothing is written where nothing
// changes.
func (t *term) placeWaiter(r *request) {
	t.view.market.Decide(&r.ask, &t.decision)
	switch {
	case t.decision.Found:
		t.grant(r)
	case r.waitUntil(t.now) == 0:
		t.commit(r, r.failed(t.now, t.decision.Message(&r.ask), t.record()), nil, OutcomeFailed)
	case r.row.Ledger == nil || r.row.Ledger.Phase == 0:
		t.commit(r, r.pending(t.now, t.decision.Message(&r.ask), t.record()), nil, OutcomeWaiting)
	}
}

// grant proposes the hold on the winner and takes it from the view.
func (t *term) grant(r *request) {
	winner := t.decision.Best()
	account := broker.AdvertisementKey(winner.ClusterID)
	ledger := r.granted(t.now, winner, t.view.offers[account].endpoint, t.record())
	t.commit(r, ledger, []fsm.Move{{
		Op: fsm.MoveHold, Account: account, Holder: r.key, Amounts: r.ask.Amounts, Priority: r.priority,
	}}, OutcomeGranted)
	t.view.market.Take(winner.ClusterID, r.ask.Amounts)
	t.taken[account] = struct{}{}
}

// record is the last decision in the ledger's encoding.
func (t *term) record() []byte {
	return allocation.EncodeDecision(nil, &t.decision, uint64(t.state.Revision()))
}

// extend gives a Reserved one a longer lease, counted from the grant.
func (t *term) extend(r *request) {
	old := store.ReservationOf(r.row)
	spec := r.object.Spec
	spec.Duration = old.Spec.Duration
	ledger, longer := r.extended(*r.row.Ledger)
	bound := old.Status.PartOf != nil && old.Status.PartOf.Bound
	if !longer || bound || !equality.Semantic.DeepEqual(spec, old.Spec) {
		t.refuseChange(r, fsm.RefusedInvalid)
		return
	}
	if len(old.Status.Pieces) > 0 {
		t.extendGroup(r, r.duration, r.object)
		return
	}
	t.commitAs(r, ledger, nil, OutcomeExtended, reasonExtended, "Normal")
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
		t.taken[piece.move.Account] = struct{}{}
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
	t.commitAs(r, ledger, moves, outcome, ledger.Reason, kind)
}

func (t *term) commitAs(r *request, ledger *fsm.Ledger, moves []fsm.Move, outcome Outcome, reason, kind string) {
	txn := t.commitTxn(r, ledger)
	txn.Moves = moves
	txn.Writes = append(txn.Writes, t.eventWrite(r.key, r.object, kind, reason, ledger.Message))
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
