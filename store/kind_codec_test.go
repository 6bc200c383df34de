package store

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"

	"github.com/bourse-dev/bourse/fsm"
)

// CodecKind is the plain kind: the body is what codec makes of the whole object, and the ledger has
// no part in it. Upstream's storage suite runs on it.
func CodecKind(resource schema.GroupResource, codec runtime.Codec, newObject func() runtime.Object) *Kind {
	return &Kind{
		Resource: resource,
		New:      newObject,
		encode: func(object runtime.Object, _ *fsm.Row) (parts, error) {
			stored := object.DeepCopyObject()
			if err := (storage.APIObjectVersioner{}).PrepareObjectForStorage(stored); err != nil {
				return parts{}, err
			}
			body, err := runtime.Encode(codec, stored)
			return parts{body: body}, err
		},
		compose: func(row *fsm.Row) (runtime.Object, error) {
			object := newObject()
			_, _, err := codec.Decode(row.Body, nil, object)
			return object, err
		},
		specChanged: func(_, _ runtime.Object) bool { return true },
	}
}
