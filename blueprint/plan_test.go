package blueprint

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

func TestAPlanIsWhatApplyThenDoes(t *testing.T) {
	t.Parallel()
	cases, changes, skipped := 0, 0, 0
	check := func(t *rapid.T) {
		x := newExchange(t)
		federate(t, x)
		other := randomSpec(t, "b")
		other.Spec.Slices = other.Spec.Slices[:1]
		if s := &other.Spec.Slices[0]; s.Instances == nil {
			s.Instances, s.MinInstances, s.MaxInstances = s.MinInstances, nil, nil
		}
		other.Spec.Reconciliation, other.Spec.MaxMoves = "", nil
		x.create(other)
		x.rest()
		if strings.Contains(x.get("b").Status.Message, "no place") {
			x.delete(x.key("b")) // it would take what the other leaves
			x.rest()
		}
		if rapid.Bool().Draw(t, "an update") {
			x.create(randomSpec(t, "a"))
			x.rest()
		}
		b := randomSpec(t, "a")
		if row := x.state.Row(x.key("a")); row != nil {
			b.UID, b.Generation = x.get("a").UID, x.get("a").Generation+1
			b.Status = x.get("a").Status
			for i := range b.Spec.Slices { // another size waits for its turn, as another version does
				if old := x.get("a").Spec.Slices; i < len(old) {
					b.Spec.Slices[i].Resources = old[i].Resources
				}
			}
		}
		want := x.byPlaceOf("a")
		preview := Plan(Policy{Rebalance: true}, x.state, b, x.now)
		for _, c := range preview.Changes {
			require.EqualValues(t, want[c.Slice+"@"+c.ClusterID], c.Before)
			if want[c.Slice+"@"+c.ClusterID] = int(c.After); c.After == 0 {
				delete(want, c.Slice+"@"+c.ClusterID)
			}
			changes++
		}
		b.Status = broker.BlueprintStatus{}
		x.create(b)
		for _, task := range x.reconcile("a").tasks {
			for at, n := range task.counts() {
				if task.next[at] < n && !x.reconcile("a").aggressive() {
					skipped++
					t.Skip("something has to leave first, and then the first room that is free is taken")
				}
			}
		}
		x.rest()
		require.Equal(t, want, x.byPlaceOf("a"))
		status := x.get("a").Status
		require.Equal(t, len(preview.Unplaced) > 0, strings.Contains(status.Message, "have no place"), status.Message)
		cases++
	}
	enough := 1000
	if underRace {
		enough = 100
	}
	for cases < enough {
		rapid.Check(t, check)
	}
	require.Positive(t, changes)
	t.Logf("%d cases, %d changes; %d skipped", cases, changes, skipped)
}
