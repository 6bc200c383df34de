package server

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/reservation"
)

// batchREST serves batches. They have no status subresource: nobody but the exchange writes one.
type batchREST struct{ objectStore }

func (batchREST) ShortNames() []string { return []string{"rsvb"} }
func (batchREST) Categories() []string { return []string{"bourse"} }

func newBatches(s *Server, options generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
	main, err := newStore(kind{
		plural: "reservationbatches", singular: "reservationbatch", group: broker.GroupName,
		newObject: func() runtime.Object { return &broker.ReservationBatch{} },
		newList:   func() runtime.Object { return &broker.ReservationBatchList{} },
		strategy: batchStrategy{
			newStrategy(s.words.scheme, true, resetFields(broker.SchemeGroupVersion, fieldpath.MakePathOrDie("status"))), s,
		},
		table: batchTable,
		fields: func(obj runtime.Object) fields.Set {
			return fields.Set{fieldPhase: string(obj.(*broker.ReservationBatch).Status.Phase)}
		},
	}, options)
	if err != nil {
		return nil, err
	}
	dry := batchDryRun{s}
	main.BeginCreate, main.AfterCreate, main.AfterUpdate = dry.beginCreate, dry.afterCreate, dry.afterUpdate
	return map[string]rest.Storage{"reservationbatches": batchREST{objectStore{main}}}, nil
}

// batchDryRun is dryRun for batches.
type batchDryRun struct{ server *Server }

// beginCreate refuses what the leader would refuse: an atomic batch of which a name is taken.
func (d batchDryRun) beginCreate(_ context.Context, obj runtime.Object, options *metav1.CreateOptions) (registry.FinishFunc, error) {
	finish := func(context.Context, bool) {}
	b := obj.(*broker.ReservationBatch)
	if options == nil || !dryrun.IsDryRun(options.DryRun) || !b.Spec.Atomic {
		return finish, nil
	}
	state := d.server.cfg.DB.State()
	for i := range b.Spec.Items {
		name := broker.ItemReservationName(b.Name, b.Spec.Items[i].Name)
		if row := state.Row(broker.ReservationKey(b.Namespace, name)); row != nil {
			return nil, apierrors.NewConflict(broker.Resource("reservationbatches"), b.Name, fmt.Errorf(
				"the name of a part is taken: reservations %q exists (as of revision %d); nothing was reserved", name, row.Revision()))
		}
	}
	return finish, nil
}

func (d batchDryRun) afterCreate(obj runtime.Object, options *metav1.CreateOptions) {
	if options != nil && dryrun.IsDryRun(options.DryRun) {
		d.decide(obj)
	}
}

func (d batchDryRun) afterUpdate(obj runtime.Object, options *metav1.UpdateOptions) {
	if options != nil && dryrun.IsDryRun(options.DryRun) {
		d.decide(obj)
	}
}

func (d batchDryRun) decide(obj runtime.Object) {
	b, state := obj.(*broker.ReservationBatch), d.server.cfg.DB.State()
	b.Status = reservation.DecideBatch(state, b, now(state))
}

type batchStrategy struct {
	strategy
	server *Server
}

func (batchStrategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	b := obj.(*broker.ReservationBatch)
	b.Status = broker.ReservationBatchStatus{}
	b.Generation = 1
}

func (batchStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	b, o := obj.(*broker.ReservationBatch), old.(*broker.ReservationBatch)
	b.Status = *o.Status.DeepCopy()
	raiseGeneration(b, o, b.Spec, o.Spec)
}

func (batchStrategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return broker.ValidateReservationBatch(obj.(*broker.ReservationBatch))
}

func (batchStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return broker.ValidateReservationBatchUpdate(obj.(*broker.ReservationBatch), old.(*broker.ReservationBatch))
}

// WarningsOnCreate says once for each name what no cluster advertises.
func (s batchStrategy) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	var warnings []string
	said := map[string]bool{}
	items := obj.(*broker.ReservationBatch).Spec.Items
	for i := range items {
		for _, warning := range s.server.unknownClusters(&items[i].Spec) {
			if warning = fmt.Sprintf("spec.items: %s", warning); !said[warning] && len(warnings) < maxBatchWarnings {
				said[warning] = true
				warnings = append(warnings, warning)
			}
		}
	}
	return warnings
}
