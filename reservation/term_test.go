package reservation

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

func TestACreateIsAnsweredWithTheGrant(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=16,memory=64Gi", "0.25")
	x.cluster("paris", "cpu=8,memory=64Gi", "0.50")
	x.cluster("rome", "cpu=99,memory=99Gi", "0.01")
	p := x.planner(Config{})
	in := x.creation(reservation("ml", "cpu=4,memory=8Gi", duration("2h"), priority(10)))
	p.submit(in)
	p.run()

	require.Nil(t, x.answer(in).Refusal)
	r := x.get("ml")
	require.Equal(t, broker.ReservationReserved, r.Status.Phase)
	require.Equal(t, "berlin", r.Status.TargetClusterID, "never the requester's own, then the emptier and cheaper")
	require.Equal(t, "https://berlin", r.Status.TargetClusterEndpoint)
	require.Equal(t, "1.00", r.Status.PricePerHour)
	require.Equal(t, int64(x.now), r.Status.ReservedAt.UnixMilli())
	require.Equal(t, int64(x.now+2*hour), r.Status.ExpiresAt.UnixMilli())
	require.EqualValues(t, x.row("ml").Ledger.Fence, r.Status.Fence)
	require.Contains(t, r.Status.Message, "cpu 4, memory 8Gi held on berlin until ")
	require.NotContains(t, r.Status.Message, "paris", "agents read it")
	require.Len(t, r.Status.Decision.Candidates, 2)
	require.EqualValues(t, 12_000, x.available("berlin", "cpu"))
	require.Equal(t, []string{"Reserved"}, x.events("ml"))
	hold, ok := x.state.Row(broker.AdvertisementKey("berlin")).Account.Hold(x.row("ml").Key)
	require.True(t, ok)
	require.EqualValues(t, 10, hold.Priority)
	require.NotNil(t, x.state.Row("namespaces/rome"), "the intent's other writes are kept")
	x.settled()
}

func TestARequestThatFitsNowhereFailsAndNamesTheNearest(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("paris", "cpu=4", "")
	p := x.planner(Config{})
	p.submit(x.creation(reservation("big", "cpu=8")))
	p.run()
	r := x.get("big")
	require.Equal(t, broker.ReservationFailed, r.Status.Phase)
	require.Contains(t, r.Status.Message, "Insufficient resources in paris: cpu 8 requested, 4 available")
	require.Contains(t, r.Status.Message, "spec.waitFor")
	require.Equal(t, []string{"InsufficientResources"}, x.events("big"))
	x.settled()
}

func TestOneStepServesByPriorityThenAge(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=4", "")
	p := x.planner(Config{})
	p.submit(
		x.creation(reservation("low", "cpu=2", priority(-5))),
		x.creation(reservation("first", "cpu=2")),
		x.creation(reservation("second", "cpu=2")),
		x.creation(reservation("high", "cpu=2", priority(7))),
	)
	p.run()
	require.Equal(t, "first=Reserved@berlin high=Reserved@berlin low=Failed second=Failed", x.phases())
}

func TestAWaiterIsGrantedWhatIsFreed(t *testing.T) {
	t.Parallel()
	for name, free := range map[string]func(x *exchange){
		"by deletion": func(x *exchange) { x.delete("holder") },
		"by expiry":   func(x *exchange) { x.now += 30 * minute },
		"by more capacity": func(x *exchange) {
			x.report("berlin", "cpu=8", "")
		},
		"by another cluster": func(x *exchange) { x.cluster("tokyo", "cpu=4", "") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newExchange(t)
			x.cluster("berlin", "cpu=4", "")
			p := x.planner(Config{})
			p.submit(x.creation(reservation("holder", "cpu=4", duration("30m"))))
			p.run()
			waiter := x.creation(reservation("waiter", "cpu=4", waitFor("2h")))
			p.submit(waiter)
			p.run()
			require.Equal(t, "holder=Reserved@berlin waiter=Pending", x.phases())
			require.Nil(t, x.answer(waiter).Refusal, "a create that waits is answered at once")
			x.settled()

			free(x)
			p.run()
			require.Equal(t, broker.ReservationReserved, x.get("waiter").Status.Phase)
			require.Equal(t, []string{"WaitingForCapacity", "Reserved"}, x.events("waiter"))
			x.settled()
		})
	}
}

func TestAWaiterIsGrantedAfterAPriceOrACordonChanges(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	spec := broker.ClusterAdvertisementSpec{Cost: map[string]string{"currency": "EUR", "cpu": "2"}}
	x.advertise("berlin", spec)
	x.report("berlin", "cpu=4", "")
	p := x.planner(Config{})
	p.submit(x.creation(reservation("cheap", "cpu=1", waitFor("2h"), func(s *broker.ReservationSpec) { s.MaxCostPerHour = "1" })))
	p.run()
	require.Equal(t, "cheap=Pending", x.phases())
	spec.Cost["cpu"], spec.Lending.Cordoned = "1", true
	x.advertise("berlin", spec)
	p.run()
	require.Equal(t, "cheap=Pending", x.phases())
	spec.Lending.Cordoned = false
	x.advertise("berlin", spec)
	p.run()
	require.Equal(t, "cheap=Reserved@berlin", x.phases())
}

func TestALargeWaiterBlocksNobody(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=4", "")
	p := x.planner(Config{})
	p.submit(x.creation(reservation("large", "cpu=100", waitFor("1h"), priority(1000))))
	p.run()
	p.submit(x.creation(reservation("small", "cpu=1", priority(-1000))))
	p.run()
	require.Equal(t, "large=Pending small=Reserved@berlin", x.phases())
}

func TestALaterLowerPriorityCreateNeverTakesWhatAWaiterFits(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=4", "")
	p := x.planner(Config{})
	p.submit(x.creation(reservation("holder", "cpu=4")))
	p.run()
	p.submit(x.creation(reservation("waiter", "cpu=4", waitFor("1h"), priority(5))))
	p.run()
	// The capacity comes back in the moment in which the others arrive.
	x.delete("holder")
	p.submit(
		x.creation(reservation("lower", "cpu=4", priority(4))),
		x.creation(reservation("same", "cpu=1", priority(5))),
	)
	p.run()
	require.Equal(t, "lower=Failed same=Failed waiter=Reserved@berlin", x.phases())
}

func TestWhatAStepFreesGoesToTheWaiterFirst(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=4", "")
	p := x.planner(Config{})
	p.submit(x.creation(reservation("holder", "cpu=2", duration("1m"))))
	p.run()
	p.submit(x.creation(reservation("waiter", "cpu=4", waitFor("1h"), priority(5))))
	p.run()
	x.now += minute
	p.submit(x.creation(reservation("later", "cpu=2")))
	p.enter(p.plan())
	require.Equal(t, "holder=Released later=Failed waiter=Reserved@berlin", x.phases(), "in one entry")
	p.run()
	x.settled()
}

func TestALeaseEndsAtItsTimeAndNotBefore(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=4", "")
	p := x.planner(Config{})
	p.submit(x.creation(reservation("lease", "cpu=4", duration("5s"))))
	p.run()
	require.Equal(t, x.now+5*second, p.wake)
	x.now += 5*second - 1
	p.run()
	require.Equal(t, "lease=Reserved@berlin", x.phases())
	x.now++
	p.run()
	r := x.get("lease")
	require.Equal(t, broker.ReservationReleased, r.Status.Phase)
	require.EqualValues(t, 4000, x.available("berlin", "cpu"))
	require.Equal(t, []string{"Reserved", "Expired"}, x.events("lease"))
	x.settled()
}

func TestAnExtensionWinsOverALateExpiry(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=4", "")
	p := x.planner(Config{})
	p.submit(x.creation(reservation("lease", "cpu=4", duration("30m"))))
	p.run()
	fence := x.get("lease").Status.Fence
	granted := x.get("lease").Status.ReservedAt.UnixMilli()

	extension := x.edit("lease", func(r *broker.Reservation) { r.Spec.Duration = "3h" })
	p.submit(extension)
	p.run()
	require.Nil(t, x.answer(extension).Refusal)

	// A deposed leader that has not seen it proposes the expiry of what it knows.
	x.now += 30 * minute
	late := fsm.Txn{
		Guards: []fsm.Guard{{Key: x.row("lease").Key, Part: fsm.PartLease, Revision: fsm.Revision(fence), ExpiresAt: x.now}},
		Writes: []fsm.Write{{Key: x.row("lease").Key, Ledger: &fsm.Ledger{Phase: store.PhaseReleased, Ended: true}}},
	}
	require.Equal(t, fsm.RefusedGuard, x.apply(fsm.Entry{Time: x.now, Txns: []fsm.Txn{late}})[0].Refusal.Kind)
	p.run()
	r := x.get("lease")
	require.Equal(t, broker.ReservationReserved, r.Status.Phase)
	require.Equal(t, granted+int64(3*hour), r.Status.ExpiresAt.UnixMilli(), "counted from the grant")
	require.Equal(t, fence, r.Status.Fence)
	require.Equal(t, []string{"Reserved", "Extended"}, x.events("lease"))
	x.settled()
}

func TestAnExtensionThatComesTooLateIsRefused(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=4", "")
	p := x.planner(Config{})
	p.submit(x.creation(reservation("lease", "cpu=4", duration("1h"))))
	p.run()
	extension := x.edit("lease", func(r *broker.Reservation) { r.Spec.Duration = "3h" })
	x.now += hour
	p.submit(extension)
	p.run()
	require.Equal(t, fsm.RefusedGuard, x.answer(extension).Refusal.Kind)
	require.Equal(t, broker.ReservationReleased, x.get("lease").Status.Phase)
}

func TestWhatMayNotBeChangedOfAReservedOne(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*broker.Reservation){
		"a shorter duration": func(r *broker.Reservation) { r.Spec.Duration = "1m" },
		"other resources":    func(r *broker.Reservation) { r.Spec.RequestedResources = list("cpu=1") },
		"a longer duration with another priority": func(r *broker.Reservation) {
			r.Spec.Duration, r.Spec.Priority = "9h", 3
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newExchange(t)
			x.cluster("berlin", "cpu=4", "")
			p := x.planner(Config{})
			p.submit(x.creation(reservation("lease", "cpu=2", duration("1h"))))
			p.run()
			before := x.state.Revision()
			in := x.edit("lease", change)
			p.submit(in)
			p.run()
			require.Equal(t, fsm.RefusedInvalid, x.answer(in).Refusal.Kind)
			require.Equal(t, before, x.state.Revision())
		})
	}
	t.Run("but it may be kept until deleted", func(t *testing.T) {
		t.Parallel()
		x := newExchange(t)
		x.cluster("berlin", "cpu=4", "")
		p := x.planner(Config{})
		p.submit(x.creation(reservation("lease", "cpu=2", duration("1h"))))
		p.run()
		in := x.edit("lease", func(r *broker.Reservation) { r.Spec.Duration = "" })
		p.submit(in)
		p.run()
		require.Nil(t, x.answer(in).Refusal)
		x.now += 1000 * hour
		p.run()
		require.Equal(t, "lease=Reserved@berlin", x.phases())
		require.Nil(t, x.get("lease").Status.ExpiresAt)
	})
}

func TestAnEditOfAWaiterIsDecidedAnew(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=4", "")
	p := x.planner(Config{})
	p.submit(x.creation(reservation("waiter", "cpu=8", waitFor("1h"))))
	p.run()
	x.now += 10 * minute
	longer := x.edit("waiter", func(r *broker.Reservation) { r.Spec.WaitFor = "2h" })
	p.submit(longer)
	p.run()
	require.Nil(t, x.answer(longer).Refusal)
	require.Equal(t, x.now+110*minute, x.row("waiter").Ledger.WaitUntil, "counted from when it began to wait")

	smaller := x.edit("waiter", func(r *broker.Reservation) { r.Spec.RequestedResources = list("cpu=3") })
	p.submit(smaller)
	p.run()
	require.Nil(t, x.answer(smaller).Refusal)
	require.Equal(t, "waiter=Reserved@berlin", x.phases())
	require.EqualValues(t, 1000, x.available("berlin", "cpu"))
	x.settled()
}

func TestAnEditWithoutWaitForFailsAtOnce(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=4", "")
	p := x.planner(Config{})
	p.submit(x.creation(reservation("waiter", "cpu=8", waitFor("1h"))))
	p.run()
	p.submit(x.edit("waiter", func(r *broker.Reservation) { r.Spec.WaitFor = "" }))
	p.run()
	require.Equal(t, "waiter=Failed", x.phases())
	x.settled()
}

func TestAWaitEndsInFailure(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=4", "")
	p := x.planner(Config{})
	p.submit(x.creation(reservation("waiter", "cpu=8", waitFor("30m"))))
	p.run()
	x.now += 30*minute - 1
	p.run()
	require.Equal(t, "waiter=Pending", x.phases())
	x.now++
	p.run()
	r := x.get("waiter")
	require.Equal(t, broker.ReservationFailed, r.Status.Phase)
	require.Equal(t, "WaitTimeout", x.row("waiter").Ledger.Reason)
	require.Contains(t, r.Status.Message, "cpu 8 requested, 4 available")
	x.settled()
}

func TestAWithdrawnOfferReleasesItsHolders(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=500", "")
	p := x.planner(Config{})
	for i := range 100 {
		p.submit(x.creation(reservation(fmt.Sprintf("r%02d", i), "cpu=1")))
	}
	p.run()
	require.EqualValues(t, 400_000, x.available("berlin", "cpu"))
	spec := store.AdvertisementOf(x.state.Row(broker.AdvertisementKey("berlin"))).Spec
	spec.Lending.Withdrawn = true
	x.advertise("berlin", spec)
	p.run()
	for row := range x.state.Scan(broker.ReservationsPrefix) {
		require.EqualValues(t, store.PhaseReleased, row.Ledger.Phase)
		require.Equal(t, "ProviderWithdrawn", row.Ledger.Reason)
	}
	require.Zero(t, x.state.Row(broker.AdvertisementKey("berlin")).Account.HoldCount())
	x.settled()
}

func TestAWithdrawalTakenBackMeanwhileEndsNothing(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=8", "")
	p := x.planner(Config{})
	p.submit(x.creation(reservation("web", "cpu=4")))
	p.run()
	spec := store.AdvertisementOf(x.state.Row(broker.AdvertisementKey("berlin"))).Spec
	spec.Lending.Withdrawn = true
	x.advertise("berlin", spec)
	out := p.plan()
	spec.Lending.Withdrawn = false
	x.advertise("berlin", spec)
	p.enter(out)
	p.run()
	require.Equal(t, broker.ReservationReserved, x.get("web").Status.Phase)
	x.settled()
}

func TestFinalOnesAreKeptAndThenRemovedWithTheirEvents(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=4", "")
	p := x.planner(Config{})
	short := int32(60)
	p.submit(
		x.creation(reservation("short", "cpu=99", func(s *broker.ReservationSpec) { s.TTLSecondsAfterFinished = &short })),
		x.creation(reservation("default", "cpu=99")),
		x.creation(reservation("kept", "cpu=99", func(s *broker.ReservationSpec) { s.TTLSecondsAfterFinished = &short })),
	)
	p.run()
	x.change("kept", func(r *broker.Reservation) { r.Finalizers = []string{"example.com/hold"} })
	x.now += minute
	p.run()
	require.Nil(t, x.row("short"))
	require.Empty(t, x.events("short"))
	require.Equal(t, "default=Failed kept=Failed", x.phases())
	x.change("kept", func(r *broker.Reservation) { r.Finalizers = nil })
	p.run()
	require.Equal(t, "default=Failed", x.phases())
	x.now += 24*hour - minute
	p.run()
	require.Empty(t, x.phases())
	x.settled()
}

func TestARequestThatIsBeingDeletedIsNotGranted(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=4", "")
	p := x.planner(Config{})
	p.submit(x.creation(reservation("waiter", "cpu=8", waitFor("1h"))))
	p.run()
	x.change("waiter", func(r *broker.Reservation) {
		at := metav1.NewTime(timeOf(x.now))
		r.DeletionTimestamp, r.Finalizers = &at, []string{"example.com/hold"}
	})
	x.report("berlin", "cpu=16", "")
	p.run()
	require.Equal(t, "waiter=Pending", x.phases())
}

func TestAStaleClusterIsNotGranted(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=4", "")
	key := broker.AdvertisementKey("berlin")
	x.write(fsm.Txn{Writes: []fsm.Write{{Key: key, Ledger: &fsm.Ledger{Phase: store.PhaseStale, Closed: true}}}})
	p := x.planner(Config{})
	p.submit(x.creation(reservation("waiter", "cpu=1", waitFor("1h"))), x.creation(reservation("now", "cpu=1")))
	p.run()
	require.Equal(t, "now=Failed waiter=Pending", x.phases())
	require.Contains(t, x.get("now").Status.Message, "berlin: stale")
	x.write(fsm.Txn{Writes: []fsm.Write{{Key: key, Ledger: &fsm.Ledger{Phase: store.PhaseActive}}}})
	p.run()
	require.Equal(t, "now=Failed waiter=Reserved@berlin", x.phases())
}

func TestAStalePlannerIsRefusedAndDecidesAgain(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=4", "0.10")
	x.cluster("paris", "cpu=4", "0.90")
	p := x.planner(Config{})
	in := x.creation(reservation("r", "cpu=4"))
	p.submit(in)
	out := p.plan()
	x.report("berlin", "cpu=4", "cpu=3") // pods came before the entry did
	p.enter(out)
	require.Equal(t, fsm.RefusedCapacity, p.settled[0].Result.Refusal.Kind)
	p.run()
	require.Nil(t, x.answer(in).Refusal)
	require.Equal(t, "r=Reserved@paris", x.phases())

	// The node that asked did not hear the answer and asks again, of a new leader.
	p.begin()
	again := &cluster.Intent{Txn: in.Txn}
	p.submit(again)
	p.run()
	require.Nil(t, x.answer(again).Refusal, "the first answer is remembered under the second id")
	require.Equal(t, "r=Reserved@paris", x.phases())
	x.settled()
}

func TestTwoCreatesOfOneNameAreOneReservation(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=4", "")
	p := x.planner(Config{})
	first, second := x.creation(reservation("r", "cpu=1")), x.creation(reservation("r", "cpu=2"))
	p.submit(first, second)
	p.run()
	require.Nil(t, x.answer(first).Refusal)
	require.Equal(t, fsm.RefusedExists, x.answer(second).Refusal.Kind)
	require.EqualValues(t, 3000, x.available("berlin", "cpu"))
}

func TestWhatWasStoredUndecidedIsDecided(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=4", "")
	for _, r := range []*broker.Reservation{
		reservation("fits", "cpu=1"), reservation("fails", "cpu=9"), reservation("waits", "cpu=9", waitFor("1h")),
	} {
		x.write(fsm.Txn{Writes: []fsm.Write{{Key: broker.ReservationKey("rome", r.Name), Body: bodyOf(r)}}})
	}
	p := x.planner(Config{})
	p.run()
	require.Equal(t, "fails=Failed fits=Reserved@berlin waits=Pending", x.phases())
	require.Equal(t, x.now+hour, x.row("waits").Ledger.WaitUntil)
	x.settled()
}

func TestAFloodIsServedInBoundedSteps(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=300", "")
	p := x.planner(Config{})
	var intents []*cluster.Intent
	for i := range 500 {
		intents = append(intents, x.creation(reservation(fmt.Sprintf("r%03d", i), "cpu=1", duration("1h"))))
	}
	p.submit(intents...)
	granted := map[string]int{}
	for !p.idle() {
		out := p.plan()
		require.LessOrEqual(t, len(out.Propose), maxItems+maxEventRemovals)
		p.enter(out)
	}
	for _, in := range intents {
		require.Nil(t, x.answer(in).Refusal)
	}
	for row := range x.state.Scan(broker.ReservationsPrefix) {
		granted[string(store.ReservationOf(row).Status.Phase)]++
	}
	require.Equal(t, map[string]int{"Reserved": 300, "Failed": 200}, granted)
	x.now += hour
	p.run()
	require.EqualValues(t, 300_000, x.available("berlin", "cpu"))
	x.settled()
}

func TestTakes(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=4", "")
	p := x.planner(Config{})
	create := x.creation(reservation("r", "cpu=1"))
	p.submit(create)
	p.run()
	row := x.row("r")
	for name, c := range map[string]struct {
		in   cluster.Intent
		want bool
	}{
		"a create":       {*create, true},
		"a changed spec": {*x.edit("r", func(*broker.Reservation) {}), true},
		"metadata only": {cluster.Intent{Txn: &fsm.Txn{
			Guards: []fsm.Guard{fsm.GuardBody(row)}, Writes: []fsm.Write{{Key: row.Key, Body: row.Body}},
		}}, false},
		"an unguarded body": {cluster.Intent{Txn: &fsm.Txn{Writes: []fsm.Write{{Key: row.Key, Body: row.Body}}}}, true},
		"a deletion":        {cluster.Intent{Txn: &fsm.Txn{Writes: []fsm.Write{{Key: row.Key, Delete: true}}}}, false},
		"an agent's conditions": {cluster.Intent{Txn: &fsm.Txn{
			Writes: []fsm.Write{{Key: row.Key, Facts: []byte("{}")}},
		}}, false},
		"an advertisement": {cluster.Intent{Txn: &fsm.Txn{Writes: []fsm.Write{{Key: broker.AdvertisementKey("x"), Body: []byte("{}")}}}}, false},
		"a report":         {cluster.Intent{Report: &fsm.Report{}}, false},
	} {
		require.Equal(t, c.want, New(Config{}).Takes(&c.in), name)
	}
}

func TestABadBodyIsAnsweredAndNothingElse(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	p := x.planner(Config{})
	key := broker.ReservationKey("rome", "r")
	bad := &cluster.Intent{Txn: &fsm.Txn{Writes: []fsm.Write{{Key: key, Body: []byte("{")}}}}
	two := &cluster.Intent{Txn: &fsm.Txn{Writes: []fsm.Write{{Key: key, Body: []byte("{}")}, {Key: key + "2", Body: []byte("{}")}}}}
	p.submit(bad, two)
	p.run()
	require.Equal(t, fsm.RefusedInvalid, x.answer(bad).Refusal.Kind)
	require.Equal(t, fsm.RefusedInvalid, x.answer(two).Refusal.Kind)
	require.Zero(t, x.state.Revision())
}

// A node that lost the answer asks again with the same id, though the object may be gone by then.
func TestARetryOfWhatWasDoneTakesNothingFromAWaiter(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("paris", "cpu=8", "")
	p := x.planner(Config{})
	gone := x.creation(reservation("gone", "cpu=8", priority(5)))
	p.submit(gone)
	p.run()
	p.submit(x.creation(reservation("waiter", "cpu=8", waitFor("10m"))))
	p.run()
	x.delete("gone")

	retry := &cluster.Intent{Txn: gone.Txn}
	p.submit(retry)
	p.enter(p.plan())

	require.Equal(t, broker.ReservationReserved, x.get("waiter").Status.Phase)
	p.run()
	require.Nil(t, x.answer(retry).Refusal, "the first answer again")
	require.Nil(t, x.row("gone"))
	x.settled()
}

// A create that had to wait for a Step while its name was given up must not inherit the age of the
// object that had the name before.
func TestANameGivenUpMeanwhileIsYoungAgain(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("paris", "cpu=8", "")
	p := x.planner(Config{})
	p.submit(x.creation(reservation("name", "cpu=1", duration("10s"))))
	p.run()
	p.submit(x.creation(reservation("waiter", "cpu=9", waitFor("10m"))))
	p.run()
	x.now += minute
	p.submit(x.creation(reservation("name", "cpu=5")))
	p.enter(p.plan()) // ends the lease, so that the create has to wait
	x.delete("name")
	p.submit(x.edit("waiter", func(r *broker.Reservation) {
		r.Spec.RequestedResources = list("cpu=8")
	}))
	p.run()

	require.Equal(t, broker.ReservationReserved, x.get("waiter").Status.Phase)
	require.Equal(t, broker.ReservationFailed, x.get("name").Status.Phase)
	x.settled()
}
