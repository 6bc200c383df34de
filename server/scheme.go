package server

import (
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// words is the scheme and what is derived from it. The same Go type stands for the served and the
// internal version of each kind: there is one version, so there is nothing to convert.
type words struct {
	scheme *runtime.Scheme
	codecs serializer.CodecFactory
	params runtime.ParameterCodec
}

func newWords() words {
	scheme := runtime.NewScheme()
	utilruntime.Must(broker.AddToScheme(scheme))
	broker.AddInternalToScheme(scheme)
	addBorrowed(scheme, corev1.SchemeGroupVersion,
		&corev1.Namespace{}, &corev1.NamespaceList{}, &corev1.Event{}, &corev1.EventList{})
	addBorrowed(scheme, authenticationv1.SchemeGroupVersion, &authenticationv1.SelfSubjectReview{})
	addBorrowed(scheme, authorizationv1.SchemeGroupVersion,
		&authorizationv1.SelfSubjectAccessReview{}, &authorizationv1.SelfSubjectRulesReview{})
	for _, gv := range []schema.GroupVersion{
		broker.SchemeGroupVersion, corev1.SchemeGroupVersion, authenticationv1.SchemeGroupVersion, authorizationv1.SchemeGroupVersion,
	} {
		utilruntime.Must(scheme.SetVersionPriority(gv))
	}
	// Discovery and errors are of version "v1" whatever group is asked.
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	scheme.AddUnversionedTypes(schema.GroupVersion{Version: "v1"},
		&metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	addFieldLabels(scheme)
	return words{scheme, serializer.NewCodecFactory(scheme), runtime.NewParameterCodec(scheme)}
}

// addBorrowed registers kinds of Kubernetes' own, and only those that are served.
func addBorrowed(scheme *runtime.Scheme, gv schema.GroupVersion, kinds ...runtime.Object) {
	scheme.AddKnownTypes(gv, kinds...)
	scheme.AddKnownTypes(schema.GroupVersion{Group: gv.Group, Version: runtime.APIVersionInternal}, kinds...)
	metav1.AddToGroupVersion(scheme, gv)
}

// addFieldLabels names what each kind can be selected by.
func addFieldLabels(scheme *runtime.Scheme) {
	selectable := func(gvk schema.GroupVersionKind, labels ...string) {
		known := map[string]bool{"metadata.name": true, "metadata.namespace": true}
		for _, label := range labels {
			known[label] = true
		}
		utilruntime.Must(scheme.AddFieldLabelConversionFunc(gvk, func(label, value string) (string, string, error) {
			if !known[label] {
				return "", "", fmt.Errorf("field label %q is not supported for %s", label, gvk.Kind)
			}
			return label, value, nil
		}))
	}
	selectable(broker.SchemeGroupVersion.WithKind("Reservation"), fieldRequesterID, fieldTargetClusterID, fieldPhase)
	selectable(broker.SchemeGroupVersion.WithKind("ReservationBatch"), fieldPhase)
	selectable(broker.SchemeGroupVersion.WithKind("ClusterAdvertisement"), fieldClusterID, fieldPhase)
	selectable(broker.SchemeGroupVersion.WithKind("Blueprint"), fieldPhase)
	selectable(broker.SchemeGroupVersion.WithKind("Slice"), fieldClusterID, fieldBlueprint)
	selectable(corev1.SchemeGroupVersion.WithKind("Namespace"), fieldPhase)
	selectable(corev1.SchemeGroupVersion.WithKind("Event"), eventFields...)
}
