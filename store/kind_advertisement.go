package store

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
)

var advertisementKind = &Kind{
	Resource: broker.Resource("clusteradvertisements"),
	New:      func() runtime.Object { return &broker.ClusterAdvertisement{} },
	encode:   encodeAdvertisement,
	compose:  composeAdvertisement,
	specChanged: func(before, after runtime.Object) bool {
		return !equality.Semantic.DeepEqual(
			ownedSpec(before.(*broker.ClusterAdvertisement)), ownedSpec(after.(*broker.ClusterAdvertisement)))
	},
}

// AdvertisementKind is how advertisements are stored.
func AdvertisementKind() *Kind { return advertisementKind }

// AdvertisementOf returns the advertisement of a row "clusteradvertisements/...", see objectOf.
func AdvertisementOf(row *fsm.Row) *broker.ClusterAdvertisement {
	return objectOf[*broker.ClusterAdvertisement](advertisementKind, row)
}

// storedAdvertisement is the body of an advertisement's row. Frozen: only ever add fields.
type storedAdvertisement struct {
	Metadata metav1.ObjectMeta               `json:"metadata"`
	Spec     broker.ClusterAdvertisementSpec `json:"spec"`
}

// ownedSpec is the spec without what the agent and the ledger own.
func ownedSpec(a *broker.ClusterAdvertisement) broker.ClusterAdvertisementSpec {
	spec := a.Spec
	spec.Resources = broker.AdvertisedResources{}
	spec.LargestFree = nil
	return spec
}

func encodeAdvertisement(object runtime.Object, row *fsm.Row) (parts, error) {
	a, ok := object.(*broker.ClusterAdvertisement)
	if !ok {
		return parts{}, fmt.Errorf("%T is no ClusterAdvertisement", object)
	}
	keepBack, err := allocation.AmountsOf(a.Spec.Lending.KeepBack, true)
	if err != nil {
		return parts{}, fmt.Errorf("spec.lending.keepBack: %w", err)
	}
	body, err := encodeBody(storedAdvertisement{a.ObjectMeta, ownedSpec(a)}, func(s *storedAdvertisement) *metav1.ObjectMeta { return &s.Metadata })
	if err != nil {
		return parts{}, err
	}
	facts, err := encodeConditions(a.Status.Conditions, row)
	closed := a.Spec.Lending.Cordoned || a.Spec.Lending.Withdrawn
	return parts{body: body, facts: facts, terms: &fsm.Terms{KeepBack: keepBack, Closed: closed}}, err
}

func composeAdvertisement(row *fsm.Row) (runtime.Object, error) {
	var stored storedAdvertisement
	if err := json.Unmarshal(row.Body, &stored); err != nil {
		return nil, err
	}
	a := &broker.ClusterAdvertisement{ObjectMeta: stored.Metadata, Spec: stored.Spec}
	if row.Account != nil {
		a.Spec.Resources = figures(row.Account)
		a.Spec.LargestFree = row.Account.LargestFree.ResourceList()
		a.Status.Epoch = int64(row.Account.Epoch)
	}
	l := row.Ledger
	if l == nil {
		l = &fsm.Ledger{}
	}
	a.Status.Phase = advertisementPhase(l.Phase)
	if l.SeenAt > 0 {
		seen := seconds(l.SeenAt)
		a.Status.LastSeen = &seen
	}
	reported, err := decodeConditions(row.Facts)
	if err != nil {
		return nil, err
	}
	a.Status.Conditions = mergeConditions(reported, l.Conditions, advertisementConditions(a, l))
	return a, nil
}

// figures of an account. Every resource that any figure names is in all four, so that they add up
// on the screen: available = allocatable - keepBack - allocated - reserved, never below 0.
func figures(account *fsm.Account) broker.AdvertisedResources {
	own := account.OwnAllocated()
	names := account.Allocatable.Max(own).Max(account.HeldOrUsed)
	if len(names) == 0 {
		return broker.AdvertisedResources{}
	}
	list := func(value func(resource string) int64) corev1.ResourceList {
		l := make(corev1.ResourceList, len(names))
		for _, n := range names {
			l[corev1.ResourceName(n.Resource)] = broker.QuantityOf(n.Resource, value(n.Resource))
		}
		return l
	}
	return broker.AdvertisedResources{
		Allocatable: list(account.Allocatable.Get),
		Allocated:   list(own.Get),
		Reserved:    list(account.HeldOrUsed.Get),
		Available:   list(account.Available),
	}
}

// advertisementConditions are the kstatus conditions that follow from the phase. An advertisement
// that waits for its agent's first report is not stalled yet.
func advertisementConditions(a *broker.ClusterAdvertisement, l *fsm.Ledger) []metav1.Condition {
	c := derived{reason: l.Reason, message: l.Message, observed: a.Generation}
	c.since = secondsOr(l.GrantedAt, a.CreationTimestamp)
	switch a.Status.Phase {
	case broker.AdvertisementActive:
		c.ready = true
	case broker.AdvertisementStale:
		c.stalled = l.SeenAt > 0
	}
	return c.conditions(string(a.Status.Phase))
}
