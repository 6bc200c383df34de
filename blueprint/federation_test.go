package blueprint

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// A cluster that has as many holds as an account may have takes no new ones: Apply would refuse each.
func TestAClusterWithAllTheHoldsItMayHaveTakesNoMore(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("paris", "cpu=100", "")
	x.cluster("rome", "cpu=100", "")
	x.create(blueprint("old", "web=1*cpu=1"))
	x.rest()
	require.Equal(t, "web@paris=1", x.placed("old"))
	fill := func(from, to int) {
		for from < to {
			entry := fsm.Entry{Time: x.now}
			for ; from < to && len(entry.Txns) < 1000; from++ {
				holder := broker.ReservationKey("x", fmt.Sprintf("r%d", from))
				entry.Txns = append(entry.Txns, fsm.Txn{
					Writes: []fsm.Write{{Key: holder, Body: []byte("{}"), Ledger: &fsm.Ledger{Phase: store.PhaseReserved}}},
					Moves:  []fsm.Move{{Op: fsm.MoveHold, Account: broker.AdvertisementKey("paris"), Holder: holder, Amounts: amounts("cpu=1m")}},
				})
			}
			for _, result := range x.apply(entry) {
				require.Nil(t, result.Refusal)
			}
		}
	}
	// One is left, for one of two instances that one Step places.
	fill(0, fsm.MaxHoldsPerAccount-2)
	x.create(blueprint("new", "db=1*cpu=1", "web=1*cpu=1"))
	x.rest()
	require.Equal(t, "db@paris=1 web@rome=1", x.placed("new"))
	x.create(blueprint("more", "web=2*cpu=1"))
	x.rest()
	require.Equal(t, "web@rome=2", x.placed("more"))
	require.Zero(t, x.refusals)

	x.edit("old", func(s *broker.BlueprintSpec) { s.Slices[0].Resources = list("cpu=2") })
	x.rest()
	require.Equal(t, broker.BlueprintActive, x.get("old").Status.Phase, "a hold that is there may grow")

	x.agents["rome"].spec.Lending.Cordoned = true
	x.agents["rome"].advertise()
	x.create(blueprint("last", "web=1*cpu=1"))
	x.rest()
	require.Contains(t, x.get("last").Status.Message, "paris: has as many holds as a cluster may have")
	x.delete(broker.ReservationKey("x", "r0"))
	x.rest()
	require.Equal(t, "web@paris=1", x.placed("last"), "it is placed once a hold is free")
}
