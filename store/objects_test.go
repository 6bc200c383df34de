package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

func TestTheBodyOfAReservationOnDisk(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.create("ml")
	require.JSONEq(t, `{
		"metadata": {"name": "ml", "namespace": "rome", "uid": "u-1", "generation": 1},
		"spec": {"requesterID": "rome", "requestedResources": {"cpu": "4", "memory": "8Gi"}, "duration": "2h"}
	}`, string(x.db.State().Row(rsvKey).Body))
	require.Nil(t, x.db.State().Row(rsvKey).Facts)
}

func TestTheFirstObjectOfANamespaceMakesIt(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.create("ml")
	first := x.db.State().Row("namespaces/rome")
	require.NotNil(t, first)
	x.create("other")
	require.Same(t, first, x.db.State().Row("namespaces/rome"))

	namespaces := store.NewStorage(x.db, x.leader, store.NamespaceKind())
	var ns corev1.Namespace
	require.NoError(t, namespaces.Get(t.Context(), "/namespaces/rome", storage.GetOptions{}, &ns))
	require.Equal(t, corev1.NamespaceActive, ns.Status.Phase)
	require.NotEmpty(t, ns.UID)
	require.Equal(t, "rome", ns.Labels[corev1.LabelMetadataName])
}

func TestAReservationIsItsBodyAndItsLedger(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.offer()
	created := x.create("ml")
	require.Equal(t, broker.ReservationPending, created.Status.Phase)

	decision := allocation.Decision{Policy: allocation.Policy{ResourceWeight: 70, CostWeight: 30}, Considered: 3}
	x.grant(&fsm.Ledger{
		Phase: store.PhaseReserved, Target: "paris", Endpoint: "https://paris", Reason: "Granted",
		GrantedAt: 1_700_000_000_123, ExpiresAt: 1_700_007_200_123, PriceNano: 2_500_000_000,
		Message: "granted on paris", Decision: allocation.EncodeDecision(nil, &decision, 3),
		Conditions: []fsm.Condition{{Type: "CapacityShort", Status: true, Reason: "Shrunk", Since: 1_700_000_001_000, Observed: 1}},
	})
	row := x.db.State().Row(rsvKey)
	r := store.ReservationOf(row)
	require.Equal(t, row.Revision(), revisionOf(t, r))
	s := r.Status
	require.Equal(t, broker.ReservationReserved, s.Phase)
	require.Equal(t, "paris", s.TargetClusterID)
	require.Equal(t, "https://paris", s.TargetClusterEndpoint)
	require.Equal(t, int64(1_700_000_000_123), s.ReservedAt.UnixMilli())
	require.Equal(t, int64(1_700_007_200_123), s.ExpiresAt.UnixMilli())
	require.Equal(t, broker.FormatPrice(2_500_000_000), s.PricePerHour)
	require.Equal(t, int64(row.Ledger.Fence), s.Fence)
	require.Equal(t, int64(3), s.Decision.Revision)
	require.True(t, meta.IsStatusConditionTrue(s.Conditions, "Ready"))
	require.True(t, meta.IsStatusConditionFalse(s.Conditions, "Stalled"))
	require.True(t, meta.IsStatusConditionTrue(s.Conditions, "CapacityShort"))
	require.Equal(t, int64(1), meta.FindStatusCondition(s.Conditions, "Ready").ObservedGeneration)
	require.Equal(t, int64(1_700_000_000), meta.FindStatusCondition(s.Conditions, "Ready").LastTransitionTime.Unix())
}

func TestConditionsOfEachPhase(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		phase          uint8
		ready, stalled metav1.ConditionStatus
	}{
		"Pending":  {store.PhasePending, metav1.ConditionFalse, metav1.ConditionFalse},
		"Reserved": {store.PhaseReserved, metav1.ConditionTrue, metav1.ConditionFalse},
		"Released": {store.PhaseReleased, metav1.ConditionFalse, metav1.ConditionFalse},
		"Failed":   {store.PhaseFailed, metav1.ConditionFalse, metav1.ConditionTrue},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newExchange(t)
			x.create("ml")
			x.apply(fsm.Txn{Writes: []fsm.Write{{Key: rsvKey, Ledger: &fsm.Ledger{Phase: want.phase}}}})
			s := store.ReservationOf(x.db.State().Row(rsvKey)).Status
			require.Equal(t, name, string(s.Phase))
			require.Equal(t, want.ready, meta.FindStatusCondition(s.Conditions, "Ready").Status)
			require.Equal(t, want.stalled, meta.FindStatusCondition(s.Conditions, "Stalled").Status)
			require.NotEmpty(t, meta.FindStatusCondition(s.Conditions, "Ready").Reason)
		})
	}
}

func TestTheFiguresOfAnAdvertisementAddUp(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.offer()
	x.create("ml")
	x.grant(&fsm.Ledger{Phase: store.PhaseReserved, Target: "paris"})
	a := store.AdvertisementOf(x.db.State().Row(parisKey))
	figure := func(list corev1.ResourceList, name corev1.ResourceName) string {
		q, ok := list[name]
		require.True(t, ok, "%s is shown", name)
		return q.String()
	}
	r := a.Spec.Resources
	require.Equal(t, []string{"16", "3", "4", "7"}, []string{ // 16 - 2 kept back - 3 - 4
		figure(r.Allocatable, "cpu"), figure(r.Allocated, "cpu"), figure(r.Reserved, "cpu"), figure(r.Available, "cpu"),
	})
	require.Equal(t, []string{"64Gi", "0", "8Gi", "56Gi"}, []string{
		figure(r.Allocatable, "memory"), figure(r.Allocated, "memory"), figure(r.Reserved, "memory"), figure(r.Available, "memory"),
	})
	require.Equal(t, "0", figure(r.Reserved, "nvidia.com/gpu"))
	require.Equal(t, "2", figure(r.Available, "nvidia.com/gpu"))
	require.Equal(t, "4", figure(a.Spec.LargestFree, "cpu"))
	require.Equal(t, int64(1), a.Status.Epoch)
	require.Equal(t, broker.AdvertisementStale, a.Status.Phase, "no room has seen its agent")
	require.False(t, meta.IsStatusConditionTrue(a.Status.Conditions, "Ready"))
}

func TestAnAdvertisementsFiguresAreNotItsOwners(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.offer()
	before := x.db.State().Row(parisKey)
	out := &broker.ClusterAdvertisement{}
	err := x.advertisements.GuaranteedUpdate(t.Context(), "/clusteradvertisements/paris-adv", out, false, nil,
		editing(func(a *broker.ClusterAdvertisement) {
			a.Spec.Resources.Allocatable["cpu"] = a.Spec.Resources.Allocatable["memory"]
			a.Spec.LargestFree = nil
		}), nil)
	require.NoError(t, err)
	require.Same(t, before, x.db.State().Row(parisKey), "nothing was written")

	err = x.advertisements.GuaranteedUpdate(t.Context(), "/clusteradvertisements/paris-adv", out, false, nil,
		editing(func(a *broker.ClusterAdvertisement) { a.Spec.Lending.Cordoned = true }), nil)
	require.NoError(t, err)
	after := x.db.State().Row(parisKey)
	require.True(t, after.Account.Closed)
	require.Equal(t, amounts("cpu", 2_000), after.Account.KeepBack)
	require.Greater(t, after.SpecRev, before.SpecRev)
}

func TestAgentsConditionsAreFactsAndTheServersWin(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.create("ml")
	x.apply(fsm.Txn{Writes: []fsm.Write{{Key: rsvKey, Ledger: &fsm.Ledger{
		Phase: store.PhaseReserved, Conditions: []fsm.Condition{{Type: "CapacityShort", Reason: "Fits"}},
	}}}})
	before := x.db.State().Row(rsvKey)
	claim := func(types ...string) func(*broker.Reservation) {
		return func(r *broker.Reservation) {
			for _, c := range types {
				meta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue, Reason: "Agent"})
			}
			r.Status.Phase, r.Status.Message = broker.ReservationFailed, "says the agent"
		}
	}
	updated, err := x.update(t.Context(), "ml", claim("Peered", "Stalled", "CapacityShort"))
	require.NoError(t, err)
	require.Equal(t, broker.ReservationReserved, updated.Status.Phase)
	require.True(t, meta.IsStatusConditionTrue(updated.Status.Conditions, "Peered"))
	require.True(t, meta.IsStatusConditionFalse(updated.Status.Conditions, "Stalled"))
	require.True(t, meta.IsStatusConditionFalse(updated.Status.Conditions, "CapacityShort"))

	after := x.db.State().Row(rsvKey)
	require.Equal(t, before.BodyRev, after.BodyRev)
	require.Equal(t, before.LedgerRev, after.LedgerRev)
	require.Greater(t, after.FactsRev, before.FactsRev)

	_, err = x.update(t.Context(), "ml", claim("Stalled", "CapacityShort"))
	require.NoError(t, err)
	require.Same(t, after, x.db.State().Row(rsvKey), "only what the server owns was claimed")
	_, err = x.update(t.Context(), "ml", func(r *broker.Reservation) { r.Status.Conditions = nil })
	require.NoError(t, err)
	require.Nil(t, meta.FindStatusCondition(store.ReservationOf(x.db.State().Row(rsvKey)).Status.Conditions, "Peered"))
}

func TestAgentsSeeNothingOfRivals(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.create("ml")
	decision := allocation.Decision{Policy: allocation.Policy{ResourceWeight: 70, CostWeight: 30}, Considered: 1}
	x.apply(fsm.Txn{Writes: []fsm.Write{{Key: rsvKey, Ledger: &fsm.Ledger{
		Phase: store.PhaseFailed, Message: "berlin: 9.00 per hour", Reason: "OverPrice",
		Decision: allocation.EncodeDecision(nil, &decision, 1),
	}}}})
	agent := store.WithoutDecision(t.Context())
	secret := func(r *broker.Reservation) bool {
		ready := meta.FindStatusCondition(r.Status.Conditions, "Ready")
		return r.Status.Decision != nil || r.Status.Message != "" || ready.Message != ""
	}

	var got broker.Reservation
	require.NoError(t, x.reservations.Get(agent, "/reservations/rome/ml", storage.GetOptions{}, &got))
	require.False(t, secret(&got), "get")
	var list broker.ReservationList
	all := storage.ListOptions{Recursive: true, Predicate: storage.Everything}
	require.NoError(t, x.reservations.GetList(agent, "/reservations", all, &list))
	require.False(t, secret(&list.Items[0]), "list")
	w, err := x.reservations.Watch(agent, "/reservations", all)
	require.NoError(t, err)
	defer w.Stop()
	require.False(t, secret(nextReservation(t, w, "ADDED")), "watch")
	updated, err := x.update(agent, "ml", func(r *broker.Reservation) {
		require.False(t, secret(r), "what an update is shown")
		meta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{Type: "Peered", Status: metav1.ConditionTrue, Reason: "Agent"})
	})
	require.NoError(t, err)
	require.False(t, secret(updated), "what an update returns")
	require.False(t, secret(nextReservation(t, w, "MODIFIED")))
	var deleted broker.Reservation
	require.NoError(t, x.reservations.GetList(t.Context(), "/reservations", all, &list))
	require.True(t, secret(&list.Items[len(list.Items)-1]), "the update kept what the agent can't see")
	require.NoError(t, x.reservations.Delete(agent, "/reservations/rome/ml", &deleted, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}))
	require.False(t, secret(&deleted), "what a deletion returns")
	require.False(t, secret(nextReservation(t, w, "DELETED")))
}

func TestAgentsSeeEventsWithoutTheirMessage(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	events := store.NewStorage(x.db, x.leader, store.EventKind())
	e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "rome", Name: "ml.1"}, Reason: "Failed", Message: "berlin: 9.00"}
	require.NoError(t, events.Create(t.Context(), "/events/rome/ml.1", e, nil, 0))
	var full, reduced corev1.Event
	require.NoError(t, events.Get(t.Context(), "/events/rome/ml.1", storage.GetOptions{}, &full))
	require.NoError(t, events.Get(store.WithoutDecision(t.Context()), "/events/rome/ml.1", storage.GetOptions{}, &reduced))
	require.Equal(t, "berlin: 9.00", full.Message)
	require.Empty(t, reduced.Message)
	require.Equal(t, "Failed", reduced.Reason)
}
