package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// plainStrategy lets everything through.
type plainStrategy struct {
	runtime.ObjectTyper
	names.NameGenerator
}

func (plainStrategy) NamespaceScoped() bool                                            { return true }
func (plainStrategy) PrepareForCreate(context.Context, runtime.Object)                 {}
func (plainStrategy) PrepareForUpdate(context.Context, runtime.Object, runtime.Object) {}
func (plainStrategy) Validate(context.Context, runtime.Object) field.ErrorList         { return nil }

func (plainStrategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }

func (plainStrategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}
func (plainStrategy) Canonicalize(runtime.Object)                   {}
func (plainStrategy) AllowCreateOnUpdate(context.Context) bool      { return true }
func (plainStrategy) AllowUnconditionalUpdate(context.Context) bool { return false }
func (plainStrategy) ValidateUpdate(context.Context, runtime.Object, runtime.Object) field.ErrorList {
	return nil
}

// registryOn is upstream's registry.Store on our storage, as the server assembles it.
func registryOn(t *testing.T, s storage.Interface) *registry.Store {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, broker.AddToScheme(scheme))
	broker.AddInternalToScheme(scheme)
	strategy := plainStrategy{scheme, names.SimpleNameGenerator}
	r := &registry.Store{
		NewFunc:                   func() runtime.Object { return &broker.Reservation{} },
		NewListFunc:               func() runtime.Object { return &broker.ReservationList{} },
		DefaultQualifiedResource:  broker.Resource("reservations"),
		SingularQualifiedResource: broker.Resource("reservation"),
		CreateStrategy:            strategy, UpdateStrategy: strategy, DeleteStrategy: strategy,
		EnableGarbageCollection: true,
		TableConvertor:          rest.NewDefaultTableConvertor(broker.Resource("reservations")),
	}
	options := generic.RESTOptions{
		StorageConfig: &storagebackend.ConfigForResource{Config: storagebackend.Config{ // dry-run copies through it
			Codec: serializer.NewCodecFactory(scheme).LegacyCodec(broker.SchemeGroupVersion),
		}},
		ResourcePrefix: "reservations",
		Decorator: func(*storagebackend.ConfigForResource, string, func(runtime.Object) (string, error),
			func() runtime.Object, func() runtime.Object, storage.AttrFunc, storage.IndexerFuncs, *cache.Indexers,
		) (storage.Interface, factory.DestroyFunc, error) {
			return s, func() {}, nil
		},
	}
	require.NoError(t, r.CompleteWithOptions(&generic.StoreOptions{
		RESTOptions: options,
		AttrFunc: func(o runtime.Object) (labels.Set, fields.Set, error) {
			m := o.(*broker.Reservation)
			return m.Labels, fields.Set{"metadata.name": m.Name, "metadata.namespace": m.Namespace}, nil
		},
	}))
	t.Cleanup(r.Destroy)
	return r
}

func TestUpstreamsRegistryOnThisStorage(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	r := registryOn(t, x.reservations)
	ctx := genericapirequest.WithNamespace(genericapirequest.NewContext(), "rome")
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()

	w, err := r.Watch(ctx, &metainternal.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", "ml"), ResourceVersion: "0"})
	require.NoError(t, err)
	defer w.Stop()

	dry, err := r.Create(ctx, reservation("ml"), rest.ValidateAllObjectFunc, &metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	require.NoError(t, err)
	require.Equal(t, "ml", dry.(*broker.Reservation).Name)
	require.Nil(t, x.db.State().Row(rsvKey))

	desired := reservation("ml")
	desired.UID = ""
	desired.Finalizers = []string{"example.com/hold"}
	made, created, err := r.Update(ctx, "ml", rest.DefaultUpdatedObjectInfo(desired), rest.ValidateAllObjectFunc,
		rest.ValidateAllObjectUpdateFunc, true, &metav1.UpdateOptions{})
	require.NoError(t, err)
	require.True(t, created)
	require.Equal(t, made, next(t, w).Object)

	_, err = r.Create(ctx, reservation("ml"), rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	require.True(t, apierrors.IsAlreadyExists(err), "%v", err)

	stale := made.(*broker.Reservation).DeepCopy()
	stale.ResourceVersion = "1"
	_, _, err = r.Update(ctx, "ml", rest.DefaultUpdatedObjectInfo(stale), rest.ValidateAllObjectFunc,
		rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	require.True(t, apierrors.IsConflict(err), "%v", err)

	_, deleted, err := r.Delete(ctx, "ml", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{})
	require.NoError(t, err)
	require.False(t, deleted, "its finalizer holds it")
	held := nextReservation(t, w, watch.Modified)
	require.NotNil(t, held.DeletionTimestamp)

	held.Finalizers = nil
	_, _, err = r.Update(ctx, "ml", rest.DefaultUpdatedObjectInfo(held), rest.ValidateAllObjectFunc,
		rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	require.NoError(t, err)
	nextReservation(t, w, watch.Deleted)
	_, err = r.Get(ctx, "ml", &metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}
