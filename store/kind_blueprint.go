package store

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
)

var blueprintKind = &Kind{
	Resource:   broker.Resource("blueprints"),
	Namespaced: true,
	New:        func() runtime.Object { return &broker.Blueprint{} },
	encode:     encodeBlueprint,
	compose:    composeBlueprint,
	specChanged: func(before, after runtime.Object) bool {
		return !equality.Semantic.DeepEqual(before.(*broker.Blueprint).Spec, after.(*broker.Blueprint).Spec)
	},
}

// BlueprintKind is how blueprints are stored.
func BlueprintKind() *Kind { return blueprintKind }

// BlueprintOf returns the blueprint of a row "blueprints/...", see objectOf.
func BlueprintOf(row *fsm.Row) *broker.Blueprint {
	return objectOf[*broker.Blueprint](blueprintKind, row)
}

// storedBlueprint is the body of a blueprint's row. Frozen: only ever add fields.
type storedBlueprint struct {
	Metadata metav1.ObjectMeta    `json:"metadata"`
	Spec     broker.BlueprintSpec `json:"spec"`
}

// storedBlueprintStatus is the facts part, without the plan and the conditions that follow from the
// phase. Frozen: only ever add fields.
type storedBlueprintStatus broker.BlueprintStatus

// BlueprintFacts encodes a blueprint's status for the room that writes it in a Txn of its own. row
// is the present one: phaseSince is kept while the phase is, otherwise it is now. So the same
// status gives the same bytes, and what was not changed need not be written.
func BlueprintFacts(row *fsm.Row, status *broker.BlueprintStatus, now fsm.Millis) ([]byte, error) {
	stored := storedBlueprintStatus(*status)
	stored.Plan = nil
	stored.Conditions = reportedConditions(status.Conditions, row)
	stored.PhaseSince = microTime(now)
	if b := BlueprintOf(row); b != nil && b.Status.Phase == status.Phase && b.Status.PhaseSince != nil {
		stored.PhaseSince = b.Status.PhaseSince
	}
	return json.Marshal(stored)
}

// encodeBlueprint stores no facts: they are the room's, and no user writes a status.
func encodeBlueprint(object runtime.Object, _ *fsm.Row) (parts, error) {
	b, ok := object.(*broker.Blueprint)
	if !ok {
		return parts{}, fmt.Errorf("%T is no Blueprint", object)
	}
	body, err := encodeBody(storedBlueprint{b.ObjectMeta, b.Spec}, func(s *storedBlueprint) *metav1.ObjectMeta { return &s.Metadata })
	return parts{body: body}, err
}

func composeBlueprint(row *fsm.Row) (runtime.Object, error) {
	var stored storedBlueprint
	if err := json.Unmarshal(row.Body, &stored); err != nil {
		return nil, err
	}
	b := &broker.Blueprint{ObjectMeta: stored.Metadata, Spec: stored.Spec}
	if len(row.Facts) > 0 {
		var facts storedBlueprintStatus
		if err := json.Unmarshal(row.Facts, &facts); err != nil {
			return nil, fmt.Errorf("facts: %w", err)
		}
		b.Status = broker.BlueprintStatus(facts)
	}
	if b.Status.Phase == "" {
		b.Status.Phase = broker.BlueprintPending
	}
	var ledger []fsm.Condition
	if row.Ledger != nil {
		ledger = row.Ledger.Conditions
	}
	b.Status.Conditions = mergeConditions(b.Status.Conditions, ledger, blueprintConditions(b))
	return b, nil
}

// blueprintConditions are the kstatus conditions that follow from the phase.
func blueprintConditions(b *broker.Blueprint) []metav1.Condition {
	return derived{
		ready: b.Status.Phase == broker.BlueprintActive, stalled: b.Status.Phase == broker.BlueprintDegraded,
		message: b.Status.Message, observed: b.Status.ObservedGeneration,
		since: secondsOfMicro(b.Status.PhaseSince, b.CreationTimestamp),
	}.conditions(string(b.Status.Phase))
}
