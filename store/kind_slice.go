package store

import (
	"cmp"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
)

var sliceKind = &Kind{
	Resource:   broker.Resource("slices"),
	Namespaced: true,
	New:        func() runtime.Object { return &broker.Slice{} },
	encode:     encodeSlice,
	stored:     map[string]func(*fsm.Row, string) bool{"spec.clusterID": inBody},
	compose:    composeSlice,
	specChanged: func(before, after runtime.Object) bool {
		return !equality.Semantic.DeepEqual(before.(*broker.Slice).Spec, after.(*broker.Slice).Spec)
	},
}

// SliceKind is how slices are stored.
func SliceKind() *Kind { return sliceKind }

// SliceOf returns the slice of a row "slices/...", see objectOf.
func SliceOf(row *fsm.Row) *broker.Slice {
	return objectOf[*broker.Slice](sliceKind, row)
}

// storedSlice is the body of a slice's row. Frozen: only ever add fields.
type storedSlice struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     broker.SliceSpec  `json:"spec"`
}

// storedSliceStatus is the facts part: what the agent reported. Frozen: only ever add fields.
type storedSliceStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	State              broker.SliceState  `json:"state,omitempty"`
	StateSince         *metav1.MicroTime  `json:"stateSince,omitempty"`
	ReadyInstances     int32              `json:"readyInstances,omitempty"`
	Message            string             `json:"message,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// SliceBody encodes a slice without its status, for the room that writes it in a Txn of its own.
func SliceBody(s *broker.Slice) ([]byte, error) {
	return encodeBody(storedSlice{s.ObjectMeta, s.Spec}, func(s *storedSlice) *metav1.ObjectMeta { return &s.Metadata })
}

func encodeSlice(object runtime.Object, row *fsm.Row) (parts, error) {
	s, ok := object.(*broker.Slice)
	if !ok {
		return parts{}, fmt.Errorf("%T is no Slice", object)
	}
	body, err := SliceBody(s)
	if err != nil {
		return parts{}, err
	}
	facts, err := json.Marshal(storedSliceStatus{
		ObservedGeneration: s.Status.ObservedGeneration,
		State:              s.Status.State,
		StateSince:         s.Status.StateSince,
		ReadyInstances:     s.Status.ReadyInstances,
		Message:            s.Status.Message,
		Conditions:         reportedConditions(s.Status.Conditions, row),
	})
	return parts{body: body, facts: facts}, err
}

func composeSlice(row *fsm.Row) (runtime.Object, error) {
	var stored storedSlice
	if err := json.Unmarshal(row.Body, &stored); err != nil {
		return nil, err
	}
	var facts storedSliceStatus
	if len(row.Facts) > 0 {
		if err := json.Unmarshal(row.Facts, &facts); err != nil {
			return nil, fmt.Errorf("facts: %w", err)
		}
	}
	s := &broker.Slice{ObjectMeta: stored.Metadata, Spec: stored.Spec, Status: broker.SliceStatus{
		ObservedGeneration: facts.ObservedGeneration,
		State:              facts.State,
		StateSince:         facts.StateSince,
		ReadyInstances:     facts.ReadyInstances,
		Message:            facts.Message,
	}}
	var ledger []fsm.Condition
	if row.Ledger != nil {
		s.Status.Fence = int64(row.Ledger.Fence)
		ledger = row.Ledger.Conditions
	}
	s.Status.Conditions = mergeConditions(facts.Conditions, ledger, sliceConditions(s))
	return s, nil
}

// sliceConditions are the kstatus conditions that follow from the state. A slice that is on its way
// out is ready never and stalled only where that fails.
func sliceConditions(s *broker.Slice) []metav1.Condition {
	c := derived{
		message: s.Status.Message, observed: s.Status.ObservedGeneration,
		since: secondsOfMicro(s.Status.StateSince, s.CreationTimestamp),
	}
	switch s.Status.State {
	case broker.SliceActive:
		c.ready = s.Status.ReadyInstances >= s.Spec.Instances
	case broker.SliceFailed:
		c.stalled = true
	}
	return c.conditions(cmp.Or(string(s.Status.State), "Pending"))
}
