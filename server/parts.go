package server

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/registry/rest"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/reservation"
	"github.com/bourse-dev/bourse/store"
)

// The bound parts of a batch or split reservation are ended and extended with the whole. They are
// asked with the object as it is stored, under the guard of the write, so no race gets past them.

func (r reservationREST) boundPart(obj runtime.Object, what, instead string) error {
	v, ok := obj.(*broker.Reservation)
	if !ok || reservation.WholeOf(r.server.cfg.DB.State(), v) == nil {
		return nil
	}
	return apierrors.NewConflict(broker.Resource("reservations"), v.Name, fmt.Errorf(
		"it is a part of the %s %q and can't be %s alone: %s that instead",
		v.Status.PartOf.Kind, v.Status.PartOf.Name, what, instead))
}

// partsGate lets nothing in that has parts until every broker node is of a build that knows them: an
// older one, once it leads, would end one without the others.
type partsGate struct{ db *store.DB }

var _ admission.ValidationInterface = partsGate{}

func (partsGate) Handles(operation admission.Operation) bool {
	return operation == admission.Create || operation == admission.Update
}

func (g partsGate) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if g.db.State().Behaviour() >= fsm.PartsBehaviour {
		return nil
	}
	r, isReservation := a.GetObject().(*broker.Reservation)
	if _, isBatch := a.GetObject().(*broker.ReservationBatch); isBatch || isReservation && r.Spec.Split != nil {
		return apierrors.NewServiceUnavailable("batches and split reservations wait until every broker node runs a build that knows them: " +
			"upgrade the others, and ask again")
	}
	return nil
}

// Delete refuses a bound part that still holds something.
func (r reservationREST) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	return r.Store.Delete(ctx, name, r.unlessBound(validate), options)
}

// DeleteCollection passes over the pieces of a split one that is in the collection, and refuses at any other
// such part.
func (r reservationREST) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc,
	options *metav1.DeleteOptions, list *internalversion.ListOptions,
) (runtime.Object, error) {
	within := r.PredicateFunc(selectorsOf(list))
	validate = r.unlessBound(validate)
	return r.Store.DeleteCollection(ctx, func(ctx context.Context, obj runtime.Object) error {
		part := obj.(*broker.Reservation)
		whole := reservation.WholeOf(r.server.cfg.DB.State(), part)
		if whole != nil && part.Status.PartOf.Kind == broker.KindReservation {
			if taken, err := within.Matches(store.ReservationOf(whole)); err == nil && taken {
				return apierrors.NewNotFound(broker.Resource("reservations"), part.Name)
			}
		}
		return validate(ctx, obj)
	}, options, list)
}

func selectorsOf(list *internalversion.ListOptions) (labels.Selector, fields.Selector) {
	label, field := labels.Everything(), fields.Everything()
	if list != nil && list.LabelSelector != nil {
		label = list.LabelSelector
	}
	if list != nil && list.FieldSelector != nil {
		field = list.FieldSelector
	}
	return label, field
}

func (r reservationREST) unlessBound(validate rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	return func(ctx context.Context, obj runtime.Object) error {
		if v, ok := obj.(*broker.Reservation); ok && v.Status.Phase == broker.ReservationReserved {
			if err := r.boundPart(obj, "deleted", "delete"); err != nil {
				return err
			}
		}
		if validate == nil {
			return nil
		}
		return validate(ctx, obj)
	}
}

// Update refuses another spec of a bound part.
func (r reservationREST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo,
	create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return r.objectStore.Update(ctx, name, info, create, func(ctx context.Context, obj, old runtime.Object) error {
		if !equality.Semantic.DeepEqual(obj.(*broker.Reservation).Spec, old.(*broker.Reservation).Spec) {
			if err := r.boundPart(old, "extended", "extend"); err != nil {
				return err
			}
		}
		if update == nil {
			return nil
		}
		return update(ctx, obj, old)
	}, forceAllowCreate, options)
}
