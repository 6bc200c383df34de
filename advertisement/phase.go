package advertisement

import (
	"maps"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// Server conditions of an advertisement.
const (
	conditionDuplicate = "DuplicateAgent"
	conditionShort     = "CapacityShort"
)

// Reasons of a phase.
const (
	reasonHeard      = "AgentHeard"
	reasonSilent     = "AgentSilent"
	reasonNeverHeard = "AgentNeverHeard"
	reasonWithdrawn  = "ProviderWithdrawn"
)

// bringUp compares each touched advertisement with what it should be and proposes the
// difference. Level-triggered: it is the same at the start of a term, after a report and after
// silence.
func (t *term) bringUp() {
	for _, key := range slices.Sorted(maps.Keys(t.touched)) {
		if t.full(reportOverheadBytes) {
			return
		}
		delete(t.touched, key)
		row := t.state.Row(key)
		if row == nil {
			continue
		}
		a := t.agent(key)
		if ledger, changed := t.desired(row, a); changed {
			t.bytes += reportOverheadBytes
			// The guard says that the provider has not changed its mind; phase and conditions
			// are this room's alone, so the ledger part, which every grant moves, needs none.
			t.out.Propose = append(t.out.Propose, cluster.Item{Txn: &fsm.Txn{
				Guards: []fsm.Guard{fsm.GuardSpec(row)},
				Writes: []fsm.Write{{Key: key, Ledger: ledger}},
			}})
			t.cfg.Logger.Info("advertisement", "key", key, "phase", ledger.Reason, "message", ledger.Message)
		}
		t.schedule(key, a)
	}
}

// schedule sets the next look: when silence would make it Stale, or a second agent is forgotten.
func (t *term) schedule(key string, a *agent) {
	var at fsm.Millis
	for _, since := range []fsm.Millis{a.heardAt, a.strangerAt} {
		if end := since + t.staleAfter; since > 0 && end > t.now && (at == 0 || end < at) {
			at = end
		}
	}
	if at > 0 && (a.lookAt == 0 || at < a.lookAt) {
		a.lookAt = at
		t.looks.add(at, key)
	}
}

// desired is the ledger as it should be now.
func (t *term) desired(row *fsm.Row, a *agent) (ledger *fsm.Ledger, changed bool) {
	next := fsm.Ledger{}
	if row.Ledger != nil {
		next = *row.Ledger
	}
	phase, reason, message := t.phase(row, a)
	if phase != next.Phase || next.Closed != (phase != store.PhaseActive) {
		next.Phase, next.Reason, next.Message = phase, reason, message
		next.Closed = phase != store.PhaseActive
		next.GrantedAt = t.now
		changed = true
	}
	duplicate := a.strangerAt > 0 && t.now < a.strangerAt+t.staleAfter
	changed = t.setCondition(&next, fsm.Condition{
		Type: conditionDuplicate, Status: duplicate,
		Reason:  pick(duplicate, "SecondAgentHeard", "OneAgent"),
		Message: pick(duplicate, "an agent of a superseded session still reports for this cluster", "one agent reports for this cluster"),
	}) || changed
	short := shortOf(row.Account)
	changed = t.setCondition(&next, fsm.Condition{
		Type: conditionShort, Status: short != "",
		Reason:  pick(short != "", "PromisedMoreThanThere", "PromisesCovered"),
		Message: pick(short != "", "less is there than is promised of: "+short, "what is promised is there"),
	}) || changed
	if a.heardAt > next.SeenAt && !a.grace {
		next.SeenAt = a.heardAt // known exactly, where something is written anyway
	}
	return &next, changed
}

func (t *term) phase(row *fsm.Row, a *agent) (phase uint8, reason, message string) {
	switch {
	case a.isWithdrawn(row):
		return store.PhaseWithdrawn, reasonWithdrawn, "the provider has withdrawn its offer"
	case a.heardAt > 0 && t.now < a.heardAt+t.staleAfter:
		return store.PhaseActive, reasonHeard, "the agent is heard"
	case row.Account == nil || row.FactsRev == 0:
		return store.PhaseStale, reasonNeverHeard, "no agent has reported yet"
	default:
		return store.PhaseStale, reasonSilent, "no agent was heard for " + t.cfg.StaleAfter.String()
	}
}

// setCondition sets a condition where its status differs. One that was never true is not shown.
func (t *term) setCondition(ledger *fsm.Ledger, set fsm.Condition) (changed bool) {
	i := slices.IndexFunc(ledger.Conditions, func(c fsm.Condition) bool { return c.Type == set.Type })
	if i < 0 && !set.Status || i >= 0 && ledger.Conditions[i].Status == set.Status {
		return false
	}
	set.Since = t.now
	ledger.Conditions = slices.Clone(ledger.Conditions)
	if i < 0 {
		ledger.Conditions = append(ledger.Conditions, set)
	} else {
		ledger.Conditions[i] = set
	}
	return true
}

func conditionIs(ledger *fsm.Ledger, kind string) bool {
	for i := range ledger.Conditions {
		if ledger.Conditions[i].Type == kind {
			return ledger.Conditions[i].Status
		}
	}
	return false
}

// shortOf names the resources of which more is promised than there is.
func shortOf(account *fsm.Account) string {
	if account == nil {
		return ""
	}
	var names []string
	for _, a := range account.HeldOrUsed {
		if account.Short(a.Resource) > 0 {
			names = append(names, a.Resource)
		}
	}
	return strings.Join(names, ", ")
}

func pick(yes bool, a, b string) string {
	if yes {
		return a
	}
	return b
}
