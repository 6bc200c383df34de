package server

import (
	"context"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/bourse-dev/bourse/advertisement"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// fieldClusterID selects advertisements, beside status.phase.
const fieldClusterID = "spec.clusterID"

// advertisementREST serves clusteradvertisements.
type advertisementREST struct{ objectStore }

func (advertisementREST) ShortNames() []string { return []string{"cadv"} }
func (advertisementREST) Categories() []string { return []string{"bourse"} }

func newAdvertisements(s *Server, options generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
	main, err := newStore(kind{
		plural: "clusteradvertisements", singular: "clusteradvertisement", group: broker.GroupName,
		newObject: func() runtime.Object { return &broker.ClusterAdvertisement{} },
		newList:   func() runtime.Object { return &broker.ClusterAdvertisementList{} },
		strategy: advertisementStrategy{newStrategy(s.words.scheme, false, resetFields(broker.SchemeGroupVersion,
			fieldpath.MakePathOrDie("status"),
			fieldpath.MakePathOrDie("spec", "resources"),
			fieldpath.MakePathOrDie("spec", "largestFree"))), s},
		table: advertisementTable,
		fields: func(obj runtime.Object) fields.Set {
			a := obj.(*broker.ClusterAdvertisement)
			return fields.Set{fieldClusterID: a.Spec.ClusterID, fieldPhase: string(a.Status.Phase)}
		},
	}, options)
	if err != nil {
		return nil, err
	}
	status := newStatusStore(main, advertisementStatusStrategy{newStrategy(s.words.scheme, false,
		resetFields(broker.SchemeGroupVersion, fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("metadata")))})
	return map[string]rest.Storage{
		"clusteradvertisements":        advertisementREST{objectStore{Store: main}},
		"clusteradvertisements/status": status,
		"clusteradvertisements/facts":  factsREST{s},
	}, nil
}

// advertisementStrategy keeps the figures out of users' hands: they come from the agent's reports
// and from the ledger, and an ordinary write neither changes them nor raises the generation by them.
type advertisementStrategy struct {
	strategy
	server *Server
}

func (advertisementStrategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	a := obj.(*broker.ClusterAdvertisement)
	if hasFigures(&a.Spec) {
		warning.AddWarning(ctx, "", "spec.resources, spec.largestFree: dropped; the figures come from the cluster's agent only")
		a.Spec.Resources, a.Spec.LargestFree = broker.AdvertisedResources{}, nil
	}
	a.Status = broker.ClusterAdvertisementStatus{}
	a.Generation = 1
}

func hasFigures(spec *broker.ClusterAdvertisementSpec) bool {
	r := &spec.Resources
	return len(r.Allocatable)+len(r.Allocated)+len(r.Reserved)+len(r.Available)+len(spec.LargestFree) > 0
}

func (s advertisementStrategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	a := obj.(*broker.ClusterAdvertisement)
	return append(broker.ValidateClusterAdvertisement(a), s.otherCurrency(a)...)
}

func (advertisementStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	a, o := obj.(*broker.ClusterAdvertisement), old.(*broker.ClusterAdvertisement)
	a.Status = *o.Status.DeepCopy()
	a.Spec.Resources = *o.Spec.Resources.DeepCopy()
	a.Spec.LargestFree = o.Spec.LargestFree.DeepCopy()
	raiseGeneration(a, o, a.Spec, o.Spec)
}

func (s advertisementStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	a := obj.(*broker.ClusterAdvertisement)
	return append(broker.ValidateClusterAdvertisementUpdate(a, old.(*broker.ClusterAdvertisement)), s.otherCurrency(a)...)
}

// otherCurrency: prices in two currencies can't be compared, so the exchange has one.
func (s advertisementStrategy) otherCurrency(a *broker.ClusterAdvertisement) field.ErrorList {
	conflict := advertisement.CurrencyConflict(s.server.cfg.DB.State(), a)
	if conflict == "" {
		return nil
	}
	path, currency := field.NewPath("spec", "cost", broker.CostCurrency), a.Spec.Cost[broker.CostCurrency]
	if c, ok := a.Annotations[broker.CostAnnotationPrefix+broker.CostCurrency]; ok {
		path, currency = field.NewPath("metadata", "annotations").Key(broker.CostAnnotationPrefix+broker.CostCurrency), c
	}
	return field.ErrorList{field.Invalid(path, currency, conflict)}
}

// advertisementStatusStrategy lets the agent's conditions through and nothing else.
type advertisementStatusStrategy struct{ strategy }

func (advertisementStatusStrategy) PrepareForCreate(context.Context, runtime.Object) {}

func (advertisementStatusStrategy) Validate(context.Context, runtime.Object) field.ErrorList {
	return noFaults()
}

func (advertisementStatusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	a, o := obj.(*broker.ClusterAdvertisement), old.(*broker.ClusterAdvertisement)
	keepMeta(&a.ObjectMeta, &o.ObjectMeta)
	a.Spec = *o.Spec.DeepCopy()
	conditions := agentConditions(a.Status.Conditions, o.Status.Conditions)
	a.Status = *o.Status.DeepCopy()
	a.Status.Conditions = conditions
}

func (advertisementStatusStrategy) ValidateUpdate(_ context.Context, obj, _ runtime.Object) field.ErrorList {
	return broker.ValidateClusterAdvertisementStatusUpdate(obj.(*broker.ClusterAdvertisement))
}
