package reservation

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/store"
)

func (x *exchange) short() string {
	var names []string
	for row := range x.state.Scan(broker.ReservationsPrefix) {
		if row.Ledger != nil && isShort(row.Ledger) {
			names = append(names, store.ReservationOf(row).Name)
		}
	}
	return strings.Join(names, " ")
}

func TestAShrunkAccountMarksTheLowestAndYoungestUntilTheRestFit(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=10,memory=10Gi", "")
	p := x.planner(Config{})
	for _, r := range []*broker.Reservation{
		reservation("low", "cpu=2", priority(-1)), reservation("memory", "memory=1Gi", priority(-9)),
		reservation("old", "cpu=2"), reservation("young", "cpu=2"), reservation("high", "cpu=4", priority(9)),
	} {
		p.submit(x.creation(r))
		p.run()
	}
	require.Empty(t, x.short())
	for _, c := range []struct{ cpu, want string }{
		{"cpu=9,memory=10Gi", "low"},
		{"cpu=7,memory=10Gi", "low young"},
		{"cpu=5,memory=10Gi", "low old young"},
		{"cpu=1,memory=10Gi", "high low old young"},
		{"cpu=8,memory=10Gi", "low"},
		{"cpu=10,memory=10Gi", ""},
	} {
		x.now += second
		x.report("berlin", c.cpu, "")
		p.run()
		require.Equal(t, c.want, x.short(), c.cpu)
		p.begin() // a new leader finds nothing to change
		before := x.state.Revision()
		p.run()
		require.Equal(t, before, x.state.Revision())
	}
	require.Equal(t, "high=Reserved@berlin low=Reserved@berlin memory=Reserved@berlin old=Reserved@berlin young=Reserved@berlin", x.phases())
	require.Equal(t, []string{"Reserved", "CapacityShort", "CapacityRestored"}, x.events("high"))
	c := x.get("low").Status.Conditions
	i := slices.IndexFunc(c, func(m metav1.Condition) bool { return m.Type == conditionShort })
	require.GreaterOrEqual(t, i, 0)
	require.EqualValues(t, "False", c[i].Status)
	x.settled()
}

func TestTheEndOfAHolderRestoresTheOthers(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=4", "")
	p := x.planner(Config{})
	p.submit(x.creation(reservation("a", "cpu=2")), x.creation(reservation("b", "cpu=2", priority(1))))
	p.run()
	x.report("berlin", "cpu=2", "")
	p.run()
	require.Equal(t, "a", x.short())
	x.delete("b")
	p.run()
	require.Empty(t, x.short())
}

func TestEventsOfOneObjectAreBounded(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=4", "")
	p := x.planner(Config{})
	p.submit(x.creation(reservation("busy", "cpu=4")))
	p.run()
	for range 12 {
		x.report("berlin", "cpu=1", "")
		p.run()
		x.report("berlin", "cpu=4", "")
		p.run()
		x.now += second
	}
	events := x.events("busy")
	require.Len(t, events, maxEventsPerObject)
	require.Equal(t, "CapacityRestored", events[len(events)-1], "the newest are kept")
	p.begin()
	p.run()
	require.Len(t, x.events("busy"), maxEventsPerObject)
}

func TestEventsAreRemovedAfterAnHour(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=4", "")
	p := x.planner(Config{})
	p.submit(x.creation(reservation("r", "cpu=1")))
	p.run()
	require.NotZero(t, p.wake)
	x.now += hour - second
	p.run()
	require.Len(t, x.events("r"), 1)
	p.begin()
	x.now += minute + second
	p.run()
	require.Empty(t, x.events("r"))
	require.Equal(t, "r=Reserved@berlin", x.phases())
	require.Zero(t, p.wake, "nothing left to wait for")
}

func TestEventsOverallAreBounded(t *testing.T) {
	t.Parallel()
	x := newEventIndex(newExchange(t).state, 0)
	for i := range maxEvents + 300 {
		x.add(store.EventsPrefix+"ns/r"+string(rune('a'+i%26))+strings.Repeat("x", i/26%400)+"."+strconv.FormatInt(int64(1_700_000_000_000+i)<<store.EventCounterBits, 16), 1_800_000_000_000)
	}
	x.doomed = nil
	x.sweep(1_700_000_000_000)
	removed := map[string]bool{}
	for {
		keys := x.take(maxEventRemovals)
		if len(keys) == 0 {
			break
		}
		require.LessOrEqual(t, len(keys), maxEventRemovals)
		for _, k := range keys {
			removed[k] = true
			x.remove(k)
		}
	}
	require.Len(t, removed, 300)
	require.Len(t, x.live, maxEvents)
	oldest := slices.MinFunc(slices.Collect(maps.Keys(x.live)), func(a, b string) int { return int(x.live[a] - x.live[b]) })
	require.EqualValues(t, 1_700_000_000_300, x.live[oldest], "the oldest went")
}

func TestAForeignEventCountsFromWhenItWasSeen(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"events/ns/x", "events/ns/x.zz", "events/ns/x.ffffffffffffffff", "events/ns/x.1"} {
		require.EqualValues(t, 5_000, eventTime(key, 5_000), key)
	}
}

func TestExplainAndDryRun(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	for _, id := range []string{"berlin", "paris", "tokyo"} {
		x.cluster(id, "cpu=4", "0.5")
	}
	p := x.planner(Config{})
	p.submit(x.creation(reservation("r", "cpu=4", target("paris"))))
	p.run()
	table := Explain(x.state, reservation("q", "cpu=2"), x.now)
	require.EqualValues(t, x.state.Revision(), table.Revision)
	require.Len(t, table.Candidates, 3)
	require.Equal(t, "resource=70,cost=30", table.Policy)
	require.Equal(t, []bool{true, true, false}, []bool{table.Candidates[0].Feasible, table.Candidates[1].Feasible, table.Candidates[2].Feasible})

	before := x.state.Hash()
	dry := Decide(x.state, reservation("q", "cpu=2", duration("1h")), x.now)
	require.Equal(t, broker.ReservationReserved, dry.Phase)
	require.Equal(t, "berlin", dry.TargetClusterID)
	require.Equal(t, int64(x.now+hour), dry.ExpiresAt.UnixMilli())
	require.Equal(t, broker.ReservationPending, Decide(x.state, reservation("q", "cpu=9", waitFor("1h")), x.now).Phase)
	require.Equal(t, broker.ReservationFailed, Decide(x.state, reservation("q", "cpu=9"), x.now).Phase)
	extended := x.get("r").DeepCopy()
	require.Equal(t, x.get("r").Status.Fence, Decide(x.state, extended, x.now).Fence, "a dry-run on one that is Reserved")
	require.Equal(t, before, x.state.Hash())
}

// Waiters that come first in the order of service are placed first, where the leader has not
// come to it yet.
func TestADryRunLeavesWaitersWhatTheyFit(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=4", "")
	p := x.planner(Config{})
	p.submit(x.creation(reservation("holder", "cpu=4")))
	p.run()
	p.submit(x.creation(reservation("waiter", "cpu=4", waitFor("1h"))))
	p.run()
	x.delete("holder")
	require.Equal(t, broker.ReservationFailed, Decide(x.state, reservation("q", "cpu=1"), x.now).Phase)
	require.Equal(t, broker.ReservationReserved, Decide(x.state, reservation("q", "cpu=1", priority(1)), x.now).Phase)
}
