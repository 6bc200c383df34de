package blueprint

import (
	"testing"

	"github.com/stretchr/testify/require"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// What docs/blueprints.md says of instances that may run beside those that must.
func TestWhatMayRunKeepsItsRoomUnlessTheBlueprintIsAggressive(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("rome", "cpu=4", "")
	b := blueprint("a", "web=1*cpu=1")
	one, four := int32(1), int32(4)
	web := &b.Spec.Slices[0]
	web.Instances, web.MinInstances, web.MaxInstances = nil, &one, &four
	x.create(b)
	x.rest()
	x.edit("a", func(s *broker.BlueprintSpec) {
		s.Slices = append(s.Slices, blueprint("b", "db=1*cpu=1").Spec.Slices...)
	})
	x.rest()
	require.Equal(t, "web@rome=4", x.placed("a"))
	require.Contains(t, x.get("a").Status.Message, "db: 1 of 1 instance has no place")
	x.edit("a", func(s *broker.BlueprintSpec) { s.Reconciliation = broker.ReconcileAggressive })
	x.rest()
	require.Equal(t, "db@rome=1 web@rome=3", x.placed("a"))
}
