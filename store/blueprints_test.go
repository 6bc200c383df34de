package store_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

const (
	webKey      = "blueprints/rome/web"
	webSliceKey = "slices/rome/web-front-paris-0a1b2c3d"
)

// aState is a state time as the leader's entries bring them.
const aState = fsm.Millis(1_700_000_000_123)

func blueprint() *broker.Blueprint {
	three := int32(3)
	return &broker.Blueprint{
		ObjectMeta: metav1.ObjectMeta{Namespace: "rome", Name: "web", Generation: 2, UID: "u-1"},
		Spec: broker.BlueprintSpec{
			Strategy: broker.StrategySpread,
			Slices: []broker.BlueprintSlice{{
				Name: "front", Artifact: "docker.io/library/nginx:1.29", Instances: &three,
				Resources: corev1.ResourceList{"cpu": resource.MustParse("500m")},
			}},
		},
	}
}

func slice() *broker.Slice {
	return &broker.Slice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "rome", Name: "web-front-paris-0a1b2c3d", Generation: 1, UID: "u-2", ResourceVersion: "7"},
		Spec: broker.SliceSpec{
			Blueprint: "web", BlueprintUID: "u-1", Slice: "front", ClusterID: "paris",
			Artifact: "com.example:front:1.2", Image: "registry.example.com/com.example/front:1.2", Instances: 2,
			Resources: corev1.ResourceList{"cpu": resource.MustParse("500m")}, Command: broker.SliceActivate,
		},
		Status: broker.SliceStatus{State: broker.SliceFailed, Message: "not the leader's to write"},
	}
}

// blueprint makes rome/web as a user does.
func (x *exchange) blueprint() *store.Storage {
	x.t.Helper()
	s := store.NewStorage(x.db, x.leader, store.BlueprintKind())
	require.NoError(x.t, s.Create(x.t.Context(), "/"+webKey, blueprint(), nil, 0))
	return s
}

// slice makes the share of paris as the leader's room does: with what it holds there.
func (x *exchange) slice() *store.Storage {
	x.t.Helper()
	body, err := store.SliceBody(slice())
	require.NoError(x.t, err)
	x.apply(fsm.Txn{
		Writes: []fsm.Write{{Key: webSliceKey, Body: body, Ledger: &fsm.Ledger{}}},
		Moves:  []fsm.Move{{Op: fsm.MoveHold, Account: parisKey, Holder: webSliceKey, Amounts: amounts("cpu", 1_000)}},
	})
	return store.NewStorage(x.db, x.leader, store.SliceKind())
}

func TestABlueprintOnDisk(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.blueprint()
	row := x.db.State().Row(webKey)
	require.JSONEq(t, `{
		"metadata": {"name": "web", "namespace": "rome", "uid": "u-1", "generation": 2},
		"spec": {"slices": [{"name": "front", "artifact": "docker.io/library/nginx:1.29", "instances": 3, "resources": {"cpu": "500m"}}],
			"strategy": "Spread", "rollout": {}}
	}`, string(row.Body))
	require.Nil(t, row.Facts, "a user writes no status")

	status := store.BlueprintOf(row).Status
	require.Equal(t, broker.BlueprintPending, status.Phase, "no room has seen it")
	require.True(t, meta.IsStatusConditionFalse(status.Conditions, "Ready"))
	require.True(t, meta.IsStatusConditionFalse(status.Conditions, "Stalled"))

	facts, err := store.BlueprintFacts(row, &broker.BlueprintStatus{
		ObservedGeneration: 2, Phase: broker.BlueprintProgressing, Desired: 3, Placed: 2, Ready: 1, Message: "1 of 3 ready",
		Slices: []broker.BlueprintSliceStatus{{
			Name: "front", Artifact: "docker.io/library/nginx:1.29", Desired: 3, Placed: 2, Ready: 1, PricePerHour: "1",
			Clusters: []broker.BlueprintPlacement{{ClusterID: "paris", Instances: 2, Ready: 1, State: broker.SliceActivating, Reason: "fewest instances"}},
			Message:  "berlin: stale",
		}},
		History: []broker.BlueprintVersion{{
			Generation: 1, Artifacts: map[string]string{"front": "docker.io/library/nginx:1.28"},
			ActiveAt: metav1.NewMicroTime(time.UnixMilli(1_699_000_000_000).UTC()),
		}},
		RolledBack: &broker.BlueprintRollback{Generation: 1, Slice: "front", Artifact: "nginx:9", ClusterID: "paris", Message: "no such image"},
		Plan:       []broker.PlannedChange{{Action: "+", Slice: "front", ClusterID: "paris", After: 2}},
		Conditions: status.Conditions,
	}, aState)
	require.NoError(t, err)
	require.JSONEq(t, `{
		"observedGeneration": 2, "phase": "Progressing", "phaseSince": "2023-11-14T22:13:20.123000Z",
		"desired": 3, "placed": 2, "ready": 1, "message": "1 of 3 ready",
		"slices": [{"name": "front", "artifact": "docker.io/library/nginx:1.29", "desired": 3, "placed": 2, "ready": 1, "pricePerHour": "1",
			"clusters": [{"clusterID": "paris", "instances": 2, "ready": 1, "state": "Activating", "reason": "fewest instances"}],
			"message": "berlin: stale"}],
		"history": [{"generation": 1, "artifacts": {"front": "docker.io/library/nginx:1.28"}, "activeAt": "2023-11-03T08:26:40.000000Z"}],
		"rolledBack": {"generation": 1, "slice": "front", "artifact": "nginx:9", "clusterID": "paris", "message": "no such image"}
	}`, string(facts))
}

func TestTheStatusOfABlueprintIsTheRoomsAlone(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	s := x.blueprint()
	write := func(phase broker.BlueprintPhase, now fsm.Millis) []byte {
		facts, err := store.BlueprintFacts(x.db.State().Row(webKey), &broker.BlueprintStatus{
			ObservedGeneration: 2, Phase: phase, Message: "says the room",
		}, now)
		require.NoError(t, err)
		x.apply(fsm.Txn{Writes: []fsm.Write{{Key: webKey, Facts: facts}}})
		return facts
	}
	first := write(broker.BlueprintActive, aState)
	require.Equal(t, first, write(broker.BlueprintActive, aState+5_000), "the same status is the same bytes")
	row := x.db.State().Row(webKey)
	ready := meta.FindStatusCondition(store.BlueprintOf(row).Status.Conditions, "Ready")
	require.Equal(t, metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Active", Message: "says the room", ObservedGeneration: 2,
		LastTransitionTime: metav1.NewTime(time.UnixMilli(1_700_000_000_000).UTC()),
	}, *ready)

	out := &broker.Blueprint{}
	require.NoError(t, s.GuaranteedUpdate(t.Context(), "/"+webKey, out, false, nil, editing(func(b *broker.Blueprint) {
		b.Status = broker.BlueprintStatus{Phase: broker.BlueprintDegraded}
	}), nil))
	require.Same(t, row, x.db.State().Row(webKey), "nothing was written")
	require.NoError(t, s.GuaranteedUpdate(t.Context(), "/"+webKey, out, false, nil, editing(func(b *broker.Blueprint) {
		b.Spec.Strategy = broker.StrategyPack
	}), nil))
	require.Equal(t, row.Facts, x.db.State().Row(webKey).Facts)
	require.Greater(t, x.db.State().Row(webKey).SpecRev, row.SpecRev)

	write(broker.BlueprintDegraded, aState+60_000)
	status := store.BlueprintOf(x.db.State().Row(webKey)).Status
	require.True(t, meta.IsStatusConditionFalse(status.Conditions, "Ready"))
	require.True(t, meta.IsStatusConditionTrue(status.Conditions, "Stalled"))
	require.Equal(t, int64(1_700_000_060_123), status.PhaseSince.UnixMilli())
}

func TestASliceOnDisk(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.offer()
	s := x.slice()
	row := x.db.State().Row(webSliceKey)
	require.JSONEq(t, `{
		"metadata": {"name": "web-front-paris-0a1b2c3d", "namespace": "rome", "uid": "u-2", "generation": 1},
		"spec": {"blueprint": "web", "blueprintUID": "u-1", "slice": "front", "clusterID": "paris",
			"artifact": "com.example:front:1.2", "image": "registry.example.com/com.example/front:1.2",
			"instances": 2, "resources": {"cpu": "500m"}, "rollout": {}, "command": "Activate"}
	}`, string(row.Body))
	require.Equal(t, int64(row.Ledger.Fence), store.SliceOf(row).Status.Fence)
	require.Positive(t, store.SliceOf(row).Status.Fence)
	require.Equal(t, "Pending", meta.FindStatusCondition(store.SliceOf(row).Status.Conditions, "Ready").Reason)

	since := metav1.NewMicroTime(time.UnixMilli(int64(aState)).UTC())
	report := func(state broker.SliceState, ready int32) *broker.Slice {
		require.NoError(t, s.GuaranteedUpdate(t.Context(), "/"+webSliceKey, &broker.Slice{}, false, nil, editing(func(s *broker.Slice) {
			s.Status.ObservedGeneration, s.Status.State, s.Status.StateSince = 1, state, &since
			s.Status.ReadyInstances, s.Status.Message, s.Status.Fence = ready, "says the agent", 99
			meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{Type: "Refused", Status: metav1.ConditionFalse, Reason: "Allowed", LastTransitionTime: metav1.NewTime(since.UTC())})
			meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{Type: "CapacityShort", Status: metav1.ConditionTrue, Reason: "Forged"})
		}), nil))
		return store.SliceOf(x.db.State().Row(webSliceKey))
	}
	x.apply(fsm.Txn{Writes: []fsm.Write{{Key: webSliceKey, Ledger: &fsm.Ledger{
		Conditions: []fsm.Condition{{Type: "CapacityShort", Reason: "Fits"}},
	}}}})
	active := report(broker.SliceActive, 2)
	var facts map[string]any
	require.NoError(t, json.Unmarshal(x.db.State().Row(webSliceKey).Facts, &facts))
	require.Equal(t, map[string]any{
		"observedGeneration": 1.0, "state": "Active", "stateSince": "2023-11-14T22:13:20.123000Z", "readyInstances": 2.0, "message": "says the agent",
		"conditions": []any{map[string]any{"type": "Refused", "status": "False", "reason": "Allowed", "message": "", "lastTransitionTime": "2023-11-14T22:13:20Z"}},
	}, facts)
	require.True(t, meta.IsStatusConditionTrue(active.Status.Conditions, "Ready"))
	require.True(t, meta.IsStatusConditionFalse(active.Status.Conditions, "CapacityShort"), "the ledger's wins")
	require.Equal(t, int64(x.db.State().Row(webSliceKey).Ledger.Fence), active.Status.Fence, "the ledger's too")
	require.Equal(t, row.Body, x.db.State().Row(webSliceKey).Body)

	require.False(t, meta.IsStatusConditionTrue(report(broker.SliceActive, 1).Status.Conditions, "Ready"), "one is missing")
	failed := report(broker.SliceFailed, 0)
	require.True(t, meta.IsStatusConditionTrue(failed.Status.Conditions, "Stalled"))
	require.Equal(t, int64(1_700_000_000), meta.FindStatusCondition(failed.Status.Conditions, "Stalled").LastTransitionTime.Unix())
}

func TestRowsThatNobodyWroteAreNoObjects(t *testing.T) {
	t.Parallel()
	require.Nil(t, store.BlueprintOf(nil))
	require.Nil(t, store.SliceOf(nil))
	require.Nil(t, store.BlueprintOf(&fsm.Row{Key: webKey, Body: []byte("?")}))
	require.Nil(t, store.SliceOf(&fsm.Row{Key: webSliceKey, Body: []byte("{}"), Facts: []byte("?")}))
}
