package server

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	"github.com/bourse-dev/bourse/store"
)

// onOurStorage puts a registry on store's storage.Interface instead of etcd: the only seam.
type onOurStorage struct {
	server *Server
	kind   *store.Kind
	codec  runtime.Codec
}

func (o onOurStorage) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	return generic.RESTOptions{
		StorageConfig: &storagebackend.ConfigForResource{
			GroupResource: resource,
			// The codec serves dry runs only: they copy objects by encoding them.
			Config: storagebackend.Config{Codec: o.codec},
		},
		ResourcePrefix: resource.Resource,
		// With it finalizers count. What has no collector is refused: see strategy.
		EnableGarbageCollection: true,
		DeleteCollectionWorkers: 32,
		Decorator: func(*storagebackend.ConfigForResource, string, func(runtime.Object) (string, error),
			func() runtime.Object, func() runtime.Object, storage.AttrFunc, storage.IndexerFuncs, *cache.Indexers,
		) (storage.Interface, factory.DestroyFunc, error) {
			return byRole{store.NewStorage(o.server.cfg.DB, o.server.cfg.Writer, o.kind)}, func() {}, nil
		},
	}, nil
}

// byRole asks storage for the form of each object that the request's user may see, and gives
// errors their status.
type byRole struct{ storage.Interface }

func formFor(ctx context.Context) context.Context {
	if roleFrom(ctx).seesDecisions() {
		return ctx
	}
	return store.WithoutDecision(ctx)
}

func (s byRole) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	return apiError(s.Interface.Create(formFor(ctx), key, obj, out, ttl))
}

func (s byRole) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	return apiError(s.Interface.Delete(formFor(ctx), key, out, preconditions, validate, cached, opts))
}

func (s byRole) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	w, err := s.Interface.Watch(formFor(ctx), key, opts)
	return w, apiError(err)
}

func (s byRole) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	return apiError(s.Interface.Get(formFor(ctx), key, opts, out))
}

func (s byRole) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	return apiError(s.Interface.GetList(formFor(ctx), key, opts, list))
}

func (s byRole) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	return apiError(s.Interface.GuaranteedUpdate(formFor(ctx), key, destination, ignoreNotFound, preconditions, update, cached))
}
