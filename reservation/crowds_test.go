package reservation

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// fill puts so many holds of a thousandth of a core on a cluster.
func (x *exchange) fill(id string, holds int) {
	for n := 0; n < holds; {
		entry := fsm.Entry{Time: x.now}
		for ; n < holds && len(entry.Txns) < 1000; n++ {
			holder := broker.ReservationKey("crowd", fmt.Sprintf("r%d", n))
			entry.Txns = append(entry.Txns, fsm.Txn{
				Writes: []fsm.Write{{Key: holder, Body: []byte("{}"), Ledger: &fsm.Ledger{Phase: store.PhaseReserved}}},
				Moves:  []fsm.Move{{Op: fsm.MoveHold, Account: broker.AdvertisementKey(id), Holder: holder, Amounts: amounts("cpu=1m")}},
			})
		}
		for _, result := range x.apply(entry) {
			require.Nil(x.t, result.Refusal)
		}
	}
}

func TestAClusterWithAllTheHoldsItMayHaveIsPassedOver(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=1000", "0.1")
	x.cluster("paris", "cpu=1000", "0.9")
	x.fill("berlin", fsm.MaxHoldsPerAccount-1)
	p := x.planner(Config{})
	p.run()
	b := batch("crowd", false, slices.Repeat([]broker.ReservationSpec{item("cpu=1")}, 40)...)
	commands := 0
	x.onEntry = func(_, _ *fsm.State, txns []fsm.Txn) { commands += len(txns) }
	require.Nil(t, p.ask(x.batchCreation(b)).Refusal)
	require.Equal(t, "40/40 Reserved", x.batchStatus("crowd").Message)
	require.LessOrEqual(t, commands, 2)
	require.Equal(t, "berlin", x.get("crowd-a").Status.TargetClusterID)
	require.Equal(t, "paris", x.get("crowd-b").Status.TargetClusterID)

	in := x.creation(reservation("here", "cpu=1", target("berlin"), waitFor("1h")))
	require.Nil(t, p.ask(in).Refusal)
	require.Contains(t, x.get("here").Status.Message, "berlin: at the limit of 16384 holds")
	x.delete("crowd-a")
	p.run()
	require.Equal(t, broker.ReservationReserved, x.get("here").Status.Phase)
}

// Something of a higher priority comes before each Step: a large batch is granted beside it, and so is who comes
// after the batch.
func TestALargeAtomicBatchIsNotStarvedByThoseBeforeIt(t *testing.T) {
	t.Parallel()
	x, p := threeClusters(t)
	b := batch("large", true, slices.Repeat([]broker.ReservationSpec{item("cpu=1m")}, broker.MaxAtomicItems)...)
	whole, behind := x.batchCreation(b), x.creation(reservation("behind", "cpu=1m"))
	p.submit(whole, behind)
	for n := range 4 {
		p.submit(x.creation(reservation(fmt.Sprintf("before-%d", n), "cpu=1m", priority(9))))
		p.enter(p.plan())
	}
	require.Equal(t, "128/128 Reserved", x.batchStatus("large").Message)
	require.NotNil(t, x.row("behind"))
}

// Something is deleted in each Step: a large batch whose time is over ends beside it, and so does what is due after it.
func TestALargeGroupThatIsDueIsNotStarvedByWhatElseEnds(t *testing.T) {
	t.Parallel()
	x, p := threeClusters(t)
	b := batch("large", true, slices.Repeat([]broker.ReservationSpec{item("cpu=1m")}, broker.MaxAtomicItems)...)
	b.Spec.Duration = "1h"
	require.Nil(t, p.ask(x.batchCreation(b)).Refusal)
	require.Nil(t, p.ask(x.creation(reservation("after", "cpu=1m", duration("1h")))).Refusal)
	var deletions []*cluster.Intent
	for n := range 4 {
		name := fmt.Sprintf("other-%d", n)
		require.Nil(t, p.ask(x.batchCreation(batch(name, true, item("cpu=1m")))).Refusal)
		deletions = append(deletions, x.deletion(x.batchRow(name)))
	}
	x.now += hour
	for _, in := range deletions {
		p.submit(in)
		p.enter(p.plan())
	}
	require.Equal(t, broker.BatchReleased, x.batchStatus("large").Phase)
	require.Equal(t, broker.ReservationReleased, x.get("after").Status.Phase)
}

func TestABatchThatIsBeingDeletedGetsNothingMore(t *testing.T) {
	t.Parallel()
	x, _ := threeClusters(t)
	p := x.planner(Config{chunkItems: 2})
	in := x.batchCreation(batch("b", false, slices.Repeat([]broker.ReservationSpec{item("cpu=1m")}, 6)...))
	p.submit(in)
	p.enter(p.plan())
	require.Equal(t, "b-a=Reserved@berlin b-b=Reserved@berlin", x.phases())
	row := x.batchRow("b")
	b := store.BatchOf(row).DeepCopy()
	at := metav1.NewTime(timeOf(x.now))
	b.DeletionTimestamp, b.Finalizers = &at, []string{"example.com/hold"}
	body, err := store.BatchBody(b)
	require.NoError(t, err)
	x.write(fsm.Txn{Guards: []fsm.Guard{fsm.GuardBody(row)}, Writes: []fsm.Write{{Key: row.Key, Body: body}}})
	p.run()
	p.begin()
	p.run()
	require.Equal(t, "b-a=Reserved@berlin b-b=Reserved@berlin", x.phases())
	require.Nil(t, x.answer(in).Refusal)
}

// The name of an item was taken before the first chunk was applied, and then the leader was lost: who asks the next
// one with the same id gets the other items.
func TestATakenNameOfAnItemRefusesNoBatchAfterALeaderChange(t *testing.T) {
	t.Parallel()
	x, p := threeClusters(t)
	in := x.batchCreation(batch("b", false, item("cpu=1"), item("cpu=1")))
	p.submit(in)
	out := p.plan()
	body := bodyOf(reservation("b-b", "cpu=1"))
	x.write(fsm.Txn{Writes: []fsm.Write{{Key: broker.ReservationKey("rome", "b-b"), Body: body, SpecChanged: true}}})
	p.enter(out)
	p.begin()
	p.run()
	require.Nil(t, x.answer(in).Refusal)
	require.Equal(t, "1/2 Reserved, 1 Failed: the name b-b is taken by another reservation", x.batchStatus("b").Message)
}

// The first try of a deletion was refused since a part had changed, the second was done, and then the leader was lost:
// who asks the next leader again hears that it is done.
func TestADeletionThatTookTwoTriesIsAnsweredByTheNextLeader(t *testing.T) {
	t.Parallel()
	x, p := threeClusters(t)
	require.Nil(t, p.ask(x.batchCreation(batch("b", true, item("cpu=1"), item("cpu=1")))).Refusal)
	in := x.deletion(x.batchRow("b"))
	p.submit(in)
	out := p.plan()
	x.change("b-a", func(r *broker.Reservation) { r.Labels = map[string]string{"changed": "meanwhile"} })
	p.enter(out)
	p.enter(p.plan())
	require.Nil(t, x.batchRow("b"), "the second try did it")
	p.begin()
	p.run()
	require.Nil(t, x.answer(in).Refusal)
}

func TestAnExtensionIsNotRefusedSinceAPartWasLabelledMeanwhile(t *testing.T) {
	t.Parallel()
	x, p := threeClusters(t)
	b := batch("b", true, item("cpu=1"))
	b.Spec.Duration = "1h"
	require.Nil(t, p.ask(x.batchCreation(b)).Refusal)
	in := x.batchEdit("b", func(b *broker.ReservationBatch) { b.Spec.Duration = "2h" })
	p.submit(in)
	out := p.plan()
	x.change("b-a", func(r *broker.Reservation) { r.Labels = map[string]string{"changed": "meanwhile"} })
	p.enter(out)
	p.run()
	require.Nil(t, x.answer(in).Refusal)
	require.Equal(t, "2h", x.get("b-a").Spec.Duration)
	require.Equal(t, "meanwhile", x.get("b-a").Labels["changed"])
}

// What was in the way of a creation goes before the creation, which was passed on to be refused, is applied.
func TestACreationIsNeverStoredUndecided(t *testing.T) {
	t.Parallel()
	x, p := threeClusters(t)
	for name, create := range map[string]func(resources string) *cluster.Intent{
		"a reservation":   func(r string) *cluster.Intent { return x.creation(reservation("again", r)) },
		"a batch":         func(r string) *cluster.Intent { return x.batchCreation(batch("again", false, item(r))) },
		"an atomic batch": func(r string) *cluster.Intent { return x.batchCreation(batch("again", true, item(r))) },
	} {
		first, second := create("cpu=1"), create("cpu=2")
		require.Nil(t, p.ask(first).Refusal, name)
		key := first.Txn.Writes[0].Key
		p.submit(second)
		out := p.plan()
		require.Len(t, out.Propose, 1, name)
		removal := fsm.Txn{Writes: []fsm.Write{{Key: key, Delete: true}}}
		if isBatch(key) {
			removal.Writes = append(removal.Writes, fsm.Write{Key: broker.ReservationKey("rome", "again-a"), Delete: true})
		}
		x.write(removal)
		x.onEntry = func(_, after *fsm.State, _ []fsm.Txn) {
			if row := after.Row(key); row != nil {
				require.NotNil(t, row.Ledger, name)
			}
		}
		p.enter(out)
		p.run()
		require.Nil(t, x.answer(second).Refusal, name)
		require.Equal(t, store.PhaseReserved, phaseOf(x.state.Row(key)), name)
		x.onEntry = nil
		require.Nil(t, p.ask(x.deletion(x.state.Row(key))).Refusal, name)
	}
}

func TestAPartWithAFinalizerIsKeptUntilItIsGone(t *testing.T) {
	t.Parallel()
	x, p := threeClusters(t)
	require.Nil(t, p.ask(x.batchCreation(batch("b", true, item("cpu=1"), item("cpu=1")))).Refusal)
	finalize := func(list ...string) { x.change("b-a", func(r *broker.Reservation) { r.Finalizers = list }) }
	finalize("example.com/hold")
	require.Nil(t, p.ask(x.deletion(x.batchRow("b"))).Refusal)
	require.Equal(t, "b-a=Released", x.phases())
	require.NotNil(t, x.get("b-a").DeletionTimestamp)
	x.now += 100 * hour
	p.run()
	require.Equal(t, "b-a=Released", x.phases())
	finalize()
	p.run()
	require.Empty(t, x.phases())
}

func TestATakenBatchNameIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	x, p := threeClusters(t)
	require.Nil(t, p.ask(x.batchCreation(batch("b", false, item("cpu=1")))).Refusal)
	commands := 0
	x.onEntry = func(_, _ *fsm.State, txns []fsm.Txn) { commands += len(txns) }
	refused := p.ask(x.batchCreation(batch("b", false, item("cpu=2")))).Refusal
	require.Equal(t, fsm.RefusedExists, refused.Kind)
	require.Equal(t, 1, commands)
}

func TestItemsOfManyPrioritiesAreOneChunkWhereNobodyComesBetween(t *testing.T) {
	t.Parallel()
	x, p := threeClusters(t)
	b := batch("b", false, slices.Repeat([]broker.ReservationSpec{item("cpu=1m")}, 50)...)
	for i := range b.Spec.Items {
		b.Spec.Items[i].Spec.Priority = int32(i)
	}
	between := x.creation(reservation("between", "cpu=1m", priority(40)))
	p.submit(x.batchCreation(b), between)
	p.enter(p.plan())
	require.Equal(t, "10/50 Reserved, 40 undecided", x.batchStatus("b").Message, "priority 40 of the batch is younger")
	p.enter(p.plan())
	require.Equal(t, "50/50 Reserved", x.batchStatus("b").Message)
	require.Equal(t, broker.ReservationReserved, x.get("between").Status.Phase)
}

// An extension comes in while a batch of a higher priority is being decided, and in time.
func TestAnExtensionWaitsForNoBatch(t *testing.T) {
	t.Parallel()
	x, _ := threeClusters(t)
	p := x.planner(Config{chunkItems: 2})
	held := batch("held", true, item("cpu=1m"))
	held.Spec.Duration = "1h"
	require.Nil(t, p.ask(x.batchCreation(held)).Refusal)
	long := item("cpu=1m", priority(9))
	p.submit(x.batchCreation(batch("long", false, slices.Repeat([]broker.ReservationSpec{long}, 9)...)))
	p.enter(p.plan())
	in := x.batchEdit("held", func(b *broker.ReservationBatch) { b.Spec.Duration = "2h" })
	p.submit(in)
	p.enter(p.plan())
	require.Equal(t, "2h", x.get("held-a").Spec.Duration)
}

// The deletion of a batch is refused in the very Step in which the lease of an item is over, and not asked again.
func TestALeaseEndsThoughTheDeletionOfItsBatchWasRefused(t *testing.T) {
	t.Parallel()
	x, p := threeClusters(t)
	require.Nil(t, p.ask(x.batchCreation(batch("b", false, item("cpu=1", duration("1h"))))).Refusal)
	in := x.deletion(x.batchRow("b"))
	x.now += hour
	p.submit(in)
	out := p.plan()
	require.NotEmpty(t, out.Propose)
	b := store.BatchOf(x.batchRow("b")).DeepCopy()
	b.Annotations = map[string]string{"changed": "meanwhile"}
	body, err := store.BatchBody(b)
	require.NoError(t, err)
	x.write(fsm.Txn{Writes: []fsm.Write{{Key: x.batchRow("b").Key, Body: body}}})
	p.enter(out)
	p.run()
	require.NotNil(t, x.answer(in).Refusal)
	require.Equal(t, "b-a=Released", x.phases())
}
