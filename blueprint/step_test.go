package blueprint

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

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
		term.owned[owner] = map[string]struct{}{}
		for j := range each {
			s := &share{object: &broker.Slice{}, record: record{Blueprint: "b", UID: "uid", Cluster: "rome"}}
			s.object.Spec = broker.SliceSpec{ClusterID: "rome", Command: broker.SliceUnload}
			s.row = &fsm.Row{Key: broker.SliceKey("team", fmt.Sprintf("s%d-%d", i, j)), Ledger: &fsm.Ledger{}}
			term.shares[s.row.Key] = s
			term.owned[owner][s.row.Key] = struct{}{}
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
