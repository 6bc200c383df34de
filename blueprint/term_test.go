package blueprint

import (
	"testing"

	"github.com/stretchr/testify/require"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

func TestABlueprintBecomesActiveAndGoesWithoutATrace(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	for _, id := range []string{"berlin", "paris", "rome"} {
		x.cluster(id, "cpu=8,memory=32Gi", "0.5")
	}
	x.create(blueprint("shop", "web=7*cpu=1", "db=1*cpu=2,memory=4Gi"))
	x.run()
	require.Equal(t, "db@paris=1 web@berlin=3 web@paris=2 web@rome=2", x.placed("shop"))
	require.Equal(t, broker.BlueprintProgressing, x.get("shop").Status.Phase)
	for _, s := range x.rows() {
		require.Equal(t, broker.SliceLoad, s.object.Spec.Command)
		require.NotEmpty(t, s.held(), "capacity is held before anything is loaded")
	}
	x.rest()
	status := x.get("shop").Status
	require.Equal(t, broker.BlueprintActive, status.Phase, status.Message)
	require.EqualValues(t, 8, status.Ready)
	require.NotNil(t, status.ActivatedAt)
	require.Len(t, status.History, 1)
	require.Equal(t, "3.50", status.Slices[0].PricePerHour)
	require.Zero(t, x.refusals)

	x.delete(x.key("shop"))
	x.rest()
	require.Empty(t, x.rows())
	for _, a := range x.agents {
		require.Empty(t, a.work)
		require.Empty(t, x.state.Row(a.key()).Account.Held)
	}
}
