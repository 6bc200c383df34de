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
	for name, large := range map[string]func(x *exchange, p *planner){
		"a waiter": func(x *exchange, p *planner) {
			require.Nil(t, p.ask(x.creation(reservation("large", "cpu=8", priority(1), waitFor("1h")))).Refusal)
		},
		"a split": func(x *exchange, p *planner) {
			p.submit(x.creation(reservation("large", "cpu=8", priority(1), split(2, "cpu=1"))))
		},
		"an atomic batch": func(x *exchange, p *planner) {
			b := batch("large", true, item("cpu=4"), item("cpu=4"))
			b.Spec.Priority = 1
			p.submit(x.batchCreation(b))
		},
		"a batch": func(x *exchange, p *planner) {
			p.submit(x.batchCreation(batch("large", false, item("cpu=8", priority(1)))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newExchange(t)
			x.cluster("berlin", "cpu=1", "0.1")
			p := x.planner(Config{})
			require.Nil(t, p.ask(x.creation(reservation("small", "cpu=3", waitFor("1h")))).Refusal)
			large(x, p)
			x.report("berlin", "cpu=8", "")
			out := p.plan()
			x.report("berlin", "cpu=8", "cpu=4") // pods came before the entry did
			p.enter(out)
			p.run()
			require.Equal(t, broker.ReservationReserved, x.get("small").Status.Phase)
			x.settled()
		})
	}
}
