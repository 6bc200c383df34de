package server

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/apiserver/pkg/util/dryrun"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// strategy is what the strategies of all resources share.
type strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	namespaced bool
	reset      map[fieldpath.APIVersion]*fieldpath.Set
}

func newStrategy(typer runtime.ObjectTyper, namespaced bool, reset map[fieldpath.APIVersion]*fieldpath.Set) strategy {
	return strategy{typer, names.SimpleNameGenerator, namespaced, reset}
}

// resetFields says which fields an endpoint puts back whatever the client writes: apply then claims none of them.
func resetFields(gv schema.GroupVersion, paths ...fieldpath.Path) map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{fieldpath.APIVersion(gv.String()): fieldpath.NewSet(paths...)}
}

func (s strategy) NamespaceScoped() bool                       { return s.namespaced }
func (strategy) AllowCreateOnUpdate(context.Context) bool      { return false }
func (strategy) AllowUnconditionalUpdate(context.Context) bool { return true }
func (strategy) Canonicalize(runtime.Object)                   {}

func (s strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set { return s.reset }

// DefaultGarbageCollectionPolicy: there is no garbage collector here. --cascade=foreground or orphan
// would add a finalizer that nobody removes; with this the object is simply deleted.
func (strategy) DefaultGarbageCollectionPolicy(context.Context) rest.GarbageCollectionPolicy {
	return rest.Unsupported
}

func (strategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }

func (strategy) WarningsOnUpdate(_ context.Context, _, _ runtime.Object) []string { return nil }

// createUpdate is a strategy of one kind, whole.
type createUpdate interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
	rest.RESTDeleteStrategy
	rest.ResetFieldsStrategy
}

// kind describes one resource to newStore.
type kind struct {
	plural, singular string
	group            string
	newObject        func() runtime.Object
	newList          func() runtime.Object
	strategy         createUpdate
	table            rest.TableConvertor
	fields           func(runtime.Object) fields.Set // selectable, beside metadata
}

// newStore builds the generic registry of one resource on our storage.
func newStore(k kind, options generic.RESTOptionsGetter) (*registry.Store, error) {
	attributes := func(obj runtime.Object) (labels.Set, fields.Set, error) {
		meta, err := metaOf(obj)
		if err != nil {
			return nil, nil, err
		}
		set := k.fields(obj)
		set["metadata.name"] = meta.GetName()
		if k.strategy.NamespaceScoped() {
			set["metadata.namespace"] = meta.GetNamespace()
		}
		return meta.GetLabels(), set, nil
	}
	s := &registry.Store{
		NewFunc:                   k.newObject,
		NewListFunc:               k.newList,
		DefaultQualifiedResource:  schema.GroupResource{Group: k.group, Resource: k.plural},
		SingularQualifiedResource: schema.GroupResource{Group: k.group, Resource: k.singular},
		PredicateFunc: func(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
			return storage.SelectionPredicate{Label: label, Field: field, GetAttrs: attributes}
		},
		CreateStrategy:      k.strategy,
		UpdateStrategy:      k.strategy,
		DeleteStrategy:      k.strategy,
		ResetFieldsStrategy: k.strategy,
		TableConvertor:      k.table,
	}
	return s, s.CompleteWithOptions(&generic.StoreOptions{RESTOptions: options, AttrFunc: attributes})
}

// objectStore is a registry as it is served.
type objectStore struct {
	*registry.Store
	// dry puts into the object of a dry run what the exchange would have answered, as its user may see
	// it. nil: that is the object. The generic registry lets no dry run reach storage, where a real write
	// meets the leader's decision.
	dry func(ctx context.Context, obj runtime.Object) error
}

func (s objectStore) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	created, err := s.Store.Create(ctx, obj, validate, options)
	if err == nil && s.dry != nil && dryrun.IsDryRun(options.DryRun) {
		err = s.dry(ctx, created)
	}
	return created, err
}

// Update is server-side apply too, which may create.
func (s objectStore) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo,
	create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	updated, created, err := s.Store.Update(ctx, name, clientFaults{info}, create, update, forceAllowCreate, options)
	if err == nil && s.dry != nil && dryrun.IsDryRun(options.DryRun) {
		err = s.dry(ctx, updated)
	}
	return updated, created, err
}

// statusStore is the same storage under another strategy: <plural>/status.
type statusStore struct {
	store *registry.Store
}

func newStatusStore(main *registry.Store, s createUpdate) *statusStore {
	status := *main
	status.CreateStrategy = nil
	status.UpdateStrategy = s
	status.ResetFieldsStrategy = s
	return &statusStore{&status}
}

func (s *statusStore) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return s.store.Get(ctx, name, options)
}

// Update never creates: a status is nothing without its object.
func (s *statusStore) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo,
	create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return s.store.Update(ctx, name, clientFaults{info}, create, update, false, options)
}

func (s *statusStore) New() runtime.Object { return s.store.New() }
func (*statusStore) Destroy()              {} // the storage is the main store's
func (s *statusStore) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.store.GetResetFields()
}

// raiseGeneration where the part of the object that users own has changed.
func raiseGeneration(updated, old interface {
	GetGeneration() int64
	SetGeneration(int64)
}, updatedSpec, oldSpec any,
) {
	if !equality.Semantic.DeepEqual(updatedSpec, oldSpec) {
		updated.SetGeneration(old.GetGeneration() + 1)
	}
}

// noFaults is for what can't be written badly.
func noFaults() field.ErrorList { return nil }
