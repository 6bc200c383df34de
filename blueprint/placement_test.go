package blueprint

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

func TestALostClusterMovesWhatIsLostAndNothingElse(t *testing.T) {
	t.Parallel()
	moved := 0
	rapid.Check(t, func(t *rapid.T) {
		x := newExchange(t)
		federate(t, x)
		b := randomSpec(t, "a")
		b.Spec.Reconciliation, b.Spec.MaxMoves = broker.ReconcileConservative, nil
		for i := range b.Spec.Slices {
			b.Spec.Slices[i].Affinity, b.Spec.Slices[i].AntiAffinity = nil, nil
		}
		x.create(b)
		x.rest()
		if x.get("a").Status.Phase != broker.BlueprintActive {
			t.Skip("not all of it fits")
		}
		before := x.byPlace()
		dead := rapid.SampledFrom(slices.Sorted(maps.Keys(x.agents))).Draw(t, "dead")
		x.agents[dead].up = false
		x.agents[dead].advertise()
		x.rest()
		lost, gained := 0, 0
		for place, n := range before {
			if strings.HasSuffix(place, "@"+dead) {
				lost += n
			}
		}
		for place, n := range x.byPlace() {
			require.GreaterOrEqual(t, n, before[place], "%s was moved without need", place)
			gained += n - before[place]
		}
		elastic := slices.ContainsFunc(b.Spec.Slices, func(s broker.BlueprintSlice) bool { return s.Instances == nil })
		if !elastic && !strings.Contains(x.get("a").Status.Message, "no place: ") {
			require.Equal(t, lost, gained)
		}
		moved += gained
		after := x.placed("a")
		x.agents[dead].up = true
		x.agents[dead].advertise()
		x.rest()
		x.rested()
		if gained == lost && !elastic {
			require.Equal(t, after, x.placed("a"), "its return moves nothing")
		}
	})
	require.Positive(t, moved)
}

// byPlace is instances by slice@cluster of blueprint a, on clusters that are up.
func (x *exchange) byPlace() map[string]int {
	places := map[string]int{}
	for _, s := range x.rows() {
		if x.agents[s.record.Cluster].up || s.record.Instances > 0 {
			places[s.record.Slice+"@"+s.record.Cluster] += s.record.Instances
		}
	}
	return places
}

// Whatever happens that takes nothing from a Conservative blueprint moves nothing of it.
func TestConservativeMovesNothingThatNeedNotMove(t *testing.T) {
	t.Parallel()
	happened := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		x := newExchange(t)
		federate(t, x)
		b := randomSpec(t, "a")
		b.Spec.Reconciliation, b.Spec.MaxMoves = "", nil
		x.create(b)
		x.rest()
		before := x.byPlaceOf("a")
		if len(before) == 0 {
			t.Skip("nothing has a place")
		}
		anyone := func() *agent {
			return x.agents[rapid.SampledFrom(slices.Sorted(maps.Keys(x.agents))).Draw(t, "cluster")]
		}
		for range rapid.IntRange(1, 8).Draw(t, "events") {
			what := rapid.SampledFrom([]string{"join", "grow", "cheaper", "cordon", "other", "gone", "strategy", "more", "leader", "resync"}).Draw(t, "what")
			switch what {
			case "join":
				x.cluster(fmt.Sprintf("aachen%d", len(x.agents)), "cpu=32,memory=64Gi", "0.01")
			case "grow":
				a := anyone()
				a.allocatable = a.allocatable.Add(amounts("cpu=4,memory=8Gi"))
				a.report()
			case "cheaper", "cordon":
				a := anyone()
				a.spec.Cost = map[string]string{"currency": "EUR", "cpu": "0.01"}
				a.spec.Lending.Cordoned = what == "cordon"
				a.advertise()
			case "other":
				other := randomSpec(t, "b")
				other.Spec.Reconciliation, other.Spec.MaxMoves = "", nil
				x.create(other)
			case "gone":
				if x.state.Row(x.key("b")) != nil {
					x.delete(x.key("b"))
				}
			case "strategy":
				x.edit("a", func(s *broker.BlueprintSpec) {
					s.Strategy = rapid.SampledFrom([]broker.BlueprintStrategy{broker.StrategySpread, broker.StrategyPack, broker.StrategyCheapest}).Draw(t, "strategy")
				})
			case "more":
				x.edit("a", func(s *broker.BlueprintSpec) {
					if one := &s.Slices[0]; one.Instances != nil {
						more := *one.Instances + 1
						one.Instances = &more
					}
				})
			case "leader":
				x.begin()
			case "resync":
				x.now += millis(DefaultResync)
			}
			happened[what]++
			x.onEntry = func() {
				x.consistent()
				for place, n := range x.byPlaceOf("a") {
					require.GreaterOrEqual(t, n, before[place], "%s was moved by %q", place, what)
				}
			}
			x.rest()
			for place, n := range before {
				require.GreaterOrEqual(t, x.byPlaceOf("a")[place], n, "%s was moved by %q", place, what)
			}
			before = x.byPlaceOf("a")
		}
	})
	require.Len(t, happened, 10, "%v", happened)
}

func TestAggressiveEndsAtTheFreshPlacement(t *testing.T) {
	t.Parallel()
	moved, fits := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		x := newExchange(t)
		federate(t, x)
		for range 3 { // a history that leaves instances where they would not be put now
			b := randomSpec(t, "a")
			b.Spec.Reconciliation, b.Spec.MaxMoves = broker.ReconcileConservative, nil
			x.create(b)
			x.rest()
			a := x.agents[rapid.SampledFrom(slices.Sorted(maps.Keys(x.agents))).Draw(t, "cluster")]
			a.up = !a.up
			a.advertise()
			x.rest()
		}
		before := x.placed("a")
		moves := rapid.Int32Range(1, 3).Draw(t, "moves")
		x.edit("a", func(s *broker.BlueprintSpec) {
			s.Reconciliation, s.MaxMoves = broker.ReconcileAggressive, &moves
		})
		x.rest()
		x.rested()
		ended := x.placed("a")
		if ended != before {
			moved++
		}
		// Where everything of it is gone, it is placed anew. Clusters that are down keep what they
		// held, and take nothing: they don't matter.
		b := x.get("a").DeepCopy()
		x.delete(x.key("a"))
		x.rest()
		b.Status = broker.BlueprintStatus{}
		x.create(b)
		x.rest()
		if x.get("a").Status.Phase == broker.BlueprintActive { // else what has no better place stayed where it was
			fits++
			require.Equal(t, ended, x.placed("a"))
		}
	})
	require.Positive(t, moved)
	require.Positive(t, fits)
}

func (x *exchange) byPlaceOf(name string) map[string]int {
	places := map[string]int{}
	for _, s := range x.rows() {
		if s.record.Blueprint == name && s.record.Instances > 0 {
			places[s.record.Slice+"@"+s.record.Cluster] += s.record.Instances
		}
	}
	return places
}
