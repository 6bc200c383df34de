package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group, the users' own.
const GroupName = "broker.fluidos.eu"

// SchemeGroupVersion is the group and version of this package's kinds.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

// Resource qualifies a resource name with the group.
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}

// AddToScheme registers the kinds as v1alpha1. While there is one version the
// same types also serve as the internal ones (see server).
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion, kinds()...)
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}

// AddInternalToScheme registers the same Go types as the group's internal version.
func AddInternalToScheme(scheme *runtime.Scheme) {
	scheme.AddKnownTypes(schema.GroupVersion{Group: GroupName, Version: runtime.APIVersionInternal}, kinds()...)
}

func kinds() []runtime.Object {
	return []runtime.Object{
		&ClusterAdvertisement{}, &ClusterAdvertisementList{}, &FactsReport{},
		&Reservation{}, &ReservationList{}, &ReservationExplanation{},
		&Blueprint{}, &BlueprintList{}, &Slice{}, &SliceList{},
		&ReservationBatch{}, &ReservationBatchList{},
	}
}
