package store

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
)

// Conditions that follow from the phase (kstatus).
const (
	conditionReady   = "Ready"
	conditionStalled = "Stalled"
)

var derivedTypes = map[string]bool{conditionReady: true, conditionStalled: true}

// storedFacts is the facts part of rows whose agents report conditions. Frozen: only ever add fields.
type storedFacts struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// noFacts is storedFacts of nothing.
const noFacts = "{}"

func encodeConditions(all []metav1.Condition, row *fsm.Row) ([]byte, error) {
	return json.Marshal(storedFacts{reportedConditions(all, row)})
}

// reportedConditions are those that the server does not own. row is the present one, nil at creation.
func reportedConditions(all []metav1.Condition, row *fsm.Row) (reported []metav1.Condition) {
	for _, c := range all {
		if !derivedTypes[c.Type] && !ledgerOwns(row, c.Type) {
			reported = append(reported, c)
		}
	}
	return reported
}

func ledgerOwns(row *fsm.Row, conditionType string) bool {
	return row != nil && row.Ledger != nil &&
		slices.ContainsFunc(row.Ledger.Conditions, func(c fsm.Condition) bool { return c.Type == conditionType })
}

func decodeConditions(facts []byte) ([]metav1.Condition, error) {
	if len(facts) == 0 {
		return nil, nil
	}
	var stored storedFacts
	if err := json.Unmarshal(facts, &stored); err != nil {
		return nil, fmt.Errorf("facts: %w", err)
	}
	return stored.Conditions, nil
}

// mergeConditions: of one type the ledger's wins, then the derived one, then the agent's.
func mergeConditions(reported []metav1.Condition, ledger []fsm.Condition, derived []metav1.Condition) []metav1.Condition {
	merged := make([]metav1.Condition, 0, len(reported)+len(ledger)+len(derived))
	add := func(c metav1.Condition) {
		if !slices.ContainsFunc(merged, func(m metav1.Condition) bool { return m.Type == c.Type }) {
			merged = append(merged, c)
		}
	}
	for _, c := range ledger {
		add(metav1.Condition{
			Type: c.Type, Status: conditionStatus(c.Status), Reason: c.Reason, Message: c.Message,
			LastTransitionTime: seconds(c.Since), ObservedGeneration: c.Observed,
		})
	}
	for _, c := range derived {
		add(c)
	}
	for _, c := range reported {
		add(c)
	}
	slices.SortFunc(merged, func(a, b metav1.Condition) int { return cmp.Compare(a.Type, b.Type) })
	return merged
}

// derived is what Ready and Stalled are made of.
type derived struct {
	ready, stalled  bool
	reason, message string
	since           metav1.Time
	observed        int64
}

func (d derived) conditions(phase string) []metav1.Condition {
	condition := func(conditionType string, status bool) metav1.Condition {
		return metav1.Condition{
			Type: conditionType, Status: conditionStatus(status), Reason: cmp.Or(d.reason, phase), Message: d.message,
			LastTransitionTime: d.since, ObservedGeneration: d.observed,
		}
	}
	return []metav1.Condition{condition(conditionReady, d.ready), condition(conditionStalled, d.stalled)}
}

// observedGeneration: a spec that changed after the ledger was last written is not observed yet.
func observedGeneration(m *metav1.ObjectMeta, row *fsm.Row) int64 {
	if row.LedgerRev < row.SpecRev {
		return max(0, m.Generation-1)
	}
	return m.Generation
}

func conditionStatus(status bool) metav1.ConditionStatus {
	if status {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// seconds is a state time as most of the API writes it.
func seconds(at fsm.Millis) metav1.Time {
	return metav1.NewTime(time.UnixMilli(int64(at)).UTC().Truncate(time.Second))
}

func secondsOr(at fsm.Millis, unset metav1.Time) metav1.Time {
	if at == 0 {
		return unset
	}
	return seconds(at)
}

// secondsOfMicro is a full time as conditions write it.
func secondsOfMicro(at *metav1.MicroTime, unset metav1.Time) metav1.Time {
	if at == nil {
		return unset
	}
	return metav1.NewTime(at.UTC().Truncate(time.Second))
}

// microTime is a state time in full; nil where there is none.
func microTime(at fsm.Millis) *metav1.MicroTime {
	if at == 0 {
		return nil
	}
	t := metav1.NewMicroTime(time.UnixMilli(int64(at)).UTC())
	return &t
}

// priceText is an hourly price as status shows it.
func priceText(nano int64) string {
	if nano < 0 {
		return unpriced
	}
	return broker.FormatPrice(nano)
}

const unpriced = "Unpriced"
