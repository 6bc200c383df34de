package main

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/blueprint"
	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// blueprintRoom has shorter pauses than production's: traces are short.
func blueprintRoom(t *trace) cluster.Room {
	return blueprint.New(blueprint.Config{
		Policy:  blueprint.Policy{Rebalance: true, BackoffMin: 500, BackoffMax: 4000},
		Resync:  20 * time.Second,
		Observe: func(o blueprint.Observation) { t.stats.count("blueprint", string(o.Event)) },
	})
}

var (
	blueprintNames = []string{"web", "batch"}
	sizes          = []string{"cpu=1", "cpu=1,memory=2Gi", "cpu=2"}
	strategies     = []broker.BlueprintStrategy{"", broker.StrategySpread, broker.StrategyPack, broker.StrategyCheapest, broker.StrategyBalanced}
)

// blueprint creates one, or changes the one there is: how many, which version, how it is spread.
func (c *client) blueprint(n *node) {
	dice := c.trace.clientDice
	name := oneOf(c, blueprintNames)
	key := broker.BlueprintKey("rome", name)
	row := n.db.State().Row(key)
	instances := int32(between(dice, 1, 5))
	spec := broker.BlueprintSpec{Strategy: oneOf(c, strategies), Slices: []broker.BlueprintSlice{{
		Name: "app", Artifact: fmt.Sprintf("registry.example.com/app:%d", between(dice, 1, 3)),
		Instances: &instances, Resources: list(oneOf(c, sizes)), Priority: int32(between(dice, -1, 1)),
	}}}
	if name == blueprintNames[0] && chance(dice, 30) { // two of them may chase each other for ever
		spec.Reconciliation = broker.ReconcileAggressive
	}
	old := store.BlueprintOf(row)
	if old == nil {
		c.trace.number++
		meta := metav1.ObjectMeta{Name: name, Namespace: "rome", UID: types.UID(fmt.Sprint("uid-", c.trace.number)), Generation: 1}
		c.submit(n, "create a blueprint", fsm.Txn{
			Guards: []fsm.Guard{fsm.GuardAbsent(key)},
			Writes: []fsm.Write{
				{Key: "namespaces/rome", IfAbsent: true, Body: []byte(`{"metadata":{"name":"rome"}}`)},
				{Key: key, Body: bodyOf(&meta, &spec), SpecChanged: true},
			},
		})
		return
	}
	meta := old.ObjectMeta
	meta.Generation++
	c.submit(n, "change a blueprint", fsm.Txn{
		Guards: []fsm.Guard{fsm.GuardBody(row)}, Writes: []fsm.Write{{Key: key, Body: bodyOf(&meta, &spec), SpecChanged: true}},
	})
}

func (c *client) deleteBlueprint(n *node) {
	row := n.db.State().Row(broker.BlueprintKey("rome", oneOf(c, blueprintNames)))
	if row != nil {
		c.submit(n, "delete a blueprint", fsm.Txn{
			Guards: []fsm.Guard{fsm.GuardBody(row)}, Writes: []fsm.Write{{Key: row.Key, Delete: true}},
		})
	}
}

// meddle changes or deletes a slice by hand, as somebody with the rights might.
func (c *client) meddle(n *node) {
	for row := range n.db.State().Scan(broker.SlicesPrefix) {
		if chance(c.trace.clientDice, 60) {
			continue
		}
		s := store.SliceOf(row).DeepCopy()
		s.Generation++
		s.Spec.Instances += 2
		body, err := store.SliceBody(s)
		if err != nil {
			panic(err)
		}
		c.submit(n, "change a slice by hand", fsm.Txn{
			Guards: []fsm.Guard{fsm.GuardBody(row)}, Writes: []fsm.Write{{Key: row.Key, Body: body, SpecChanged: true}},
		})
		return
	}
}

// work is what a slice runs in its cluster.
type work struct {
	uid    types.UID
	fence  fsm.Revision
	pods   int
	ask    allocation.Amounts // of one pod
	since  int64              // in this state
	state  broker.SliceState
	facing int64 // the generation that it is about
}

// drive does one thing about each of the cluster's slices and tells what has changed. What it sees may
// lag behind.
func (a *agent) drive(n *node) {
	state := n.db.State()
	seen := map[string]bool{}
	for row := range state.Scan(broker.SlicesPrefix) {
		s := store.SliceOf(row)
		if s == nil || s.Spec.ClusterID != a.clusterID {
			continue
		}
		seen[row.Key] = true
		w := a.works[row.Key]
		if w == nil || w.uid != s.UID {
			w = &work{uid: s.UID}
			a.works[row.Key] = w
		}
		w.fence = fsm.Revision(s.Status.Fence)
		a.tell(n, row, a.advance(w, s))
	}
	for key := range a.works {
		if !seen[key] {
			delete(a.works, key)
		}
	}
}

// advance is one step of a workload. Some don't come up at first.
func (a *agent) advance(w *work, s *broker.Slice) broker.SliceStatus {
	status := broker.SliceStatus{ObservedGeneration: s.Generation}
	before := w.state
	switch s.Spec.Command {
	case broker.SliceUnload:
		w.pods, w.state = 0, broker.SliceUnloading
		status.Conditions = []metav1.Condition{{Type: broker.ConditionUnloaded, Status: metav1.ConditionTrue, Reason: "Gone"}}
	case broker.SliceLoad, broker.SliceDeactivate:
		w.pods, w.state = 0, broker.SliceLoaded
	default:
		w.ask, _ = allocation.AmountsOf(s.Spec.Resources, true)
		w.pods, w.state = int(s.Spec.Instances), broker.SliceActive
		if chance(a.trace.agentDice, 5) && !a.trace.healing {
			w.state = broker.SliceFailed
			status.Message = "bad luck"
		}
	}
	if w.state != before || w.facing != s.Generation {
		w.since = a.trace.now
	}
	w.facing = s.Generation
	status.State = w.state
	since := metav1.NewMicroTime(time.UnixMilli(w.since).UTC())
	status.StateSince = &since
	if w.state == broker.SliceActive {
		status.ReadyInstances = s.Spec.Instances
	}
	return status
}

func (a *agent) tell(n *node, row *fsm.Row, status broker.SliceStatus) {
	facts, err := json.Marshal(status)
	if err != nil {
		panic(err)
	}
	if string(facts) == string(row.Facts) {
		return
	}
	a.trace.number++
	w := &write{txn: &fsm.Txn{
		ID:     fsm.RequestID{Seen: n.db.State().Revision(), Random: a.trace.number * 0x2545F4914F6CDD1D},
		Guards: []fsm.Guard{fsm.GuardFacts(row), fsm.GuardSpec(row)},
		Writes: []fsm.Write{{Key: row.Key, Facts: facts}},
	}}
	w.ended = func(v verdict, _ fsm.Result) {
		a.trace.stats.count("agent told of a slice", [...]string{"done", "refused", "nothing", "unknown", "severed"}[v])
	}
	n.write(w)
}

// use is what slices' pods take, by hold; the sum is part of what is allocated.
func (a *agent) use() (list []fsm.HoldUse, sum allocation.Amounts) {
	for _, key := range sortedKeys(a.works) {
		w := a.works[key]
		used := w.ask.Times(w.pods)
		if len(used) == 0 {
			continue
		}
		sum = sum.Add(used)
		if w.fence > 0 {
			list = append(list, fsm.HoldUse{Holder: key, Fence: w.fence, Used: used})
		}
	}
	return list, sum
}

// checkBlueprints, once nothing goes wrong any more: each slice is of a blueprint that is there, one that is
// Active runs what it says, no less and no more, and none is stuck.
func (t *trace) checkBlueprints(state *fsm.State, now fsm.Millis) {
	running := map[string]int32{}
	for row := range state.Scan(broker.SlicesPrefix) {
		s := store.SliceOf(row)
		b := store.BlueprintOf(state.Row(broker.BlueprintKey(s.Namespace, s.Spec.Blueprint)))
		if b == nil {
			t.fail("%s is of blueprint %s, which was deleted before all faults ended", row.Key, s.Spec.Blueprint)
			continue
		}
		if s.Spec.Command == broker.SliceActivate || s.Status.ObservedGeneration == s.Generation { // else it was told to stop just now
			running[b.Name] += s.Status.ReadyInstances
		}
	}
	for row := range state.Scan(broker.BlueprintsPrefix) {
		b := store.BlueprintOf(row)
		t.stats.count("blueprint at the end", string(b.Status.Phase))
		want := *b.Spec.Slices[0].Instances
		if have := running[b.Name]; have != want && b.Status.Phase == broker.BlueprintActive {
			t.fail("blueprint %s is %s and runs %d of %d", b.Name, b.Status.Phase, have, want)
		}
		if t.stuck(b, now) {
			for s := range state.Scan(broker.SlicesPrefix) {
				t.tell("%s: %s %s %s", s.Key, s.Ledger.Decision, s.Body, s.Facts)
			}
			t.fail("blueprint %s is %q, %d s after all faults ended: %s", b.Name, b.Status.Phase, healPhase/1000, row.Facts)
		}
	}
}

// stuck: Degraded says why. An Aggressive blueprint may always find something better, and any may have lost a cluster
// a moment ago: an advertisement that was deleted, a lease of somebody else.
func (t *trace) stuck(b *broker.Blueprint, now fsm.Millis) bool {
	switch b.Status.Phase {
	case broker.BlueprintActive, broker.BlueprintDegraded:
		return false
	case broker.BlueprintProgressing:
		return b.Spec.Reconciliation != broker.ReconcileAggressive && now-fsm.Millis(b.Status.PhaseSince.UnixMilli()) > 15_000
	default:
		return true
	}
}
