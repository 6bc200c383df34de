package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// webSlice is a slice of rome that should run three instances.
func webSlice(command broker.SliceCommand) *broker.Slice {
	return &broker.Slice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "store-web-rome-1a2b3c4d", UID: "u1", Generation: 3},
		Spec: broker.SliceSpec{
			Blueprint: "store", BlueprintUID: "b1", Slice: "web", ClusterID: "rome", Artifact: "nginx:1", Image: "docker.io/library/nginx:1",
			Instances: 3, Resources: list("cpu", "100m", "memory", "64Mi"), Command: command,
		},
	}
}

func ourWorkload() *workload {
	return &workload{name: types.NamespacedName{Namespace: "shop", Name: "store-web-rome-1a2b3c4d"}, uid: "d1", ours: true, generation: 1}
}

var noon = time.Unix(1_800_000_000, 0)

func TestTheLifeOfASlice(t *testing.T) {
	t.Parallel()
	foreign, leaving, stuck := ourWorkload(), ourWorkload(), ourWorkload()
	foreign.ours, leaving.leaving, stuck.failure = false, true, "exceeded quota"
	unpulled := trouble{reasonImage, "image nginx:1 can't be pulled: manifest unknown"}
	for name, c := range map[string]struct {
		command broker.SliceCommand
		sight   sight
		after   time.Duration // since the command
		want    verdict       // but for wake
	}{
		"loading makes the workload":        {"Load", sight{}, 0, verdict{act: actPut, state: "Loading"}},
		"loading puts a drifted one right":  {"Load", sight{workload: ourWorkload()}, 0, verdict{act: actPut, state: "Loading"}},
		"what is as it should be is loaded": {"Load", sight{workload: ourWorkload(), settled: true}, 0, verdict{state: "Loaded"}},
		"loading takes two minutes at most": {
			"Load",
			sight{fault: fault{reason: "Error", text: "boom"}},
			2 * time.Minute,
			verdict{act: actPut, state: "Failed", reason: "Error", message: "not loaded within 2m0s: boom"},
		},
		"a right that lacks is told at once": {
			"Load",
			sight{fault: fault{reason: "Forbidden", text: "no right", final: true}},
			0,
			verdict{act: actPut, state: "Failed", reason: "Forbidden", message: "no right"},
		},
		"what is not ours is left alone": {
			"Load",
			sight{workload: foreign},
			0,
			verdict{state: "Failed", reason: "Foreign", message: "Deployment shop/store-web-rome-1a2b3c4d exists and is not ours: it is left alone"},
		},
		"what is leaving is waited for": {"Activate", sight{workload: leaving}, 0, verdict{state: "Activating", message: "0 of 3 instances ready"}},
		"activating counts": {
			"Activate",
			sight{workload: ourWorkload(), settled: true, pods: podCount{live: 3, ready: 2, current: 2, beset: 1, trouble: unpulled}},
			59 * time.Second,
			verdict{state: "Activating", message: "2 of 3 instances ready; 1 pod: image nginx:1 can't be pulled: manifest unknown"},
		},
		"all ready is active": {"Activate", sight{workload: ourWorkload(), settled: true, pods: podCount{live: 3, ready: 3, current: 3}}, time.Hour, verdict{state: "Active"}},
		"one too many is not": {"Activate", sight{workload: ourWorkload(), settled: true, pods: podCount{live: 4, ready: 4, current: 3}}, 0, verdict{state: "Activating", message: "3 of 3 instances ready"}},
		"one that is ending is no matter": {
			"Activate", sight{workload: ourWorkload(), settled: true, pods: podCount{live: 3, ready: 3, current: 3, leaving: 1}}, 0, verdict{state: "Active"},
		},
		"old instances don't count": {"Activate", sight{workload: ourWorkload(), settled: true, pods: podCount{live: 3, ready: 3}}, 0, verdict{state: "Activating", message: "0 of 3 instances ready"}},
		"a drifted workload is put right though all are ready": {
			"Activate", sight{workload: ourWorkload(), pods: podCount{live: 3, ready: 3, current: 3}}, 0, verdict{act: actPut, state: "Activating", message: "3 of 3 instances ready"},
		},
		"why activating failed is named": {
			"Activate",
			sight{workload: ourWorkload(), settled: true, pods: podCount{live: 3, beset: 3, trouble: unpulled}},
			time.Minute,
			verdict{state: "Failed", reason: "ImagePull", message: "not active within 1m0s: 0 of 3 instances ready; 3 pods: image nginx:1 can't be pulled: manifest unknown"},
		},
		"why no pod can be made is named": {
			"Activate",
			sight{workload: stuck, settled: true},
			time.Minute,
			verdict{state: "Failed", reason: "Pods", message: "not active within 1m0s: pods can't be made: exceeded quota"},
		},
		"deactivating scales down first": {"Deactivate", sight{workload: ourWorkload(), pods: podCount{live: 3}}, 0, verdict{act: actPut, state: "Deactivating", message: "left are 3 pods"}},
		"deactivating waits for pods":    {"Deactivate", sight{workload: ourWorkload(), settled: true, pods: podCount{leaving: 2}}, 29 * time.Second, verdict{state: "Deactivating", message: "left are 2 pods"}},
		"deactivating takes half a minute at most": {
			"Deactivate",
			sight{workload: ourWorkload(), settled: true, pods: podCount{leaving: 2}},
			30 * time.Second,
			verdict{state: "Failed", reason: "Timeout", message: "not deactivated within 30s: left are 2 pods"},
		},
		"deactivated":                        {"Deactivate", sight{workload: ourWorkload(), settled: true}, 0, verdict{state: "Loaded"}},
		"deactivating nothing makes nothing": {"Deactivate", sight{}, 0, verdict{state: "Loaded"}},
		"unloading removes":                  {"Unload", sight{workload: ourWorkload(), settled: true}, 0, verdict{act: actDelete, state: "Unloading"}},
		"unloading waits for pods":           {"Unload", sight{pods: podCount{leaving: 1}}, 0, verdict{state: "Unloading", message: "left are 1 pod"}},
		"unloaded":                           {"Unload", sight{}, time.Hour, verdict{state: "Unloading", unloaded: true}},
		"unloading leaves others' alone":     {"Unload", sight{workload: foreign}, 0, verdict{state: "Unloading", unloaded: true}},
		"unloading takes two minutes at most": {
			"Unload",
			sight{workload: leaving, pods: podCount{leaving: 1}},
			2 * time.Minute,
			verdict{state: "Failed", reason: "Timeout", message: "not unloaded within 2m0s: left are 1 pod"},
		},
		"no consent": {
			"Activate", sight{refusal: "no flag"}, 0, verdict{state: "Failed", reason: "Refused", message: "no flag", refused: true},
		},
		"consent taken back removes what runs": {
			"Activate",
			sight{refusal: "no flag", workload: ourWorkload(), settled: true, pods: podCount{live: 3, ready: 3, current: 3}},
			0,
			verdict{act: actDelete, state: "Failed", reason: "Refused", message: "no flag", refused: true},
		},
		"a version that is refused leaves the one before": {
			"Activate",
			sight{refusal: "no flag", allowed: true, workload: ourWorkload(), pods: podCount{live: 3, ready: 3}},
			0,
			verdict{state: "Failed", reason: "Refused", message: "no flag", refused: true},
		},
		"what is to run nothing keeps nothing": {
			"Load", sight{refusal: "no flag", allowed: true, workload: ourWorkload()}, 0, verdict{act: actDelete, state: "Failed", reason: "Refused", message: "no flag", refused: true},
		},
		"unloading needs no consent": {"Unload", sight{refusal: "no flag", workload: ourWorkload()}, 0, verdict{act: actDelete, state: "Unloading"}},
		"a command of the future":    {"Dance", sight{}, 0, verdict{state: "Failed", reason: "Unknown", message: `command "Dance" is unknown to this agent; it may be too old`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.sight.slice = webSlice(c.command)
			_, p := judge(noon, progress{}, &sight{slice: c.sight.slice, refusal: c.sight.refusal})
			p.done, p.failed, p.best = false, false, c.sight.pods.current // as if seen a moment after the command
			got, _ := judge(noon.Add(c.after), p, &c.sight)
			got.wake = time.Time{}
			require.Equal(t, c.want, got)
		})
	}
}

func TestEachInstanceThatGetsReadyGivesTheOthersTimeAgain(t *testing.T) {
	t.Parallel()
	s := &sight{slice: webSlice(broker.SliceActivate), workload: ourWorkload(), settled: true, pods: podCount{live: 3}}
	v, p := judge(noon, progress{}, s)
	require.Equal(t, noon.Add(activateWithin), v.wake)
	for ready := int32(1); ready < 3; ready++ {
		noonish := v.wake.Add(-time.Second)
		s.pods.ready, s.pods.current = ready, ready
		v, p = judge(noonish, p, s)
		require.Equal(t, broker.SliceActivating, v.state)
		require.Equal(t, noonish.Add(activateWithin), v.wake)
		s.pods.current-- // flapping gives none
		v, p = judge(noonish.Add(time.Second), p, s)
		require.Equal(t, noonish.Add(activateWithin), v.wake)
	}
	v, _ = judge(v.wake, p, s)
	require.Equal(t, broker.SliceFailed, v.state)
}

func TestAFailedSliceIsActiveOnceItIsReadyAndTriedAgainWithANewAttempt(t *testing.T) {
	t.Parallel()
	s := &sight{slice: webSlice(broker.SliceActivate), workload: ourWorkload(), settled: true, pods: podCount{live: 3}}
	_, p := judge(noon, progress{}, s)
	v, p := judge(noon.Add(activateWithin), p, s)
	require.Equal(t, broker.SliceFailed, v.state)
	v, _ = judge(noon.Add(time.Hour), p, s)
	require.Equal(t, broker.SliceFailed, v.state, "time alone heals nothing")

	again := *s
	again.slice = webSlice(broker.SliceActivate)
	again.slice.Spec.Attempt = 1
	v, _ = judge(noon.Add(time.Hour), p, &again)
	require.Equal(t, broker.SliceActivating, v.state)

	s.pods = podCount{live: 3, ready: 3, current: 3}
	v, p = judge(noon.Add(time.Hour), p, s)
	require.Equal(t, broker.SliceActive, v.state)
	s.pods = podCount{live: 3, ready: 2, current: 2}
	v, _ = judge(noon.Add(2*time.Hour), p, s)
	require.Equal(t, broker.SliceActivating, v.state, "a pod that dies later has its own minute")
	require.Equal(t, noon.Add(2*time.Hour+activateWithin), v.wake)
}

func TestARestartedAgentStandsByWhatItSaid(t *testing.T) {
	t.Parallel()
	s := &sight{slice: webSlice(broker.SliceActivate), workload: ourWorkload(), settled: true, pods: podCount{live: 3}}
	s.slice.Status = broker.SliceStatus{State: broker.SliceFailed, ObservedGeneration: 3}
	v, _ := judge(noon, progress{}, s)
	require.Equal(t, broker.SliceFailed, v.state)
	s.slice.Generation = 4
	v, _ = judge(noon, progress{}, s)
	require.Equal(t, broker.SliceActivating, v.state, "that was of another instruction")
}

func TestAWorkloadWithoutItsSliceGoesAfterAGrace(t *testing.T) {
	t.Parallel()
	s := &sight{workload: ourWorkload(), listed: true}
	v, p := judge(noon, progress{}, s)
	require.Equal(t, verdict{wake: noon.Add(orphanGrace)}, v)
	v, q := judge(noon.Add(orphanGrace), p, s)
	require.Equal(t, verdict{act: actDelete}, v)

	silent := *s
	silent.listed = false
	v, q = judge(noon.Add(orphanGrace), q, &silent)
	require.Equal(t, verdict{}, v, "an exchange that can't be heard takes nothing away")
	v, _ = judge(noon.Add(orphanGrace), q, s)
	require.Equal(t, noon.Add(2*orphanGrace), v.wake, "and the grace begins anew")

	claimed := &sight{slice: webSlice(broker.SliceLoad), workload: ourWorkload(), listed: true}
	v, p = judge(noon.Add(time.Second), p, claimed)
	require.Equal(t, broker.SliceLoading, v.state)
	require.Equal(t, actPut, v.act, "it is adopted")
	v, _ = judge(noon.Add(orphanGrace), p, s)
	require.Equal(t, noon.Add(2*orphanGrace), v.wake)

	foreign := ourWorkload()
	foreign.ours = false
	v, _ = judge(noon, progress{}, &sight{workload: foreign, listed: true})
	require.Equal(t, verdict{}, v)
}

// TestNoSightMakesTheAgentTouchWhatIsNotItsOwn draws lives at random and asks what must hold of each verdict.
func TestNoSightMakesTheAgentTouchWhatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now, p := noon, progress{}
		for range rapid.IntRange(1, 30).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "seconds")) * time.Second)
			s := drawSight(t)
			v, next := judge(now, p, s)
			again, _ := judge(now, p, s)
			require.Equal(t, v, again, "the same sight, the same verdict")
			requireSound(t, now, s, v)
			if v.act == actNone && !v.wake.IsZero() {
				later, _ := judge(v.wake, next, s)
				require.NotEqual(t, v, later, "woken for nothing")
			}
			p = next
		}
	})
}

func drawSight(t *rapid.T) *sight {
	s := &sight{listed: rapid.Bool().Draw(t, "listed"), settled: rapid.Bool().Draw(t, "settled")}
	if rapid.IntRange(0, 5).Draw(t, "slice") > 0 {
		s.slice = webSlice(rapid.SampledFrom([]broker.SliceCommand{"Load", "Activate", "Deactivate", "Unload"}).Draw(t, "command"))
		s.slice.Spec.Attempt = int32(rapid.IntRange(0, 1).Draw(t, "attempt"))
		s.refusal = rapid.SampledFrom([]string{"", "", "", "no flag"}).Draw(t, "refusal")
		s.allowed = rapid.Bool().Draw(t, "allowed")
	}
	if rapid.IntRange(0, 3).Draw(t, "workload") > 0 {
		s.workload = ourWorkload()
		s.workload.ours = rapid.IntRange(0, 3).Draw(t, "ours") > 0
		s.workload.leaving = rapid.IntRange(0, 3).Draw(t, "leaving") == 0
	}
	s.settled = s.settled && s.workload.mayDelete()
	s.pods.live = int32(rapid.IntRange(0, 4).Draw(t, "live"))
	s.pods.ready = int32(rapid.IntRange(0, int(s.pods.live)).Draw(t, "ready"))
	s.pods.current = int32(rapid.IntRange(0, int(s.pods.ready)).Draw(t, "current"))
	s.pods.leaving = int32(rapid.IntRange(0, 2).Draw(t, "pods leaving"))
	return s
}

func requireSound(t *rapid.T, now time.Time, s *sight, v verdict) {
	if s.workload != nil && (!s.workload.ours || s.workload.leaving) {
		require.Equal(t, actNone, v.act, "not ours, or on its way out")
	}
	require.True(t, v.wake.IsZero() || v.wake.After(now), "no verdict spins")
	if s.slice == nil {
		require.Equal(t, broker.SliceState(""), v.state)
		require.NotEqual(t, actPut, v.act)
		require.True(t, v.act == actNone || s.listed)
		return
	}
	wanted := s.slice.Spec.Command == broker.SliceLoad || s.slice.Spec.Command == broker.SliceActivate
	require.Equal(t, wanted && s.refusal != "", v.refused)
	require.NotEmpty(t, v.state)
	require.Equal(t, v.state == broker.SliceFailed, v.reason != "")
	if v.refused || s.slice.Spec.Command == broker.SliceUnload {
		require.NotEqual(t, actPut, v.act)
	}
	if v.act == actDelete {
		require.True(t, v.refused || s.slice.Spec.Command == broker.SliceUnload)
	}
	if v.state == broker.SliceActive {
		require.True(t, s.settled && s.pods.live == 3 && s.pods.current == 3)
	}
	if v.unloaded {
		require.True(t, s.pods.live+s.pods.leaving == 0 && (s.workload == nil || !s.workload.ours))
	}
}
