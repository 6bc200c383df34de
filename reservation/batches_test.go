package reservation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

func threeClusters(t failer) (*exchange, *planner) {
	x := newExchange(t)
	x.cluster("berlin", "cpu=8,memory=32Gi", "0.1")
	x.cluster("paris", "cpu=8,memory=32Gi", "0.2")
	x.cluster("tokyo", "cpu=8,memory=32Gi", "0.3")
	p := x.planner(Config{})
	p.run()
	return x, p
}

// ask submits the intent and lets the room work.
func (p *planner) ask(in *cluster.Intent) fsm.Result {
	p.submit(in)
	p.run()
	return p.x.answer(in)
}

func TestAnAtomicBatchNamesWhatIsMissingAndHoldsNothing(t *testing.T) {
	t.Parallel()
	x, p := threeClusters(t)
	b := batch("train", true, item("cpu=4", target("berlin")), item("cpu=2", target("paris")), item("nvidia.com/gpu=1", target("tokyo")))
	require.Nil(t, p.ask(x.batchCreation(b)).Refusal)
	status := x.batchStatus("train")
	require.Equal(t, broker.BatchFailed, status.Phase)
	require.Equal(t, "0/3: tokyo lacks nvidia.com/gpu", status.Message)
	require.Len(t, status.Results, 3)
	require.Equal(t, wouldFit, status.Results[0].Message)
	require.Empty(t, x.phases())
	require.EqualValues(t, 8000, x.available("berlin", "cpu"))

	b.Name, b.Spec.Items = "again", b.Spec.Items[:2]
	require.Nil(t, p.ask(x.batchCreation(b)).Refusal)
	require.Equal(t, "2/2 Reserved", x.batchStatus("again").Message)
	require.Equal(t, "again-a=Reserved@berlin again-b=Reserved@paris", x.phases())
}

func TestTheLargestItemOfAnAtomicBatchIsPlacedFirst(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=8,memory=32Gi", "0.1")
	x.cluster("paris", "cpu=4,memory=32Gi", "0.1")
	p := x.planner(Config{})
	// In the order of the list the small one would take what only berlin has for the large one.
	require.Nil(t, p.ask(x.batchCreation(batch("b", true, item("cpu=2"), item("cpu=8")))).Refusal)
	require.Equal(t, "b-a=Reserved@paris b-b=Reserved@berlin", x.phases())
}

func TestATakenNameRefusesAnAtomicBatchWholeAndElseThatItem(t *testing.T) {
	t.Parallel()
	x, p := threeClusters(t)
	require.Nil(t, p.ask(x.creation(reservation("train-b", "cpu=1"))).Refusal)
	refused := p.ask(x.batchCreation(batch("train", true, item("cpu=1"), item("cpu=1")))).Refusal
	require.Equal(t, fsm.RefusedExists, refused.Kind)
	require.Equal(t, "reservations/rome/train-b", refused.Key)
	require.Nil(t, x.batchRow("train"))

	require.Nil(t, p.ask(x.batchCreation(batch("train", false, item("cpu=1"), item("cpu=1")))).Refusal)
	status := x.batchStatus("train")
	require.Equal(t, broker.BatchPartial, status.Phase)
	require.Equal(t, "1/2 Reserved, 1 Failed: the name train-b is taken by another reservation", status.Message)
	require.Nil(t, x.get("train-b").Status.PartOf)
}

func TestABatchOfAThousandTakesSeveralEntriesAndIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=900,memory=32Ti", "0.1")
	p := x.planner(Config{})
	items := make([]broker.ReservationSpec, broker.MaxBatchItems)
	for i := range items {
		items[i] = item("cpu=1")
	}
	b := batch("big", false, items...)
	in := x.batchCreation(b)
	p.submit(in)
	p.enter(p.plan())
	require.Equal(t, broker.BatchPending, x.batchStatus("big").Phase)
	require.Empty(t, x.answers[in])

	// Another leader goes on from the state, and the node asks again.
	p.begin()
	p.run()
	require.Nil(t, x.answer(in).Refusal)
	require.Equal(t, "900/1000 Reserved, 100 Failed: berlin lacks cpu", x.batchStatus("big").Message)
	require.Zero(t, x.available("berlin", "cpu"))

	// The same name and spec: the same answer, nothing twice. Another spec: refused.
	again := x.batchCreation(b)
	require.Nil(t, p.ask(again).Refusal)
	b.Spec.Items = b.Spec.Items[:1]
	require.Equal(t, fsm.RefusedExists, p.ask(x.batchCreation(b)).Refusal.Kind)
	require.Len(t, strings.Fields(x.phases()), 1000)

	// A deletion that begins under one leader is ended by the next, though nobody asks again.
	gone := x.deletion(x.batchRow("big"))
	p.submit(gone)
	p.enter(p.plan())
	left := len(strings.Fields(x.phases()))
	require.Less(t, left, 1000)
	require.Positive(t, left)
	p.begin()
	p.intents, p.open = nil, map[*cluster.Intent]bool{}
	p.run()
	require.Empty(t, x.phases())
	require.Nil(t, x.batchRow("big"))
	require.EqualValues(t, 900_000, x.available("berlin", "cpu"))
}

func TestWhatABatchHasLeftComesBeforeLowerPrioritiesAndLetsItsEqualsPast(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		priority int32
		want     string
	}{
		{"lower", 4, "b-a=Reserved@berlin b-b=Reserved@berlin b-c=Reserved@berlin b-d=Reserved@berlin one=Failed"},
		{"equal", 5, "b-a=Reserved@berlin b-b=Reserved@berlin b-c=Reserved@berlin b-d=Failed one=Reserved@berlin"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			x := newExchange(t)
			x.cluster("berlin", "cpu=4", "0.1")
			p := x.planner(Config{chunkItems: 2})
			p.submit(x.batchCreation(batch("b", false, item("cpu=1", priority(5)), item("cpu=1", priority(5)), item("cpu=1", priority(5)), item("cpu=1", priority(5)))),
				x.creation(reservation("one", "cpu=1", priority(tc.priority))))
			p.run()
			require.Equal(t, tc.want, x.phases())
		})
	}
}

func TestARepeatedBatchLetsNothingPastWhatAnotherHasLeft(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=5", "0.1")
	p := x.planner(Config{chunkItems: 2})
	known := batch("a", false, item("cpu=1", priority(4)))
	require.Nil(t, p.ask(x.batchCreation(known)).Refusal)
	p.submit(x.batchCreation(batch("b", false, item("cpu=1", priority(5)), item("cpu=1", priority(5)), item("cpu=1", priority(5)), item("cpu=1", priority(5)))),
		x.batchCreation(known), x.creation(reservation("one", "cpu=1", priority(3))))
	p.run()
	require.Equal(t, "a-a=Reserved@berlin b-a=Reserved@berlin b-b=Reserved@berlin b-c=Reserved@berlin b-d=Reserved@berlin one=Failed", x.phases())
}

func TestAnAtomicBatchLargerThanAStepIsNotStarvedByWhatEnds(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=900,memory=32Ti", "0.1")
	p := x.planner(Config{})
	require.Nil(t, p.ask(x.creation(reservation("short", "cpu=1", duration("1m")))).Refusal)
	x.now += minute
	items := make([]broker.ReservationSpec, broker.MaxAtomicItems)
	for i := range items {
		items[i] = item("cpu=1")
	}
	p.submit(x.batchCreation(batch("wide", true, items...)))
	require.Len(t, p.plan().Propose, 2, "the lease that ends, and the batch")
}

func TestAnAtomicBatchOfTheMostItemsFitsOneEntry(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	for i := range 10 {
		x.cluster(fmt.Sprintf("a-cluster-with-a-long-name-%d", i), "cpu=80,memory=32Ti", "0.1")
	}
	p := x.planner(Config{})
	items := make([]broker.ReservationSpec, broker.MaxAtomicItems)
	for i := range items {
		items[i] = item("cpu=1,memory=8Gi,nvidia.com/gpu=0")
		delete(items[i].RequestedResources, "nvidia.com/gpu")
	}
	b := batch("wide", true, items...)
	b.Spec.Duration = "1h"
	// x.apply holds entries to 256 KiB, as Raft's heartbeats would like it.
	require.Nil(t, p.ask(x.batchCreation(b)).Refusal)
	require.Equal(t, "128/128 Reserved", x.batchStatus("wide").Message)
	require.Nil(t, p.ask(x.batchEdit("wide", func(b *broker.ReservationBatch) { b.Spec.Duration = "2h" })).Refusal)
	x.consistent()
	require.Equal(t, "2h", x.get("wide-a").Spec.Duration)
	x.now += 2 * hour
	p.run()
	require.Equal(t, broker.BatchReleased, x.batchStatus("wide").Phase)
	require.Nil(t, p.ask(x.deletion(x.batchRow("wide"))).Refusal)
	require.Empty(t, x.phases())
}

func TestAnAtomicBatchBeyondOneEntryIsTooLarge(t *testing.T) {
	t.Parallel()
	x, p := threeClusters(t)
	items := make([]broker.ReservationSpec, broker.MaxAtomicItems)
	for i := range items {
		items[i] = item("cpu=1m")
		for j := range 30 {
			name := corev1.ResourceName(fmt.Sprintf("example.com/%s-%d", strings.Repeat("r", 40), j))
			items[i].RequestedResources[name] = list("x=1")["x"]
		}
	}
	for _, id := range someClusters {
		resources := "cpu=8"
		for name := range items[0].RequestedResources {
			if name != "cpu" {
				resources += "," + string(name) + "=1000"
			}
		}
		x.report(id, resources, "")
	}
	p.run()
	_, dry := DecideBatch(x.state, batch("fat", true, items...), x.now)
	refused := p.ask(x.batchCreation(batch("fat", true, items...))).Refusal
	require.NotNil(t, dry)
	require.Equal(t, refused.Lack.Resource, dry.Lack.Resource)
	require.InDelta(t, refused.Lack.Requested, dry.Lack.Requested, 256, "the namespace and the request's id are beside it")
	require.Equal(t, fsm.RefusedInvalid, refused.Kind)
	require.Equal(t, store.LackBytes, refused.Lack.Resource)
	require.Greater(t, refused.Lack.Requested, refused.Lack.Available)
	require.Nil(t, x.batchRow("fat"))
	require.EqualValues(t, 8000, x.available("berlin", "cpu"))
}

func TestALostProviderEndsAnAtomicBatchWhole(t *testing.T) {
	t.Parallel()
	x, p := threeClusters(t)
	require.Nil(t, p.ask(x.batchCreation(batch("train", true, item("cpu=4", target("berlin")), item("cpu=2", target("paris"))))).Refusal)
	x.advertise("paris", broker.ClusterAdvertisementSpec{Lending: broker.Lending{Withdrawn: true}})
	p.run()
	status := x.batchStatus("train")
	require.Equal(t, broker.BatchReleased, status.Phase)
	require.Equal(t, "0/2 Reserved, 2 Released: paris has withdrawn its offer", status.Message)
	require.Equal(t, "train-a=Released train-b=Released", x.phases())
	require.Equal(t, []string{"Reserved", reasonWithdrawn}, x.events("train"))

	loose := batch("loose", false, item("cpu=1", target("berlin")), item("cpu=1", target("tokyo")))
	require.Nil(t, p.ask(x.batchCreation(loose)).Refusal)
	x.advertise("tokyo", broker.ClusterAdvertisementSpec{Lending: broker.Lending{Withdrawn: true}})
	p.run()
	x.now += refreshDelay
	p.run()
	require.Equal(t, "1/2 Reserved, 1 Released: tokyo has withdrawn its offer", x.batchStatus("loose").Message)
}

func TestAWithdrawalTakenBackMeanwhileEndsNoWhole(t *testing.T) {
	t.Parallel()
	x, p := threeClusters(t)
	require.Nil(t, p.ask(x.batchCreation(batch("train", true, item("cpu=4", target("berlin")), item("cpu=2", target("paris"))))).Refusal)
	require.Nil(t, p.ask(x.creation(reservation("whole", "cpu=12", split(3, "cpu=1")))).Refusal)
	held := x.phases()
	x.advertise("paris", broker.ClusterAdvertisementSpec{Lending: broker.Lending{Withdrawn: true}})
	out := p.plan()
	require.NotEmpty(t, out.Propose)
	x.advertise("paris", broker.ClusterAdvertisementSpec{})
	p.enter(out)
	p.run()
	require.Equal(t, held, x.phases())
}

func TestABatchFollowsItsItemsAndGoesWithTheLast(t *testing.T) {
	t.Parallel()
	x, p := threeClusters(t)
	b := batch("b", false, item("cpu=1", duration("1m")), item("cpu=1"), item("cpu=9", waitFor("1h")), item("cpu=64"))
	require.Nil(t, p.ask(x.batchCreation(b)).Refusal)
	require.Equal(t, "2/4 Reserved, 1 Pending, 1 Failed: tokyo lacks cpu", x.batchStatus("b").Message)
	x.report("tokyo", "cpu=16,memory=32Gi", "")
	p.run()
	x.now += minute
	p.run()
	x.delete("b-b")
	p.run()
	x.now += refreshDelay
	p.run()
	status := x.batchStatus("b")
	require.Equal(t, broker.BatchPartial, status.Phase)
	require.Equal(t, "1/4 Reserved, 2 Released: the reservation ended as asked, 1 Failed: tokyo lacks cpu", status.Message)
	require.Equal(t, "tokyo", status.Results[2].TargetClusterID)
	x.delete("b-c")
	p.run()
	x.now += refreshDelay
	p.run()
	require.Equal(t, broker.BatchReleased, x.batchStatus("b").Phase)
	x.now += 24 * hour
	p.run()
	require.Nil(t, x.batchRow("b"), "kept for a day")
}

func TestASplitReservationTakesTheCheapestFirst(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, resources, least string
		most                   int32
		want                   []string
	}{
		{"one cluster is enough", "cpu=6", "cpu=1", 3, []string{"6@berlin"}},
		{"the rest on the next", "cpu=12", "cpu=1", 3, []string{"8@berlin", "4@paris"}},
		{"a rest is at least a piece", "cpu=9", "cpu=3", 3, []string{"6@berlin", "3@paris"}},
		{"all three", "cpu=20,memory=20Gi", "cpu=1", 3, []string{"8@berlin", "8@paris", "4@tokyo"}},
		{"too few pieces", "cpu=20", "cpu=1", 2, nil},
		{"pieces too large", "cpu=20", "cpu=9", 3, nil},
		{"in proportion", "cpu=4,memory=64Gi", "cpu=1", 2, []string{"2@berlin", "2@paris"}},
		{"in proportion where enough is left for a piece", "cpu=9,memory=9Gi", "cpu=3", 3, []string{"6@berlin", "3@paris"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			x, p := threeClusters(t)
			r := reservation("whole", tc.resources, split(tc.most, tc.least), duration("1h"))
			dry := Decide(x.state, r, x.now)
			require.Nil(t, p.ask(x.creation(r)).Refusal)
			x.consistent()
			require.Equal(t, tc.want, x.sharesOf("whole"))
			got := x.get("whole").Status
			require.True(t, equality.Semantic.DeepEqual(dry.Pieces, got.Pieces))
			require.Equal(t, dry.Message, got.Message)
			if tc.want == nil {
				require.Equal(t, broker.ReservationFailed, got.Phase)
				require.Equal(t, "whole=Failed", x.phases())
				return
			}
			require.Equal(t, broker.ReservationReserved, got.Phase)
			require.NotEmpty(t, got.PricePerHour)
			ratio := func(of corev1.ResourceList) float64 {
				return of.Memory().AsApproximateFloat64() / of.Cpu().AsApproximateFloat64()
			}
			for _, piece := range got.Pieces {
				require.InDelta(t, ratio(r.Spec.RequestedResources), ratio(piece.RequestedResources), 1)
			}
		})
	}
}

func TestPiecesAreExtendedEndedAndDeletedWithTheWhole(t *testing.T) {
	t.Parallel()
	x, p := threeClusters(t)
	require.Nil(t, p.ask(x.creation(reservation("whole", "cpu=12", split(3, "cpu=1"), duration("1h")))).Refusal)
	fence := x.get("whole-1").Status.Fence
	require.Positive(t, fence)
	require.Zero(t, x.get("whole").Status.Fence, "it holds nothing itself")

	longer := func(name string) *cluster.Intent {
		return x.edit(name, func(r *broker.Reservation) { r.Spec.Duration = "2h" })
	}
	require.Equal(t, fsm.RefusedInvalid, p.ask(longer("whole-1")).Refusal.Kind, "not alone")
	require.Nil(t, p.ask(longer("whole")).Refusal)
	x.consistent()
	require.Equal(t, "2h", x.get("whole-2").Spec.Duration)
	require.Equal(t, fence, x.get("whole-1").Status.Fence)

	require.Nil(t, p.ask(x.deletion(x.row("whole"))).Refusal)
	require.Empty(t, x.phases())

	require.Nil(t, p.ask(x.creation(reservation("other", "cpu=12", split(3, "cpu=1"), duration("1h")))).Refusal)
	x.advertise("paris", broker.ClusterAdvertisementSpec{Lending: broker.Lending{Withdrawn: true}})
	p.run()
	require.Equal(t, "other=Released other-1=Released other-2=Released", x.phases())
	require.EqualValues(t, 8000, x.available("berlin", "cpu"))
	x.now += 24 * hour
	p.run()
	require.Empty(t, x.phases())
}

// What a dry-run says of a batch is what a create then gets.
func TestADryRunOfABatchSaysWhatACreateGets(t *testing.T) {
	t.Parallel()
	for _, atomic := range []bool{true, false} {
		x, p := threeClusters(t)
		require.Nil(t, p.ask(x.creation(reservation("b-b", "cpu=2"))).Refusal)
		b := batch("c", atomic, item("cpu=8"), item("cpu=7"), item("cpu=1"), item("memory=1Gi"))
		if !atomic {
			b.Name = "b"
			b.Spec.Items[2].Spec.Priority = 5
			b.Spec.Items[3].Spec.RequestedResources = list("cpu=64")
		}
		dry, refusal := DecideBatch(x.state, b, x.now)
		require.Nil(t, refusal)
		require.Nil(t, p.ask(x.batchCreation(b)).Refusal)
		require.Equal(t, dry.Results, x.batchStatus(b.Name).Results)
		require.Equal(t, dry.Message, x.batchStatus(b.Name).Message)
	}
}
