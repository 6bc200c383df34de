package blueprint

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// told are the reasons of the events that tell of a blueprint, oldest first.
func (x *exchange) told(name string) (reasons []string) {
	for row := range x.state.Scan(store.EventsPrefix + "team/" + name + eventName + ".") {
		var e corev1.Event
		require.NoError(x.t, json.Unmarshal(row.Body, &e))
		require.NotEmpty(x.t, e.Message)
		reasons = append(reasons, e.Reason)
	}
	return reasons
}

func TestEventsTellOfPhasesAndOfWhatWasTakenBack(t *testing.T) {
	t.Parallel()
	x := shop(t)
	require.Equal(t, []string{"Progressing", "Active"}, x.told("shop"))
	const bad = "registry.example.com/web:2"
	x.agents["paris"].bad = map[string]bool{bad: true}
	x.now += second
	x.edit("shop", func(s *broker.BlueprintSpec) { s.Slices[0].Artifact = bad })
	x.rest()
	require.Equal(t, []string{"Progressing", "Active", "Progressing", "RolledBack"}, x.told("shop"))
}

// An agent that reports as fast as it can makes the exchange write no faster than it wants to.
func TestCountsAreToldNowAndThen(t *testing.T) {
	t.Parallel()
	x := shop(t)
	s := x.rows()[0]
	x.now += minute
	before := x.state.Row(x.key("shop")).FactsRev
	written := 0
	for i := range 100 {
		x.now += second / 50
		status := s.object.Status.DeepCopy()
		status.State, status.ReadyInstances = broker.SliceActivating, int32(i%3)
		facts, err := json.Marshal(status)
		require.NoError(t, err)
		x.write(fsm.Txn{Writes: []fsm.Write{{Key: s.row.Key, Facts: facts}}})
		x.run()
		if rev := x.state.Row(x.key("shop")).FactsRev; rev != before {
			written, before = written+1, rev
		}
	}
	require.GreaterOrEqual(t, written, 3)
	require.LessOrEqual(t, written, 6, "of 100 reports in two seconds")
	x.rest()
	require.EqualValues(t, 7, x.get("shop").Status.Ready, "and the last count is told")
}

// What fails is tried again and again; its status says why all the time, and is written once.
func TestWhatNeverGetsReadyIsDegradedUntilItIs(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("paris", "cpu=8", "")
	x.cluster("rome", "cpu=8", "").bad = map[string]bool{"registry.example.com/web:1": true}
	x.create(blueprint("shop", "web=2*cpu=1"))
	for range 3 {
		x.run()
		x.act()
	}
	x.now += second
	x.run()
	status := x.get("shop").Status
	require.Equal(t, broker.BlueprintProgressing, status.Phase)
	require.Contains(t, status.Message, "rome: its pods crash")
	x.rest()
	before := x.state.Row(x.key("shop"))
	status = x.get("shop").Status
	require.Equal(t, broker.BlueprintDegraded, status.Phase)
	require.Equal(t, "web: rome failed: not active in time: its pods crash", status.Message)
	for range 300 {
		x.now += second
		x.begin()
		x.run()
		x.act()
		require.Equal(t, status.Message, x.get("shop").Status.Message)
	}
	require.Greater(t, x.rows()[1].object.Spec.Attempt, int32(3), "it was tried again")
	require.Equal(t, []string{"Progressing", "Degraded"}, x.told("shop"))
	require.LessOrEqual(t, len(x.writes(x.key("shop"), before.FactsRev)), 3*int(x.rows()[1].object.Spec.Attempt), "the state there is Activating and Failed in turn")
	x.agents["rome"].bad = nil
	x.pass(2 * minute)
	require.Equal(t, broker.BlueprintActive, x.get("shop").Status.Phase)
	require.Equal(t, "2 instances are ready", x.get("shop").Status.Message)
}

// writes are the revisions after one at which a row's facts were written.
func (x *exchange) writes(key string, after fsm.Revision) (list []fsm.Revision) {
	for i := range x.changes {
		if c := &x.changes[i]; c.Key() == key && c.After != nil && c.After.FactsRev > after && (len(list) == 0 || list[len(list)-1] < c.After.FactsRev) {
			list = append(list, c.After.FactsRev)
		}
	}
	return list
}

// Words are for people: one instance is no instances, and a cluster without a price costs no "Unpriced".
func TestTextsReadAsSentences(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	b := blueprint("a", "web=1*cpu=1")
	b.Spec.Strategy = broker.StrategyCheapest
	x.create(b)
	x.rest()
	require.Equal(t, "web: 1 of 1 instance has no place: no cluster is advertised", x.get("a").Status.Message)
	x.cluster("rome", "cpu=8", "")
	x.rest()
	status := x.get("a").Status
	require.Equal(t, "1 instance is ready", status.Message)
	require.Equal(t, "no cluster with room states a price", status.Slices[0].Clusters[0].Reason)
	x.cluster("paris", "cpu=8", "0.5")
	x.edit("a", func(s *broker.BlueprintSpec) { *s.Slices[0].Instances = 2 })
	x.rest()
	require.Equal(t, "cheapest: 0.50 per instance and hour", x.get("a").Status.Slices[0].Clusters[0].Reason)
	b = x.get("a").DeepCopy()
	*b.Spec.Slices[0].Instances = 1
	changes := Plan(Policy{}, x.state, b, x.now).Changes
	require.Len(t, changes, 1)
	require.Equal(t, "rome", changes[0].ClusterID)
	require.Empty(t, changes[0].PricePerHour, "nothing is there afterwards")
}
