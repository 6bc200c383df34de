package server

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
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
	return map[string]rest.Storage{"reservationbatches": batchREST{objectStore{main, s.dryBatch}}}, nil
}

// Create gives who sends the same batch again the first answer, in a dry run too: the leader does it
// otherwise. Who sends another one under the name is told so.
func (b batchREST) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	created, err := b.objectStore.Create(ctx, obj, validate, options)
	if !apierrors.IsAlreadyExists(err) {
		return created, err
	}
	wanted := obj.(*broker.ReservationBatch)
	stored, getErr := b.Get(ctx, wanted.Name, &metav1.GetOptions{})
	if getErr != nil {
		return nil, err
	}
	switch s := stored.(*broker.ReservationBatch); {
	case s.DeletionTimestamp != nil:
		return nil, otherBatch(wanted.Name, "exists and is being deleted: choose another name, or wait until it is gone")
	case !equality.Semantic.DeepEqual(s.Spec, wanted.Spec):
		return nil, otherBatch(wanted.Name, "exists with another spec (kubectl get -o yaml shows it): choose another name, or delete it first")
	case !dryrun.IsDryRun(options.DryRun):
		return nil, err
	}
	return stored, nil
}

// otherBatch is AlreadyExists in words that say what to do.
func otherBatch(name, what string) error {
	status := apierrors.NewAlreadyExists(broker.Resource("reservationbatches"), name)
	status.ErrStatus.Message = fmt.Sprintf("reservationbatches %q %s", name, what)
	return status
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
