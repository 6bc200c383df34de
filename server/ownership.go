package server

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// ownership is the half of authorization that needs the object: whose reservation, whose
// advertisement. The registry runs it on every create (all three ways), update and delete, dry
// or not, with the object as it would be stored.
type ownership struct{}

var _ admission.ValidationInterface = ownership{}

func (ownership) Handles(operation admission.Operation) bool { return operation != admission.Connect }

func (ownership) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	r := roleOf(a.GetUserInfo())
	if r.admin {
		return nil
	}
	var err error
	switch a.GetResource().GroupResource() {
	case broker.Resource("reservations"):
		err = r.ownsReservation(a)
	case broker.Resource("reservationbatches"):
		err = r.ownsBatch(a)
	case broker.Resource("clusteradvertisements"):
		err = r.ownsAdvertisement(a)
	case broker.Resource("slices"):
		err = r.ownsSlice(a)
	}
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// ownsReservation: a requester writes its clusters' reservations, before and after the change; an
// agent the status of those that it asks for or provides.
func (r role) ownsReservation(a admission.Attributes) error {
	for _, obj := range []runtime.Object{a.GetObject(), a.GetOldObject()} {
		v, ok := obj.(*broker.Reservation)
		if !ok || v == nil {
			continue
		}
		if a.GetSubresource() == "status" {
			if !r.isParty(v) {
				return fmt.Errorf("the agent of %s is neither its requester (%q) nor its provider (%q)",
					listed(r.agents), v.Spec.RequesterID, v.Status.TargetClusterID)
			}
			continue
		}
		if !r.requesters[v.Spec.RequesterID] {
			return fmt.Errorf("spec.requesterID is %q: you may only act for %s", v.Spec.RequesterID, listed(r.requesters))
		}
	}
	return nil
}

// ownsBatch: every item is one that the requester could ask for itself.
func (r role) ownsBatch(a admission.Attributes) error {
	for _, obj := range []runtime.Object{a.GetObject(), a.GetOldObject()} {
		b, ok := obj.(*broker.ReservationBatch)
		if !ok || b == nil {
			continue
		}
		for i := range b.Spec.Items {
			if id := b.Spec.Items[i].Spec.RequesterID; !r.requesters[id] {
				return fmt.Errorf("spec.items[%d].spec.requesterID is %q: you may only act for %s", i, id, listed(r.requesters))
			}
		}
	}
	return nil
}

// ownsAdvertisement: an agent creates its own, a provider changes what is the provider's say.
func (r role) ownsAdvertisement(a admission.Attributes) error {
	if a.GetSubresource() != "" {
		return nil // the name was in the request: the authorizer has looked
	}
	updated, _ := a.GetObject().(*broker.ClusterAdvertisement)
	if updated == nil {
		return nil
	}
	old, _ := a.GetOldObject().(*broker.ClusterAdvertisement)
	if a.GetOperation() == admission.Create || old == nil {
		if !r.agents[updated.Spec.ClusterID] {
			return fmt.Errorf("spec.clusterID is %q: you may only advertise %s", updated.Spec.ClusterID, listed(r.agents))
		}
		return nil
	}
	mine := updated.Spec
	mine.Cost, mine.Lending = old.Spec.Cost, old.Spec.Lending
	if !equality.Semantic.DeepEqual(mine, old.Spec) {
		return fmt.Errorf("a provider changes prices, labels and spec.lending; clusterID, endpoint, region and provider are the administrator's")
	}
	return nil
}

// ownsSlice: an agent reports on the slices of its own cluster. Nobody but administrators gets to a
// slice itself; blueprints are their namespace's, and the authorizer has seen that.
func (r role) ownsSlice(a admission.Attributes) error {
	for _, obj := range []runtime.Object{a.GetObject(), a.GetOldObject()} {
		if s, ok := obj.(*broker.Slice); ok && s != nil && !r.agents[s.Spec.ClusterID] {
			return fmt.Errorf("the slice is of cluster %q: you may only report for %s", s.Spec.ClusterID, listed(r.agents))
		}
	}
	return nil
}

// isParty says whether one of the user's agents has to do with the reservation.
func (r role) isParty(v *broker.Reservation) bool {
	return r.agents[v.Spec.RequesterID] || v.Status.TargetClusterID != "" && r.agents[v.Status.TargetClusterID]
}

// mayRead refuses a reservation that came by name, without a selector.
func mayRead(ctx context.Context, v *broker.Reservation) error {
	r := roleFrom(ctx)
	if r.admin || r.viewer || len(r.requesters) > 0 && r.namespaces[v.Namespace] || r.requesters[v.Spec.RequesterID] || r.isParty(v) {
		return nil
	}
	return apierrors.NewForbidden(broker.Resource("reservations"), v.Name,
		fmt.Errorf("the agent of %s is neither its requester nor its provider", listed(r.agents)))
}

// mayReadSlice as mayRead.
func mayReadSlice(ctx context.Context, s *broker.Slice) error {
	r := roleFrom(ctx)
	if r.admin || r.viewer || len(r.requesters) > 0 && r.namespaces[s.Namespace] || r.agents[s.Spec.ClusterID] {
		return nil
	}
	return apierrors.NewForbidden(broker.Resource("slices"), s.Name, fmt.Errorf("it is not of %s", listed(r.agents)))
}

func listed(ids set) string {
	text := ""
	for _, id := range sortedKeys(ids) {
		if text != "" {
			text += ", "
		}
		text += id
	}
	if text == "" {
		return "nobody"
	}
	return text
}
