package store

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
)

var reservationKind = &Kind{
	Resource:         broker.Resource("reservations"),
	Namespaced:       true,
	New:              func() runtime.Object { return &broker.Reservation{} },
	encode:           encodeReservation,
	compose:          composeReservation,
	reduce:           reduceReservation,
	specGuardsLedger: true, // a spec is immutable but while Pending
	specChanged: func(before, after runtime.Object) bool {
		return !equality.Semantic.DeepEqual(before.(*broker.Reservation).Spec, after.(*broker.Reservation).Spec)
	},
	stored: map[string]func(*fsm.Row, string) bool{
		"spec.requesterID": inBody,
		"status.phase":     func(row *fsm.Row, value string) bool { return string(PhaseOf(row)) == value },
		"status.targetClusterID": func(row *fsm.Row, value string) bool {
			return value == "" || row.Ledger != nil && row.Ledger.Target == value
		},
	},
	deletionGuardsLedger: func(object runtime.Object) bool { return len(object.(*broker.Reservation).Status.Pieces) > 0 },
}

// ReservationKind is how reservations are stored.
func ReservationKind() *Kind { return reservationKind }

// ReservationOf returns the reservation of a row "reservations/...", see objectOf.
func ReservationOf(row *fsm.Row) *broker.Reservation {
	return objectOf[*broker.Reservation](reservationKind, row)
}

// storedReservation is the body of a reservation's row. Frozen: only ever add fields.
type storedReservation struct {
	Metadata metav1.ObjectMeta      `json:"metadata"`
	Spec     broker.ReservationSpec `json:"spec"`
	Pieces   []broker.Piece         `json:"pieces,omitempty"` // the leader's, as PartOf
	PartOf   *broker.PartOf         `json:"partOf,omitempty"`
}

func encodeReservation(object runtime.Object, row *fsm.Row) (parts, error) {
	r, ok := object.(*broker.Reservation)
	if !ok {
		return parts{}, fmt.Errorf("%T is no Reservation", object)
	}
	body, err := ReservationBody(r)
	if err != nil {
		return parts{}, err
	}
	facts, err := encodeConditions(r.Status.Conditions, row)
	return parts{body: body, facts: facts}, err
}

// ReservationBody encodes a reservation for a room that makes one of its own, as a part of another
// object, or changes which parts one has.
func ReservationBody(r *broker.Reservation) ([]byte, error) {
	return encodeBody(storedReservation{r.ObjectMeta, r.Spec, r.Status.Pieces, r.Status.PartOf},
		func(s *storedReservation) *metav1.ObjectMeta { return &s.Metadata })
}

// DecodeReservation reads a body that no row has yet, with what of its status is in there.
func DecodeReservation(body []byte) (*broker.Reservation, error) {
	var stored storedReservation
	if err := json.Unmarshal(body, &stored); err != nil {
		return nil, err
	}
	r := &broker.Reservation{ObjectMeta: stored.Metadata, Spec: stored.Spec}
	r.Status.Pieces, r.Status.PartOf = stored.Pieces, stored.PartOf
	return r, nil
}

// PartOf reads of a reservation's row only what it is a part of, and not the record of the decision. nil: of nothing,
// there is no row, or its body is none that this package wrote.
func PartOf(row *fsm.Row) *broker.PartOf {
	if row == nil {
		return nil
	}
	var stored struct {
		PartOf *broker.PartOf `json:"partOf"`
	}
	if json.Unmarshal(row.Body, &stored) != nil {
		return nil
	}
	return stored.PartOf
}

func composeReservation(row *fsm.Row) (runtime.Object, error) {
	r, err := DecodeReservation(row.Body)
	if err != nil {
		return nil, err
	}
	l := row.Ledger
	if l == nil {
		l = &fsm.Ledger{}
	}
	r.Status.Phase = PhaseText(l.Phase)
	r.Status.TargetClusterID = l.Target
	r.Status.TargetClusterEndpoint = l.Endpoint
	r.Status.ReservedAt = microTime(l.GrantedAt)
	r.Status.ExpiresAt = microTime(l.ExpiresAt)
	r.Status.Fence = int64(l.Fence)
	r.Status.Message = l.Message
	if l.GrantedAt > 0 {
		r.Status.PricePerHour = priceText(l.PriceNano)
	}
	if len(l.Decision) > 0 {
		decision, err := allocation.DecodeDecision(l.Decision)
		if err != nil { // the record explains, nothing depends on it: the request stays readable
			decision = broker.Decision{Policy: "unreadable: " + err.Error()}
		}
		r.Status.Decision = &decision
	}
	reported, err := decodeConditions(row.Facts)
	if err != nil {
		return nil, err
	}
	r.Status.Conditions = mergeConditions(reported, l.Conditions, reservationConditions(r, row, l))
	return r, nil
}

// reservationConditions are the kstatus conditions that follow from the phase.
func reservationConditions(r *broker.Reservation, row *fsm.Row, l *fsm.Ledger) []metav1.Condition {
	c := derived{reason: l.Reason, message: l.Message, observed: observedGeneration(&r.ObjectMeta, row)}
	c.since = r.CreationTimestamp
	switch r.Status.Phase {
	case broker.ReservationReserved:
		c.ready, c.since = true, secondsOr(l.GrantedAt, c.since)
	case broker.ReservationFailed:
		c.stalled, c.since = true, secondsOr(l.EndedAt, c.since)
	case broker.ReservationReleased:
		c.since = secondsOr(l.EndedAt, c.since)
	}
	return c.conditions(string(r.Status.Phase))
}

// reduceReservation: rivals' figures are not the agents' business. The message of a request that
// was not granted names them; that of a granted one speaks of the grant.
func reduceReservation(object runtime.Object) {
	r := object.(*broker.Reservation)
	r.Status.Decision = nil
	if r.Status.Phase != broker.ReservationPending && r.Status.Phase != broker.ReservationFailed {
		return
	}
	r.Status.Message = ""
	for i := range r.Status.Conditions {
		if c := &r.Status.Conditions[i]; derivedTypes[c.Type] {
			c.Message = ""
		}
	}
}
