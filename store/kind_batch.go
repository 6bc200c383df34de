package store

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
)

var batchKind = &Kind{
	Resource:         broker.Resource("reservationbatches"),
	Namespaced:       true,
	New:              func() runtime.Object { return &broker.ReservationBatch{} },
	encode:           encodeBatch,
	compose:          composeBatch,
	reduce:           reduceBatch,
	createdInSteps:   true,
	specGuardsLedger: true, // a spec is immutable but while Reserved
	specChanged: func(before, after runtime.Object) bool {
		return !equality.Semantic.DeepEqual(before.(*broker.ReservationBatch).Spec, after.(*broker.ReservationBatch).Spec)
	},
}

// BatchKind is how batches are stored: the request is the body, what became of the items the facts.
func BatchKind() *Kind { return batchKind }

// BatchOf returns the batch of a row "reservationbatches/...", see objectOf.
func BatchOf(row *fsm.Row) *broker.ReservationBatch {
	return objectOf[*broker.ReservationBatch](batchKind, row)
}

// storedBatch is the body of a batch's row. Frozen: only ever add fields.
type storedBatch struct {
	Metadata metav1.ObjectMeta           `json:"metadata"`
	Spec     broker.ReservationBatchSpec `json:"spec"`
}

// storedResults is the facts part of a batch's row. Frozen: only ever add fields.
type storedResults struct {
	Results []storedResult `json:"results"`
}

// storedResult is one item's; they are in the order of the items. A thousand are written with every
// chunk of a batch, so they are short.
type storedResult struct {
	Phase   uint8  `json:"p,omitempty"` // 0: undecided
	Target  string `json:"t,omitempty"`
	Message string `json:"m,omitempty"`
}

func encodeBatch(object runtime.Object, row *fsm.Row) (parts, error) {
	b, ok := object.(*broker.ReservationBatch)
	if !ok {
		return parts{}, fmt.Errorf("%T is no ReservationBatch", object)
	}
	body, err := BatchBody(b)
	p := parts{body: body}
	if row != nil {
		p.facts = row.Facts // the leader's: no write of a user's changes them
	}
	return p, err
}

// BatchBody encodes the body of a batch's row.
func BatchBody(b *broker.ReservationBatch) ([]byte, error) {
	return encodeBody(storedBatch{b.ObjectMeta, b.Spec}, func(s *storedBatch) *metav1.ObjectMeta { return &s.Metadata })
}

// EncodeBatchResults is the facts part for results of all items, in the order of the items; one
// without a phase is undecided.
func EncodeBatchResults(results []broker.BatchResult) []byte {
	stored := storedResults{Results: make([]storedResult, len(results))}
	for i := range results {
		r := &results[i]
		stored.Results[i] = storedResult{Phase: reservationNumbers[r.Phase], Target: r.TargetClusterID, Message: r.Message}
	}
	facts, err := json.Marshal(stored)
	if err != nil {
		panic("store: results of plain strings can't be encoded: " + err.Error())
	}
	return facts
}

// BatchResults of all items of a batch's row, in the order of the items; undecided ones without a phase.
func BatchResults(row *fsm.Row, items []broker.BatchItem) ([]broker.BatchResult, error) {
	results := make([]broker.BatchResult, len(items))
	for i := range items {
		results[i].Name = items[i].Name
	}
	if len(row.Facts) == 0 {
		return results, nil
	}
	var stored storedResults
	if err := json.Unmarshal(row.Facts, &stored); err != nil {
		return nil, fmt.Errorf("facts: %w", err)
	}
	for i := range min(len(items), len(stored.Results)) {
		s := &stored.Results[i]
		if s.Phase != 0 {
			results[i].Phase = PhaseText(s.Phase)
		}
		results[i].TargetClusterID, results[i].Message = s.Target, s.Message
	}
	return results, nil
}

// DecodeBatch reads a body that no row has yet.
func DecodeBatch(body []byte) (*broker.ReservationBatch, error) {
	var stored storedBatch
	if err := json.Unmarshal(body, &stored); err != nil {
		return nil, err
	}
	return &broker.ReservationBatch{ObjectMeta: stored.Metadata, Spec: stored.Spec}, nil
}

func composeBatch(row *fsm.Row) (runtime.Object, error) {
	b, err := DecodeBatch(row.Body)
	if err != nil {
		return nil, err
	}
	results, err := BatchResults(row, b.Spec.Items)
	if err != nil {
		return nil, err
	}
	b.Status.Counts = CountBatch(results)
	for _, r := range results {
		if r.Phase != "" {
			b.Status.Results = append(b.Status.Results, r)
		}
	}
	l := row.Ledger
	if l == nil {
		l = &fsm.Ledger{Message: "0/" + fmt.Sprint(len(results)) + " decided"}
	}
	b.Status.Phase = PhaseOfBatch(b.Status.Counts)
	b.Status.ReservedAt, b.Status.ExpiresAt = microTime(l.GrantedAt), microTime(l.ExpiresAt)
	b.Status.Message = l.Message
	b.Status.Conditions = mergeConditions(nil, l.Conditions, batchConditions(b, row, l))
	return b, nil
}

func batchConditions(b *broker.ReservationBatch, row *fsm.Row, l *fsm.Ledger) []metav1.Condition {
	c := derived{reason: l.Reason, message: l.Message, observed: observedGeneration(&b.ObjectMeta, row)}
	c.since = secondsOr(max(l.GrantedAt, l.EndedAt), b.CreationTimestamp)
	switch b.Status.Phase {
	case broker.BatchReserved:
		c.ready = true
	case broker.BatchPartial, broker.BatchFailed:
		c.stalled = true
	}
	return c.conditions(string(b.Status.Phase))
}

// reduceBatch as reduceReservation. How many of the items are in which phase stays.
func reduceBatch(object runtime.Object) {
	b := object.(*broker.ReservationBatch)
	b.Status.Message = withoutReason(b.Status.Message)
	for i := range b.Status.Results {
		if r := &b.Status.Results[i]; r.Phase == broker.ReservationPending || r.Phase == broker.ReservationFailed {
			r.Message = ""
		}
	}
	for i := range b.Status.Conditions {
		if c := &b.Status.Conditions[i]; derivedTypes[c.Type] {
			c.Message = withoutReason(c.Message)
		}
	}
}

// withoutReason of "0/3: tokyo lacks nvidia.com/gpu" is "0/3".
func withoutReason(message string) string {
	counts, _, _ := strings.Cut(message, ": ")
	return counts
}

// CountBatch counts results by phase.
func CountBatch(results []broker.BatchResult) broker.BatchCounts {
	c := broker.BatchCounts{Items: int32(len(results))}
	for i := range results {
		switch results[i].Phase {
		case broker.ReservationPending:
			c.Pending++
		case broker.ReservationReserved:
			c.Reserved++
		case broker.ReservationReleased:
			c.Released++
		case broker.ReservationFailed:
			c.Failed++
		}
	}
	return c
}

// PhaseOfBatch is the phase of a batch with so many items in each phase.
func PhaseOfBatch(c broker.BatchCounts) broker.BatchPhase {
	switch {
	case c.Pending > 0 || c.Pending+c.Reserved+c.Released+c.Failed < c.Items:
		return broker.BatchPending
	case c.Reserved == c.Items:
		return broker.BatchReserved
	case c.Reserved > 0:
		return broker.BatchPartial
	case c.Released > 0:
		return broker.BatchReleased
	default:
		return broker.BatchFailed
	}
}
