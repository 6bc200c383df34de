package server

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// namespaceREST serves core/v1 Namespaces, which Helm and GitOps tools look for. A namespace is a
// name and nothing more: it is made with its first object, and goes when somebody deletes it empty.
type namespaceREST struct {
	objectStore
	server *Server
}

func (namespaceREST) ShortNames() []string { return []string{"ns"} }

// Delete refuses a namespace with anything in it that holds: nobody here deletes children in passing.
func (n namespaceREST) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	// The registry would wait for spec.finalizers of Kubernetes' namespace controller; we have none.
	state := n.server.cfg.DB.State()
	for _, left := range []struct{ prefix, advice string }{
		{broker.BatchesPrefix, "batches: delete them first"},
		{broker.ReservationsPrefix, "reservations: delete them first"},
		{broker.BlueprintsPrefix, "blueprints: delete them first"},
		{broker.SlicesPrefix, "slices of deleted blueprints: their clusters are unloading them, or are not back yet"},
	} {
		if held := state.Len(left.prefix + name + "/"); held > 0 {
			return nil, false, apierrors.NewConflict(corev1.Resource("namespaces"), name, fmt.Errorf("it still has %d %s", held, left.advice))
		}
	}
	return n.Store.Delete(ctx, name, validate, options)
}

func newNamespaces(s *Server, options generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
	main, err := newStore(kind{
		plural: "namespaces", singular: "namespace", group: corev1.GroupName,
		newObject: func() runtime.Object { return &corev1.Namespace{} },
		newList:   func() runtime.Object { return &corev1.NamespaceList{} },
		strategy: namespaceStrategy{newStrategy(s.words.scheme, false,
			resetFields(corev1.SchemeGroupVersion, fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("status")))},
		table: columns{
			nameColumn,
			{name: "Status", about: "Active.", cell: of(func(n *corev1.Namespace) string { return string(n.Status.Phase) })},
			ageColumn,
		},
		fields: func(obj runtime.Object) fields.Set {
			return fields.Set{fieldPhase: string(obj.(*corev1.Namespace).Status.Phase)}
		},
	}, options)
	return map[string]rest.Storage{"namespaces": namespaceREST{objectStore{Store: main}, s}}, err
}

type namespaceStrategy struct{ strategy }

func (namespaceStrategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	n := obj.(*corev1.Namespace)
	n.Spec = corev1.NamespaceSpec{}
	n.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.Labels[corev1.LabelMetadataName] = n.Name
}

func (namespaceStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	n, o := obj.(*corev1.Namespace), old.(*corev1.Namespace)
	n.Spec, n.Status = *o.Spec.DeepCopy(), *o.Status.DeepCopy()
}

func (namespaceStrategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	var errs field.ErrorList
	name := obj.(*corev1.Namespace).Name
	for _, msg := range validation.IsDNS1123Label(name) {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), name, msg))
	}
	return errs
}

func (s namespaceStrategy) ValidateUpdate(ctx context.Context, obj, _ runtime.Object) field.ErrorList {
	return s.Validate(ctx, obj)
}
