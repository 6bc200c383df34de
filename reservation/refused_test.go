package reservation

import (
	"testing"

	"github.com/stretchr/testify/require"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// In one Step a grant leaves nothing for the next in order. Where Apply refuses it, since a report or
// another room came first, the next may fit what is left.
func TestAWaiterIsGrantedWhatARefusedGrantLeaves(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=1", "0.1")
	p := x.planner(Config{})
	p.submit(
		x.creation(reservation("small", "cpu=3", waitFor("1h"))),
		x.creation(reservation("large", "cpu=8", priority(1), waitFor("1h"))),
	)
	p.run()
	x.report("berlin", "cpu=8", "")
	out := p.plan()
	x.report("berlin", "cpu=8", "cpu=4") // pods came before the entry did
	p.enter(out)
	p.run()
	require.Equal(t, broker.ReservationReserved, x.get("small").Status.Phase)
}
