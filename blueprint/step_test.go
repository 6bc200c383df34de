package blueprint

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
)

// A few blueprints of a thousand shares are as much as many small ones.
func TestAStepLooksAtSoManySharesOnly(t *testing.T) {
	t.Parallel()
	const owners, each = 20, broker.MaxBlueprintInstances
	x := newExchange(t)
	x.cluster("rome", "cpu=8", "")
	x.run()
	term := x.term.(*term)
	for i := range owners { // blueprints that are gone, whose slices are on their way out
		owner := ownerKey(x.key(fmt.Sprintf("b%02d", i)), "uid")
		for j := range each {
			s := &share{object: &broker.Slice{}, record: record{Blueprint: "b", UID: "uid", Cluster: "rome"}}
			s.object.Spec = broker.SliceSpec{ClusterID: "rome", Command: broker.SliceUnload}
			s.row = &fsm.Row{Key: broker.SliceKey("team", fmt.Sprintf("s%d-%d", i, j)), Ledger: &fsm.Ledger{}}
			term.shares[s.row.Key] = s
			term.owned.add(owner, s.row.Key)
		}
		term.touch(owner)
	}
	left, steps := owners, 0
	for ; left > 0; steps++ {
		out := x.plan()
		require.Empty(t, out.Propose)
		looked := left - len(term.round)
		require.Positive(t, looked)
		require.Less(t, (looked-1)*each, maxShares, "the last one may go beyond")
		if left = len(term.round); left > 0 {
			require.Equal(t, x.now, out.Wake, "the others follow at once")
		}
	}
	require.Greater(t, steps, 1)
}

// A cluster that comes and goes makes nobody look at blueprints that have nothing there and want nothing.
func TestAFlappingClusterConcernsOnlyWhoIsThereOrWantsToBe(t *testing.T) {
	t.Parallel()
	looks := map[string]int{}
	x := newExchange(t, func(c *Config) {
		c.Observe = func(o Observation) {
			if o.Event == EventReconciled {
				looks[o.Name]++
			}
		}
	})
	x.cluster("berlin", "cpu=100", "")
	tokyo := x.cluster("tokyo", "cpu=8", "")
	tokyo.labels = map[string]string{"tier": "gold"}
	tokyo.advertise()
	only := func(b *broker.Blueprint, key, value string) {
		b.Spec.Slices[0].ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
		x.create(b)
	}
	x.agents["berlin"].labels = map[string]string{"tier": "silver"}
	x.agents["berlin"].advertise()
	for i := range 20 {
		only(blueprint(fmt.Sprintf("quiet%02d", i), "web=1*cpu=1"), "tier", "silver")
	}
	only(blueprint("there", "web=1*cpu=1"), "tier", "gold")
	only(blueprint("wanting", "web=1*cpu=1"), "tier", "bronze")
	moving := blueprint("moving", "web=1*cpu=1")
	moving.Spec.Reconciliation = broker.ReconcileAggressive
	only(moving, "tier", "silver")
	x.rest()
	clear(looks)
	const flaps = 10
	for range flaps {
		for _, up := range []bool{false, true} {
			x.now += second
			tokyo.up = up
			tokyo.advertise()
			x.rest()
		}
	}
	for name, n := range looks {
		require.NotContains(t, name, "quiet", "looked at %d times", n)
	}
	for _, name := range []string{"there", "wanting", "moving"} {
		require.GreaterOrEqual(t, looks[name], 2*flaps, name)
	}
	require.Equal(t, "web@tokyo=1", x.placed("there"))
	x.agents["berlin"].up = false
	x.agents["berlin"].advertise()
	x.rest()
	for i := range 20 {
		require.Equal(t, broker.BlueprintDegraded, x.get(fmt.Sprintf("quiet%02d", i)).Status.Phase)
	}
}
