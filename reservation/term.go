package reservation

import (
	"maps"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// term is the room's work during one leadership term. Every field can be rebuilt from the state
// but fresh and leaving, whose intents are then asked again by the nodes that brought them.
type term struct {
	cfg   Config
	state *fsm.State
	now   fsm.Millis

	view     *view
	improved map[string]struct{} // accounts that became better since the waiters were looked at

	waiting  queue
	fresh    []*request            // brought by intents, undecided
	leaving  []*request            // deletions with others that end too
	open     map[string]*request   // batches that are being decided, by key
	batches  map[string]struct{}   // those that are decided and go on, by key
	stale    map[string]fsm.Millis // those whose items changed -> when to look
	arrivals uint64

	leases     deadlines
	withdrawn  map[string]struct{} // accounts whose holders have to go
	short      shortIndex
	events     *eventIndex
	eventCount uint64

	plan     plan
	proposed map[*fsm.Txn]proposal
	decision allocation.Decision
}

// proposal is what a proposed command was for.
type proposal struct {
	key     string   // of the reservation or batch, or of the event that is removed
	parts   []string // of the other reservations that it changes
	request *request // that it decides; nil: another change
	account string   // to look at again if it is refused
	outcome Outcome  // once it is done
	passed  bool     // as the intent stands: it can only be refused, or is done already
	chunk   *chunk   // of a batch
	leaving *request // the deletion that it is a step of
	partial bool     // the intent is not done with it
}

func newTerm(cfg Config, state *fsm.State, now fsm.Millis) *term {
	t := &term{
		cfg: cfg, state: state, now: now,
		view: newView(state), improved: map[string]struct{}{},
		waiting: newQueue(), withdrawn: map[string]struct{}{},
		short: newShortIndex(), events: newEventIndex(state, now),
		open: map[string]*request{}, batches: map[string]struct{}{}, stale: map[string]fsm.Millis{},
		proposed: map[*fsm.Txn]proposal{},
		// Two terms may meet in one millisecond; counting on from the revision keeps names apart.
		eventCount: uint64(state.Revision()),
	}
	for row := range state.Scan(broker.ReservationsPrefix) {
		t.sync(row.Key, row)
	}
	for row := range state.Scan(broker.BatchesPrefix) {
		t.syncBatch(row.Key, row)
		t.markStale(row.Key)
	}
	for row := range state.Scan(broker.AdvertisementsPrefix) {
		t.noteAccount(row.Key, row)
	}
	return t
}

// Step decides what is new. The order matters: what ends comes before what is granted, so that
// what it frees goes to who is next, and an extension that comes too late is refused; waiters come before what has just
// arrived wherever their priority says so.
func (t *term) Step(in cluster.Input) cluster.Output {
	t.state, t.now, t.plan = in.State, in.Now, newPlan()
	t.view.reset(t.state)
	t.settle(in.Settled)
	t.absorb(in.Changes)
	t.arrive(in.Intents)

	t.removeLeaving()
	t.endLeases()
	t.endWithdrawn()
	t.markShort()
	t.refreshBatches()
	t.decideAll()
	t.removeEvents()
	return cluster.Output{Propose: t.plan.items, Answers: t.plan.answers, Wake: t.wake()}
}

// settle learns what became of the last Step's commands.
func (t *term) settle(settled []cluster.Settled) {
	for i := range settled {
		s := &settled[i]
		p, ok := t.proposed[s.Item.Txn]
		if !ok {
			continue
		}
		delete(t.proposed, s.Item.Txn)
		t.tellWaiters(&p, s)
		if s.Err == nil && s.Result.Refusal != nil {
			t.cfg.Observe(OutcomeRefused)
		}
		switch {
		case s.Err != nil:
			// Unknown: the term is about to end, and the next one reads the state.
		case p.leaving != nil:
			t.leavingSettled(&p, s)
		case p.chunk != nil && s.Result.Refusal == nil:
			t.chunkDone(&p, s)
		case p.chunk != nil:
			t.chunkRefused(&p, s)
		case s.Result.Refusal == nil:
			t.observe(&p)
			if s.Item.Intent != nil {
				t.plan.answer(s.Item.Intent, s.Result)
			}
		default:
			t.refused(p, s)
		}
	}
	// A term loop that settles less than was proposed ends the term; nothing is kept of it.
	clear(t.proposed)
}

// observe counts an outcome: of a batch once for each reservation of it.
func (t *term) observe(p *proposal) {
	times := 1
	if isBatch(p.key) {
		times = max(1, len(p.parts))
	}
	for range times {
		if p.outcome != "" {
			t.cfg.Observe(p.outcome)
		}
	}
}

// tellWaiters has the waiters looked at again that were decided while the view was without what Apply has
// refused to give. A command that is refused again and again tells them no more.
func (t *term) tellWaiters(p *proposal, s *cluster.Settled) {
	if s.Err != nil || s.Result.Refusal == nil || p.request == nil || p.request.refusals >= maxRefusals {
		return
	}
	for i := range s.Item.Txn.Moves {
		t.improved[s.Item.Txn.Moves[i].Account] = struct{}{}
	}
}

// refused sorts out a command that Apply did not do: the view was stale, or the row was not as
// it was when the command was made.
func (t *term) refused(p proposal, s *cluster.Settled) {
	refusal := s.Result.Refusal
	t.cfg.Logger.Debug("refused", "key", p.key, "kind", refusal.Kind, "by", refusal.Key, "revision", refusal.Revision)
	if p.account != "" {
		t.short.check[p.account] = struct{}{}
	}
	if s.Item.Intent == nil {
		t.events.sync(p.key, t.state.Row(p.key), t.now)
		switch {
		case isReservation(p.key):
			t.sync(p.key, t.state.Row(p.key))
		case isBatch(p.key):
			t.syncBatch(p.key, t.state.Row(p.key))
			t.markStale(p.key)
		}
		return
	}
	if p.request != nil && p.request.another(refusal) && p.request.refusals < maxRefusals {
		p.request.refusals++
		t.fresh = append(t.fresh, p.request)
		return
	}
	t.plan.answer(s.Item.Intent, s.Result)
}

// another decision may do: the view of an account was stale, or a part was, or the name of an item, which then
// fails alone, or what was in the way of a creation is gone.
func (r *request) another(refusal *fsm.Refusal) bool {
	switch refusal.Kind {
	case fsm.RefusedCapacity, fsm.RefusedClosed:
		return true
	case fsm.RefusedMissing:
		return strings.HasPrefix(refusal.Key, broker.AdvertisementsPrefix) ||
			refusal.Key == r.key && creates(r.intent.Txn, r.key)
	case fsm.RefusedExists:
		return r.batch != nil && (refusal.Key == r.key && r.row == nil || refusal.Key != r.key && !r.batch.object.Spec.Atomic)
	case fsm.RefusedGuard:
		return refusal.Key != r.key && !r.asks(refusal)
	}
	return false
}

// absorb brings view, queues and indexes up to the state.
func (t *term) absorb(changes []fsm.Change) {
	for i := range changes {
		c := &changes[i]
		key := c.Key()
		switch {
		case strings.HasPrefix(key, broker.AdvertisementsPrefix):
			if c.After == nil {
				t.view.remove(key)
			} else {
				t.view.set(c.After)
			}
			if improved(c) {
				t.improved[key] = struct{}{}
			}
			t.noteAccount(key, c.After)
		case isReservation(key):
			t.sync(key, c.After)
			t.noteItem(c)
		case isBatch(key):
			t.syncBatch(key, c.After)
		case strings.HasPrefix(key, store.EventsPrefix):
			t.events.sync(key, c.After, t.now)
		}
	}
}

// sync brings the queues up to one reservation's row; nil: it is gone.
func (t *term) sync(key string, row *fsm.Row) {
	old := t.waiting.drop(key)
	t.short.note(key, row)
	if row == nil {
		return
	}
	waiter, err := waiterOf(row)
	switch {
	case err != nil:
		t.cfg.Logger.Error("a stored reservation can't be read and waits in vain", "key", key, "error", err)
	case waiter != nil:
		if old != nil && old.row == row {
			// Apply refused its grant: the view was stale. Try again, but not for ever.
			waiter.refusals = old.refusals + 1
			waiter.untried = waiter.refusals < maxRefusals
		}
		t.waiting.put(waiter)
	}
	t.leases.add(dueAt(row), key)
}

// noteAccount remembers what an advertisement's change means for those who hold of it.
func (t *term) noteAccount(key string, row *fsm.Row) {
	if row == nil || row.Account == nil {
		return
	}
	if o := t.view.offers[key]; o != nil && o.Withdrawn {
		t.withdrawn[key] = struct{}{}
	}
	if len(t.short.marked[key]) > 0 || len(row.Account.Missing()) > 0 {
		t.short.check[key] = struct{}{}
	}
}

// dueAt is when the row has to be looked at: the wait is over, the lease is, or it may go.
// 0: never.
func dueAt(row *fsm.Row) fsm.Millis {
	switch {
	case row.Ledger == nil:
		return 0
	case row.Ledger.Phase == store.PhaseReserved:
		return row.Ledger.ExpiresAt
	default:
		return row.Ledger.WaitUntil
	}
}

// arrive queues new intents.
func (t *term) arrive(intents []*cluster.Intent) {
	for _, in := range intents {
		t.arrivals++
		write, err := soleDecision(in.Txn)
		if err != nil {
			t.invalid(in, err)
			continue
		}
		if w := &in.Txn.Writes[write]; w.Delete {
			t.leaving = append(t.leaving, &request{key: w.Key, intent: in, write: write})
			continue
		}
		r, err := requestOf(in, write)
		if err != nil {
			t.invalid(in, err)
			continue
		}
		r.arrival = t.arrivals
		t.fresh = append(t.fresh, r)
	}
}

func (t *term) invalid(in *cluster.Intent, err error) {
	t.cfg.Logger.Warn("an intent that validation should have refused", "error", err)
	t.plan.answer(in, fsm.Result{
		Revision: t.state.Revision(),
		Refusal:  &fsm.Refusal{Kind: fsm.RefusedInvalid, Key: err.Error(), Revision: t.state.Revision()},
	})
}

// wake is when to step again: at once where something was left, else at the next deadline.
func (t *term) wake() fsm.Millis {
	if t.plan.left || len(t.fresh) > 0 || len(t.open) > 0 || len(t.leaving) > 0 || len(t.withdrawn) > 0 || len(t.short.check) > 0 || len(t.events.doomed) > 0 {
		return t.now
	}
	next := t.leases.next()
	for _, at := range []fsm.Millis{t.events.nextSweep(), t.nextRefresh()} {
		if next == 0 || at > 0 && at < next {
			next = at
		}
	}
	return next
}

// propose adds a command. Where it decides an intent, its result is the answer.
func (t *term) propose(p proposal, txn *fsm.Txn) {
	t.proposed[txn] = p
	item := cluster.Item{Txn: txn}
	switch {
	case p.leaving != nil:
		item.Intent, item.Partial = p.leaving.intent, p.partial
	case p.chunk != nil:
		item.Intent, item.Partial = p.request.firstIntent(), !p.chunk.last
	case p.request != nil:
		item.Intent = p.request.intent
	}
	t.plan.add(item)
	if p.passed {
		return
	}
	t.plan.keys[p.key] = struct{}{}
	for _, key := range p.parts {
		t.plan.keys[key] = struct{}{}
	}
}

// placer decides on what this Step has left of the view.
func (t *term) placer() *placer {
	return &placer{view: t.view, now: t.now, revision: t.state.Revision(), decision: &t.decision}
}

// removeEvents proposes the end of events that are too old or too many.
func (t *term) removeEvents() {
	t.events.sweep(t.now)
	for _, key := range t.events.take(maxEventRemovals) {
		t.plan.removed++
		t.propose(proposal{key: key}, &fsm.Txn{Writes: []fsm.Write{{Key: key, Delete: true}}})
	}
}

// endWithdrawn releases who holds of a provider that has withdrawn its offer.
func (t *term) endWithdrawn() {
	for _, account := range slices.Sorted(maps.Keys(t.withdrawn)) {
		if t.releaseHolders(account) {
			delete(t.withdrawn, account)
		}
	}
}
