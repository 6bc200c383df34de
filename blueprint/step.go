package blueprint

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// reconcileSome looks at dirty blueprints, in rounds: one that keeps changing can't keep others waiting.
func (t *term) reconcileSome() {
	if len(t.round) == 0 {
		t.round = slices.Sorted(maps.Keys(t.dirty))
		clear(t.dirty)
	}
	for n, looked := 0, 0; n < maxReconciled && looked < maxShares && len(t.round) > 0; n++ {
		owner := t.round[0]
		looked += len(t.owned[owner])
		if !t.reconcile(owner) {
			return // the entry is full: it is looked at again in the next Step
		}
		delete(t.dirty, owner)
		t.round = t.round[1:]
	}
}

// reconcile proposes what brings one blueprint nearer to its spec. False: not all of it had room.
func (t *term) reconcile(owner string) bool {
	start := t.cfg.Clock()
	row := t.state.Row(blueprintKeyOf(owner))
	b := store.BlueprintOf(row)
	shares := make([]*share, 0, len(t.owned[owner]))
	for _, key := range slices.Sorted(maps.Keys(t.owned[owner])) {
		shares = append(shares, t.shares[key])
	}
	if b == nil || ownerKey(row.Key, string(b.UID)) != owner {
		return t.unload(owner, shares)
	}
	m := t.remember(owner)
	r := reconcile(t.cfg.Policy, t.fed, b, shares, t.now)
	var wrote, full bool
	if r.takesBack() { // stored before anything follows from it: forgotten, the version would be brought again
		if wrote, full = t.proposeStatus(owner, row, r, m); full {
			return false
		}
	}
	for i := range r.changes {
		if !t.propose(owner, &r.changes[i], row) {
			return false
		}
	}
	if m.wanting, m.waiting, m.moving = r.wanting(), r.waiting(), r.aggressive(); r.retryAt > 0 {
		m.look(r.retryAt)
	}
	if !wrote {
		if wrote, full = t.proposeStatus(owner, row, r, m); full {
			return false
		}
	}
	if r.moved > 0 {
		t.observe(owner, Observation{Event: EventMoved, Count: r.moved})
	}
	reason := "unchanged"
	if wrote || len(r.changes) > 0 {
		reason = "changed"
	}
	t.noteFailures(owner, m, shares)
	t.observe(owner, Observation{Event: EventReconciled, Reason: reason, Took: t.cfg.Clock().Sub(start)})
	return true
}

// unload takes the slices of a blueprint that is gone off their clusters.
func (t *term) unload(owner string, shares []*share) bool {
	if len(shares) == 0 {
		if t.memory[owner] != nil {
			delete(t.memory, owner)
			t.observe(owner, Observation{Event: EventGone})
		}
		return true
	}
	r := &reconciliation{Policy: t.cfg.Policy, now: t.now, fed: t.fed, blueprint: &broker.Blueprint{}, strays: shares}
	r.instruct()
	for i := range r.changes {
		if !t.propose(owner, &r.changes[i], nil) {
			return false
		}
	}
	if m := t.remember(owner); r.retryAt > 0 {
		m.look(r.retryAt)
	}
	return true
}

func (t *term) propose(owner string, c *change, blueprint *fsm.Row) bool {
	if c.delete && len(c.share.object.Finalizers) > 0 {
		return true // somebody else has to be told first
	}
	txn := c.txn(blueprint, t.now)
	if !t.batch.add(txn) {
		return false
	}
	t.proposed[txn] = proposal{owner: owner}
	return true
}

// proposeStatus writes the status where it differs.
func (t *term) proposeStatus(owner string, row *fsm.Row, r *reconciliation, m *memory) (wrote, full bool) {
	stuck := ""
	if m.refusedAt > 0 && t.now >= m.refusedAt+millis(t.cfg.Timeout) {
		stuck = "refused for " + (time.Duration(t.now-m.refusedAt) * time.Millisecond).Truncate(time.Minute).String() + ": " + m.why
	}
	status := r.report(stuck)
	t.observe(owner, Observation{Event: EventStatus, Desired: status.Desired, Ready: status.Ready})
	facts, err := store.BlueprintFacts(row, status, t.now)
	if err != nil || bytes.Equal(facts, row.Facts) {
		return false, false
	}
	e, tell := event(row, r.blueprint, status, t.now)
	was := &r.blueprint.Status
	news := tell || was.ObservedGeneration != status.ObservedGeneration || !equality.Semantic.DeepEqual(was.History, status.History)
	if next := m.toldAt + statusEvery; next > t.now && !news {
		m.look(next)
		return false, false
	}
	txn := &fsm.Txn{
		Guards: []fsm.Guard{fsm.GuardSpec(row), {Key: row.Key, Part: fsm.PartFacts, Revision: row.FactsRev}},
		Writes: []fsm.Write{{Key: row.Key, Facts: facts}},
	}
	if tell {
		txn.Writes = append(txn.Writes, e)
	}
	if !t.batch.add(txn) {
		return false, true
	}
	var told []Observation
	if status.ActivatedAt != nil && (r.blueprint.Status.ActivatedAt == nil || r.blueprint.Status.ObservedGeneration != status.ObservedGeneration) {
		applied := m.applied
		if applied == 0 {
			applied = fsm.Millis(r.blueprint.CreationTimestamp.UnixMilli())
		}
		told = append(told, Observation{Event: EventActivated, Took: time.Duration(max(0, t.now-applied)) * time.Millisecond})
	}
	t.proposed[txn], m.toldAt = proposal{owner: owner, told: told}, t.now
	return true, false
}

// noteFailures tells of shares that have failed since the last look.
func (t *term) noteFailures(owner string, m *memory, shares []*share) {
	failing := map[string]string{}
	for _, s := range shares {
		if !s.in(broker.SliceFailed) {
			continue
		}
		message := s.status().Message
		if failing[s.row.Key] = message; m.failing[s.row.Key] == message {
			continue
		}
		reason := "Failed"
		if s.has(broker.ConditionRefused) {
			reason = broker.ConditionRefused
		}
		t.cfg.Logger.Warn("a slice has failed", "key", s.row.Key, "reason", reason, "message", message)
		t.observe(owner, Observation{Event: EventFailed, Reason: reason})
	}
	m.failing = failing
}
