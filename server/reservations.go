package server

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// What reservations can be selected by.
const (
	fieldRequesterID     = "spec.requesterID"
	fieldTargetClusterID = "status.targetClusterID"
	fieldPhase           = "status.phase"
)

// reservationREST serves reservations. What may be written by whom is ownership's (admission);
// here is what a GET by name may see.
type reservationREST struct {
	objectStore
	server *Server
}

func (reservationREST) ShortNames() []string { return []string{"rsv"} }
func (reservationREST) Categories() []string { return []string{"bourse"} }

// Get refuses an agent that is neither requester nor provider: a GET by name carries no selector.
func (r reservationREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	obj, err := r.Store.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	return obj, mayRead(ctx, obj.(*broker.Reservation))
}

// reservationStatusREST serves reservations/status.
type reservationStatusREST struct {
	*statusStore
}

func (r reservationStatusREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	obj, err := r.store.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	return obj, mayRead(ctx, obj.(*broker.Reservation))
}

func newReservations(s *Server, options generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
	main, err := newStore(kind{
		plural: "reservations", singular: "reservation", group: broker.GroupName,
		newObject: func() runtime.Object { return &broker.Reservation{} },
		newList:   func() runtime.Object { return &broker.ReservationList{} },
		strategy: reservationStrategy{
			newStrategy(s.words.scheme, true, resetFields(broker.SchemeGroupVersion, fieldpath.MakePathOrDie("status"))), s,
		},
		table:  reservationTable,
		fields: reservationFields,
	}, options)
	if err != nil {
		return nil, err
	}
	status := newStatusStore(main, reservationStatusStrategy{newStrategy(s.words.scheme, true,
		resetFields(broker.SchemeGroupVersion, fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("metadata")))})
	return map[string]rest.Storage{
		"reservations":         reservationREST{objectStore{main, s.dryReservation}, s},
		"reservations/status":  reservationStatusREST{status},
		"reservations/explain": explainREST{server: s, store: main},
	}, nil
}

func reservationFields(obj runtime.Object) fields.Set {
	r := obj.(*broker.Reservation)
	return fields.Set{
		fieldRequesterID:     r.Spec.RequesterID,
		fieldTargetClusterID: r.Status.TargetClusterID,
		fieldPhase:           string(r.Status.Phase),
	}
}

func metaOf(obj runtime.Object) (metav1.Object, error) { return meta.Accessor(obj) }

// reservationStrategy is for the object without its status.
type reservationStrategy struct {
	strategy
	server *Server
}

func (reservationStrategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	r := obj.(*broker.Reservation)
	r.Status = broker.ReservationStatus{}
	r.Generation = 1
}

func (reservationStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	r, o := obj.(*broker.Reservation), old.(*broker.Reservation)
	r.Status = *o.Status.DeepCopy()
	raiseGeneration(r, o, r.Spec, o.Spec)
}

func (reservationStrategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return broker.ValidateReservation(obj.(*broker.Reservation))
}

func (reservationStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return broker.ValidateReservationUpdate(obj.(*broker.Reservation), old.(*broker.Reservation))
}

func (s reservationStrategy) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	return s.server.unknownClusters(&obj.(*broker.Reservation).Spec)
}

func (s reservationStrategy) WarningsOnUpdate(_ context.Context, obj, old runtime.Object) []string {
	spec, before := obj.(*broker.Reservation).Spec, old.(*broker.Reservation).Spec
	if spec.RequesterID == before.RequesterID && spec.TargetClusterID == before.TargetClusterID {
		return nil
	}
	return s.server.unknownClusters(&spec)
}

// unknownClusters: a requester need not advertise anything, so it is a warning and not a fault.
func (s *Server) unknownClusters(spec *broker.ReservationSpec) []string {
	state := s.cfg.DB.State()
	var warnings []string
	if state.Row(broker.AdvertisementKey(spec.RequesterID)) == nil {
		warnings = append(warnings, fmt.Sprintf("spec.requesterID: no cluster %q advertises here; its agent won't be told until it joins", spec.RequesterID))
	}
	if spec.TargetClusterID != "" && state.Row(broker.AdvertisementKey(spec.TargetClusterID)) == nil {
		warnings = append(warnings, fmt.Sprintf("spec.targetClusterID: no cluster %q advertises here", spec.TargetClusterID))
	}
	return warnings
}

// reservationStatusStrategy lets agents' conditions through and nothing else.
type reservationStatusStrategy struct{ strategy }

func (reservationStatusStrategy) PrepareForCreate(context.Context, runtime.Object) {}

func (reservationStatusStrategy) Validate(context.Context, runtime.Object) field.ErrorList {
	return noFaults()
}

func (reservationStatusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	r, o := obj.(*broker.Reservation), old.(*broker.Reservation)
	keepMeta(&r.ObjectMeta, &o.ObjectMeta)
	r.Spec = *o.Spec.DeepCopy()
	conditions := agentConditions(r.Status.Conditions, o.Status.Conditions)
	r.Status = *o.Status.DeepCopy()
	r.Status.Conditions = conditions
}

func (reservationStatusStrategy) ValidateUpdate(_ context.Context, obj, _ runtime.Object) field.ErrorList {
	return broker.ValidateReservationStatusUpdate(obj.(*broker.Reservation))
}

// keepMeta: a status write changes no metadata but who manages which field.
func keepMeta(updated, old *metav1.ObjectMeta) {
	managed, version := updated.ManagedFields, updated.ResourceVersion
	*updated = *old.DeepCopy()
	updated.ManagedFields, updated.ResourceVersion = managed, version
}

// agentConditions are the exchange's own as they are stored, and all others as the agent wants them.
func agentConditions(wanted, stored []metav1.Condition) []metav1.Condition {
	var conditions []metav1.Condition
	for _, c := range stored {
		if broker.ServerConditionTypes[c.Type] {
			conditions = append(conditions, c)
		}
	}
	for _, c := range wanted {
		if !broker.ServerConditionTypes[c.Type] {
			conditions = append(conditions, c)
		}
	}
	return conditions
}
