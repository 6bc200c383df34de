package server

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
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
)

// blueprintREST serves blueprints. The generic registry never lets a dry run reach storage, where a real
// write meets the leader's room: what that would do is filled in here.
type blueprintREST struct {
	objectStore
	server *Server
}

func (r blueprintREST) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	ctx, planning := withPlanning(ctx)
	out, err := r.objectStore.Create(ctx, obj, validate, options)
	if err == nil && options != nil && dryrun.IsDryRun(options.DryRun) {
		r.server.fill(ctx, planning, out.(*broker.Blueprint))
	}
	return out, err
}

func (r blueprintREST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo,
	create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	ctx, planning := withPlanning(ctx)
	out, created, err := r.objectStore.Update(ctx, name, info, create, update, forceAllowCreate, options)
	if err == nil && options != nil && dryrun.IsDryRun(options.DryRun) {
		r.server.fill(ctx, planning, out.(*broker.Blueprint))
	}
	return out, created, err
}

func (blueprintREST) ShortNames() []string { return []string{"bp"} }
func (blueprintREST) Categories() []string { return []string{"bourse"} }

// blueprintStatusREST serves blueprints/status, to be read only: the room writes it in Txns of its own.
type blueprintStatusREST struct{ store *registry.Store }

func (r blueprintStatusREST) New() runtime.Object { return r.store.New() }
func (blueprintStatusREST) Destroy()              {} // the storage is the main store's

func (r blueprintStatusREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return r.store.Get(ctx, name, options)
}

func newBlueprints(s *Server, options generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
	main, err := newStore(kind{
		plural: "blueprints", singular: "blueprint", group: broker.GroupName,
		newObject: func() runtime.Object { return &broker.Blueprint{} },
		newList:   func() runtime.Object { return &broker.BlueprintList{} },
		strategy: blueprintStrategy{
			newStrategy(s.words.scheme, true, resetFields(broker.SchemeGroupVersion, fieldpath.MakePathOrDie("status"))), s,
		},
		table: blueprintTable,
		fields: func(obj runtime.Object) fields.Set {
			return fields.Set{fieldPhase: string(obj.(*broker.Blueprint).Status.Phase)}
		},
	}, options)
	if err != nil {
		return nil, err
	}
	return map[string]rest.Storage{
		"blueprints":        blueprintREST{objectStore{Store: main}, s},
		"blueprints/status": blueprintStatusREST{main},
	}, nil
}

// blueprintStrategy is for the object without its status.
type blueprintStrategy struct {
	strategy
	server *Server
}

func (blueprintStrategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	b := obj.(*broker.Blueprint)
	b.Status = broker.BlueprintStatus{}
	b.Generation = 1
}

func (blueprintStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	b, o := obj.(*broker.Blueprint), old.(*broker.Blueprint)
	b.Status = *o.Status.DeepCopy()
	raiseGeneration(b, o, b.Spec, o.Spec)
}

func (s blueprintStrategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	b := obj.(*broker.Blueprint)
	errs := append(broker.ValidateBlueprint(b), s.unmapped(b, nil)...)
	if len(errs) == 0 {
		errs = s.notFitting(ctx, b)
	}
	return errs
}

// ValidateUpdate asks whether it fits only where the spec changed: a label can always be set.
func (s blueprintStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	b, o := obj.(*broker.Blueprint), old.(*broker.Blueprint)
	errs := append(broker.ValidateBlueprint(b), s.unmapped(b, o)...)
	if len(errs) == 0 && !equality.Semantic.DeepEqual(b.Spec, o.Spec) {
		errs = s.notFitting(ctx, b)
	}
	return errs
}

func (s blueprintStrategy) WarningsOnCreate(ctx context.Context, obj runtime.Object) []string {
	return s.doubts(ctx, obj.(*broker.Blueprint))
}

func (s blueprintStrategy) WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string {
	b := obj.(*broker.Blueprint)
	if equality.Semantic.DeepEqual(b.Spec, old.(*broker.Blueprint).Spec) {
		return nil
	}
	return s.doubts(ctx, b)
}
