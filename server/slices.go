package server

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// fieldBlueprint selects slices, beside spec.clusterID.
const fieldBlueprint = "spec.blueprint"

// sliceREST serves slices. The leader's room makes them: nobody else creates one.
type sliceREST struct{ objectStore }

func (sliceREST) Categories() []string { return []string{"bourse"} }

// Get refuses an agent of another cluster: a GET by name carries no selector.
func (r sliceREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	obj, err := r.Store.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	return obj, mayReadSlice(ctx, obj.(*broker.Slice))
}

func (sliceREST) Create(context.Context, runtime.Object, rest.ValidateObjectFunc, *metav1.CreateOptions) (runtime.Object, error) {
	return nil, apierrors.NewMethodNotSupported(broker.Resource("slices"), "create")
}

// Update never creates, not by server-side apply either.
func (r sliceREST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo,
	create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return r.objectStore.Update(ctx, name, info, create, update, false, options)
}

// sliceStatusREST serves slices/status.
type sliceStatusREST struct{ *statusStore }

func (r sliceStatusREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	obj, err := r.store.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	return obj, mayReadSlice(ctx, obj.(*broker.Slice))
}

// Update refuses an agent of another cluster before its patch is looked at: what a test in it finds would tell it of
// the slice.
func (r sliceStatusREST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo,
	create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, force bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return r.statusStore.Update(ctx, name, readableSlice{info}, create, update, force, options)
}

// readableSlice applies what is written only to a slice that the user may read.
type readableSlice struct{ rest.UpdatedObjectInfo }

func (u readableSlice) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	if s, ok := old.(*broker.Slice); ok && s.Name != "" {
		if err := mayReadSlice(ctx, s); err != nil {
			return nil, err
		}
	}
	return u.UpdatedObjectInfo.UpdatedObject(ctx, old)
}

func newSlices(s *Server, options generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
	main, err := newStore(kind{
		plural: "slices", singular: "slice", group: broker.GroupName,
		newObject: func() runtime.Object { return &broker.Slice{} },
		newList:   func() runtime.Object { return &broker.SliceList{} },
		strategy: sliceStrategy{newStrategy(s.words.scheme, true,
			resetFields(broker.SchemeGroupVersion, fieldpath.MakePathOrDie("status")))},
		table: sliceTable,
		fields: func(obj runtime.Object) fields.Set {
			spec := &obj.(*broker.Slice).Spec
			return fields.Set{fieldClusterID: spec.ClusterID, fieldBlueprint: spec.Blueprint}
		},
	}, options)
	if err != nil {
		return nil, err
	}
	status := newStatusStore(main, sliceStatusStrategy{newStrategy(s.words.scheme, true, resetFields(broker.SchemeGroupVersion,
		fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("metadata"),
		fieldpath.MakePathOrDie("status", "stateSince"), fieldpath.MakePathOrDie("status", "fence"))), s})
	return map[string]rest.Storage{
		"slices":        sliceREST{objectStore{Store: main}},
		"slices/status": sliceStatusREST{status},
	}, nil
}

// sliceStrategy lets an administrator change a slice by hand. The room sees it and puts it right.
type sliceStrategy struct{ strategy }

func (sliceStrategy) PrepareForCreate(context.Context, runtime.Object) {}

func (sliceStrategy) Validate(context.Context, runtime.Object) field.ErrorList { return noFaults() }

func (sliceStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	s, o := obj.(*broker.Slice), old.(*broker.Slice)
	s.Status = *o.Status.DeepCopy()
	raiseGeneration(s, o, s.Spec, o.Spec)
}

func (sliceStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return broker.ValidateSliceUpdate(obj.(*broker.Slice), old.(*broker.Slice))
}

// sliceStatusStrategy lets the agent's report through; since when, and the fence, are the exchange's.
type sliceStatusStrategy struct {
	strategy
	server *Server
}

func (sliceStatusStrategy) PrepareForCreate(context.Context, runtime.Object) {}

func (sliceStatusStrategy) Validate(context.Context, runtime.Object) field.ErrorList {
	return noFaults()
}

func (s sliceStatusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	updated, o := obj.(*broker.Slice), old.(*broker.Slice)
	keepMeta(&updated.ObjectMeta, &o.ObjectMeta)
	updated.Spec = *o.Spec.DeepCopy()
	updated.Status.Conditions = agentConditions(updated.Status.Conditions, o.Status.Conditions)
	updated.Status.Fence = o.Status.Fence
	updated.Status.StateSince = o.Status.StateSince
	// A slice that failed again after another instruction has failed since then: backoff counts from it.
	again := updated.Status.State == broker.SliceFailed && updated.Status.ObservedGeneration != o.Status.ObservedGeneration
	if updated.Status.State != o.Status.State || again {
		since := metav1.NewMicroTime(time.UnixMilli(int64(now(s.server.cfg.DB.State()))).UTC())
		updated.Status.StateSince = &since
	}
}

func (sliceStatusStrategy) ValidateUpdate(_ context.Context, obj, _ runtime.Object) field.ErrorList {
	return broker.ValidateSliceStatusUpdate(obj.(*broker.Slice))
}
