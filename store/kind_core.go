package store

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bourse-dev/bourse/fsm"
)

var namespaceKind = &Kind{
	Resource: corev1.Resource("namespaces"),
	New:      func() runtime.Object { return &corev1.Namespace{} },
	encode: func(object runtime.Object, _ *fsm.Row) (parts, error) {
		n, ok := object.(*corev1.Namespace)
		if !ok {
			return parts{}, fmt.Errorf("%T is no Namespace", object)
		}
		body, err := encodeBody(storedNamespace{n.ObjectMeta, n.Spec}, func(s *storedNamespace) *metav1.ObjectMeta { return &s.Metadata })
		return parts{body: body}, err
	},
	compose: func(row *fsm.Row) (runtime.Object, error) {
		var stored storedNamespace
		if err := json.Unmarshal(row.Body, &stored); err != nil {
			return nil, err
		}
		return &corev1.Namespace{
			ObjectMeta: stored.Metadata, Spec: stored.Spec,
			Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
		}, nil
	},
	specChanged: func(before, after runtime.Object) bool {
		return !equality.Semantic.DeepEqual(before.(*corev1.Namespace).Spec, after.(*corev1.Namespace).Spec)
	},
}

// NamespaceKind is how namespaces are stored.
func NamespaceKind() *Kind { return namespaceKind }

// storedNamespace is the body of a namespace's row. Frozen: only ever add fields.
type storedNamespace struct {
	Metadata metav1.ObjectMeta    `json:"metadata"`
	Spec     corev1.NamespaceSpec `json:"spec"`
}

// namespaceWrite makes the namespace of an object that is being created, where there is none. The
// time and the uid are the proposing node's: Apply has neither.
func namespaceWrite(name string, uid types.UID, now metav1.Time) (fsm.Write, error) {
	p, err := namespaceKind.encode(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: uid, CreationTimestamp: now,
		Labels: map[string]string{corev1.LabelMetadataName: name},
	}}, nil)
	return fsm.Write{Key: namespaceKind.prefix() + name, IfAbsent: true, Body: p.body}, err
}

var eventKind = &Kind{
	Resource:   corev1.Resource("events"),
	Namespaced: true,
	New:        func() runtime.Object { return &corev1.Event{} },
	encode: func(object runtime.Object, _ *fsm.Row) (parts, error) {
		e, ok := object.(*corev1.Event)
		if !ok {
			return parts{}, fmt.Errorf("%T is no Event", object)
		}
		stored := *e
		stored.TypeMeta = metav1.TypeMeta{}
		body, err := encodeBody(stored, func(s *corev1.Event) *metav1.ObjectMeta { return &s.ObjectMeta })
		return parts{body: body}, err
	},
	compose: func(row *fsm.Row) (runtime.Object, error) {
		e := &corev1.Event{}
		return e, json.Unmarshal(row.Body, e)
	},
	// The message of an event tells why a request was decided as it was, in figures of rivals.
	reduce:      func(object runtime.Object) { object.(*corev1.Event).Message = "" },
	specChanged: func(_, _ runtime.Object) bool { return false },
}

// EventKind is how events are stored.
func EventKind() *Kind { return eventKind }

// encodeBody encodes a row's body: never with the resourceVersion, which is the row's.
func encodeBody[T any](stored T, metadata func(*T) *metav1.ObjectMeta) ([]byte, error) {
	m := metadata(&stored)
	m.SetResourceVersion("")
	m.SetSelfLink("")
	return json.Marshal(stored)
}
