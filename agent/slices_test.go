package agent

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/bourse-dev/bourse/agent/simulated"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

func TestASliceIsDrivenThroughItsLife(t *testing.T) {
	t.Parallel()
	r := newSliceRig(t).start()
	r.order(broker.SliceLoad)
	r.untilState(broker.SliceLoaded, 0)
	require.Zero(t, *r.deployment().Spec.Replicas)
	require.Empty(t, r.pods())

	r.order(broker.SliceActivate)
	s := r.untilState(broker.SliceActive, 3)
	require.Empty(t, s.Status.Message)
	require.Empty(t, s.Status.Conditions)
	d := r.deployment()
	require.Equal(t, map[string]string{
		BlueprintLabel: "store", SliceLabel: "store-web-rome-1a2b3c4d", ClusterLabel: "rome", simulated.Label: "true",
	}, d.Labels)
	require.Equal(t, "shop/store-web-rome-1a2b3c4d/u1", d.Annotations[OwnerAnnotation])
	for _, p := range r.pods() {
		require.Equal(t, "docker.io/library/nginx:1", p.Spec.Containers[0].Image)
		requireRestricted(t, &p.Spec)
	}
	r.order(broker.SliceActivate, func(s *broker.Slice) { s.Spec.Instances = 5 })
	r.untilState(broker.SliceActive, 5)

	r.order(broker.SliceDeactivate)
	r.untilState(broker.SliceLoaded, 0)
	require.NotNil(t, r.deployment())
	r.order(broker.SliceUnload)
	s = r.untilState(broker.SliceUnloading, 0)
	require.True(t, meta.IsStatusConditionTrue(s.Status.Conditions, broker.ConditionUnloaded))
	require.Nil(t, r.deployment())
	require.Empty(t, r.pods())
	require.InDelta(t, 0, r.metric("bourse_agent_slice_failures_total"), 0)
	require.InDelta(t, 5, r.metric("bourse_agent_slice_writes_total"), 0, "make, start, grow, stop, remove")
}

func requireRestricted(t *testing.T, pod *corev1.PodSpec) {
	t.Helper()
	require.False(t, *pod.AutomountServiceAccountToken)
	require.False(t, pod.HostNetwork || pod.HostPID || pod.HostIPC)
	require.Empty(t, pod.Volumes)
	require.True(t, *pod.SecurityContext.RunAsNonRoot)
	require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
	require.Len(t, pod.Containers, 1)
	c := pod.Containers[0].SecurityContext
	require.False(t, *c.AllowPrivilegeEscalation)
	require.Equal(t, []corev1.Capability{"ALL"}, c.Capabilities.Drop)
	require.Empty(t, c.Capabilities.Add)
	require.Nil(t, c.Privileged)
	require.Equal(t, "64Mi", pod.Containers[0].Resources.Limits.Memory().String())
}

func TestWhatABlueprintFillsLeavesAvailableUnchanged(t *testing.T) {
	t.Parallel()
	r := newSliceRig(t).start()
	available := func() int64 { // as the exchange counts, with the hold of three instances
		report, _ := r.exchange.last()
		used := int64(0)
		for _, u := range report.Use {
			if u.Fence == 7 {
				used += u.Used.Cpu().MilliValue()
			}
		}
		return report.Allocatable.Cpu().MilliValue() - (report.Allocated.Cpu().MilliValue() - used) - max(300, used)
	}
	r.order(broker.SliceLoad)
	r.untilState(broker.SliceLoaded, 0)
	r.until("a report", func() bool { _, ok := r.exchange.last(); return ok })
	before := available()
	r.order(broker.SliceActivate)
	r.untilState(broker.SliceActive, 3)
	used := func(fence int64) func() bool {
		return func() bool {
			report, _ := r.exchange.last()
			return len(report.Use) == 1 && report.Use[0].Fence == fence && report.Use[0].Kind == broker.HolderSlice &&
				report.Use[0].Namespace+"/"+report.Use[0].Name == webKey && report.Use[0].Used.Cpu().MilliValue() == 300
		}
	}
	r.until("the use of the hold", used(7))
	require.Equal(t, before, available())

	r.exchange.with(func() {
		s := r.exchange.slices[webKey].DeepCopy()
		s.Status.Fence = 9
		r.exchange.keep("MODIFIED", webKey, s)
	})
	r.until("the use of the new hold", used(9))
	r.order(broker.SliceUnload)
	r.until("no use", func() bool {
		report, _ := r.exchange.last()
		return len(report.Use) == 0
	})
}

func TestABrokenVersionFailsByNameAndTheOldOneComesBack(t *testing.T) {
	t.Parallel()
	r := newSliceRig(t).start()
	rollout := func(s *broker.Slice) {
		s.Spec.Rollout = broker.BlueprintRollout{MaxUnavailable: ptr.To(intstr.FromInt32(1)), MaxSurge: ptr.To(intstr.FromInt32(1))}
	}
	r.order(broker.SliceActivate, rollout)
	r.untilState(broker.SliceActive, 3)
	least := int32(3)
	watch := func() bool {
		least = min(least, r.exchange.slice(webKey).Status.ReadyInstances)
		return r.exchange.slice(webKey).Status.State == broker.SliceFailed
	}
	from := r.clock.Now()
	r.order(broker.SliceActivate, rollout, func(s *broker.Slice) { s.Spec.Image = "docker.io/library/nginx:broken" })
	r.until("the failure", watch)
	require.GreaterOrEqual(t, r.clock.Since(from), activateWithin)
	s := r.exchange.slice(webKey)
	require.Contains(t, s.Status.Message, "not active within 1m0s: 0 of 3 instances ready")
	require.Contains(t, s.Status.Message, "image docker.io/library/nginx:broken can't be pulled")
	require.Equal(t, int32(2), s.Status.ReadyInstances, "the old ones go on")
	require.InDelta(t, 1, r.metric("bourse_agent_slice_failures_total"), 0)

	r.order(broker.SliceActivate, rollout)
	r.untilState(broker.SliceActive, 3)
	require.Equal(t, int32(2), least, "never below 3 minus maxUnavailable")
}

func TestANewAttemptMakesThePodsAnewOnce(t *testing.T) {
	t.Parallel()
	r := newSliceRig(t).start()
	r.order(broker.SliceActivate)
	r.untilState(broker.SliceActive, 3)
	first := r.podNames()
	attempt := func(n int32) func(*broker.Slice) { return func(s *broker.Slice) { s.Spec.Attempt = n } }
	r.order(broker.SliceActivate, attempt(1))
	r.untilState(broker.SliceActive, 3)
	second := r.podNames()
	for _, name := range second {
		require.NotContains(t, first, name)
	}
	r.order(broker.SliceActivate, attempt(0))
	r.untilState(broker.SliceActive, 3)
	r.pass(10 * time.Second)
	require.Equal(t, second, r.podNames(), "a count that starts over restarts nothing")
}

func TestARestartedAgentAdoptsWhatRuns(t *testing.T) {
	t.Parallel()
	r := newSliceRig(t).start()
	r.order(broker.SliceActivate)
	r.untilState(broker.SliceActive, 3)
	before, names, told := r.deployment(), r.podNames(), r.tellings()
	r.stop()
	r.start()
	written := func() bool { return len(r.log.with("deployment of a slice written")) == 2 } // once by each
	r.until("the new agent's look", written)
	r.pass(time.Minute)
	require.True(t, written())
	require.True(t, equality.Semantic.DeepEqual(before, r.deployment()), "a write that changes nothing")
	require.Equal(t, names, r.podNames())
	require.Equal(t, told, r.tellings(), "nothing new is to be said")
}

func TestAWorkloadGoesWithItsSliceUnlessAnotherClaimsIt(t *testing.T) {
	t.Parallel()
	r := newSliceRig(t).start()
	r.order(broker.SliceActivate)
	r.untilState(broker.SliceActive, 3)
	names := r.podNames()
	r.exchange.removeSlice(webKey)
	r.pass(orphanGrace / 2)
	r.order(broker.SliceLoad, func(s *broker.Slice) { s.UID = "u2" }) // made again by the leader
	r.untilState(broker.SliceLoaded, 3)
	r.order(broker.SliceActivate, func(s *broker.Slice) { s.UID = "u2" })
	r.untilState(broker.SliceActive, 3)
	r.pass(2 * orphanGrace)
	require.Equal(t, names, r.podNames(), "the same pods all the time")
	require.Equal(t, "shop/store-web-rome-1a2b3c4d/u2", r.deployment().Annotations[OwnerAnnotation])

	from := r.clock.Now()
	r.exchange.removeSlice(webKey)
	r.until("the removal", func() bool { return r.deployment() == nil && len(r.pods()) == 0 })
	require.GreaterOrEqual(t, r.clock.Since(from), orphanGrace)
}

func TestAnExchangeThatIsAwayTakesNothingAway(t *testing.T) {
	t.Parallel()
	r := newSliceRig(t).start()
	r.order(broker.SliceActivate)
	r.untilState(broker.SliceActive, 3)
	r.exchange.setAway(true)
	r.until("the outage being noticed", func() bool { return r.metric("bourse_agent_broker_reachable") == 0 })
	d := r.deployment()
	d.Spec.Replicas = ptr.To[int32](1)
	_, err := r.member.AppsV1().Deployments("shop").Update(t.Context(), d, metav1.UpdateOptions{})
	require.NoError(t, err)
	r.until("what was changed by hand put right all the same", func() bool { return *r.deployment().Spec.Replicas == 3 && len(r.pods()) == 3 })
	r.exchange.with(func() {
		s := r.exchange.slices[webKey].DeepCopy()
		r.exchange.keep("DELETED", webKey, s)
	})
	r.pass(2 * orphanGrace)
	require.NotNil(t, r.deployment())
	r.exchange.setAway(false)
	r.until("the removal of what nobody wants any more", func() bool { return r.deployment() == nil })
}

func TestWhatIsNotOursIsNeverTouched(t *testing.T) {
	t.Parallel()
	r := newSliceRig(t)
	theirs, err := r.member.AppsV1().Deployments("shop").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "store-web-rome-1a2b3c4d"},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](0)},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	r.start()
	r.order(broker.SliceActivate)
	s := r.untilState(broker.SliceFailed, 0)
	require.Contains(t, s.Status.Message, "exists and is not ours")
	r.order(broker.SliceUnload)
	s = r.untilState(broker.SliceUnloading, 0)
	require.True(t, meta.IsStatusConditionTrue(s.Status.Conditions, broker.ConditionUnloaded))
	r.exchange.removeSlice(webKey)
	r.pass(2 * orphanGrace)
	kept := r.deployment()
	kept.Status = theirs.Status // the simulated controller's
	require.True(t, equality.Semantic.DeepEqual(theirs, kept), "%v\n%v", theirs, kept)

	r.order(broker.SliceActivate)
	r.untilState(broker.SliceFailed, 0)
	require.NoError(t, r.member.AppsV1().Deployments("shop").Delete(t.Context(), theirs.Name, metav1.DeleteOptions{}))
	r.untilState(broker.SliceActive, 3)
}

func TestWhatIsChangedByHandIsPutRight(t *testing.T) {
	t.Parallel()
	r := newSliceRig(t).start()
	r.order(broker.SliceActivate)
	r.untilState(broker.SliceActive, 3)
	for name, change := range map[string]func(*appsv1.Deployment){
		"image":      func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "evil:1" },
		"replicas":   func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](9) },
		"privileges": func(d *appsv1.Deployment) { d.Spec.Template.Spec.HostNetwork = true },
		"containers": func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "miner", Image: "evil:1"})
		},
	} {
		before := r.deployment()
		hacked := before.DeepCopy()
		change(hacked)
		_, err := r.member.AppsV1().Deployments("shop").Update(t.Context(), hacked, metav1.UpdateOptions{})
		require.NoError(t, err)
		r.until(name+" put right", func() bool { return equality.Semantic.DeepEqual(before.Spec, r.deployment().Spec) })
	}
	r.until("three pods as before", func() bool {
		pods := r.pods()
		return len(pods) == 3 && !slices.ContainsFunc(pods, func(p corev1.Pod) bool {
			return p.Spec.HostNetwork || len(p.Spec.Containers) != 1 || p.Spec.Containers[0].Image != "docker.io/library/nginx:1"
		})
	})
	require.NoError(t, r.member.AppsV1().Deployments("shop").Delete(t.Context(), "store-web-rome-1a2b3c4d", metav1.DeleteOptions{}))
	r.until("a new one", func() bool { return r.deployment() != nil })
	r.untilState(broker.SliceActive, 3)
}

func TestStatusIsWrittenOnChangeOnly(t *testing.T) {
	t.Parallel()
	r := newSliceRig(t).start()
	r.order(broker.SliceActivate)
	r.untilState(broker.SliceActive, 3)
	told := r.tellings()
	require.LessOrEqual(t, told, 5, "Activating, three at most on the way, Active")
	r.pace = 5 * time.Second
	r.pass(time.Hour)
	require.Equal(t, told, r.tellings())
	require.Len(t, r.log.with("deployment of a slice written"), 1)
}

func TestWritesIntoTheMemberClusterAreBounded(t *testing.T) {
	t.Parallel()
	r := newSliceRig(t)
	var times []time.Time // of one goroutine, the driver's; read after it ended
	r.member.PrependReactor("create", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
		times = append(times, r.clock.Now())
		return false, nil, nil
	})
	for i := range 30 {
		r.order(broker.SliceLoad, func(s *broker.Slice) { s.Name = fmt.Sprintf("many-%02d-00000000", i) })
	}
	r.pace = 10 * time.Millisecond
	r.start()
	r.until("all loaded", func() bool {
		r.exchange.mu.Lock()
		defer r.exchange.mu.Unlock()
		for _, s := range r.exchange.slices {
			if s.Status.State != broker.SliceLoaded {
				return false
			}
		}
		return true
	})
	r.stop()
	require.Len(t, times, 30)
	require.GreaterOrEqual(t, times[29].Sub(times[0]), 29*actEvery-r.pace)
}

func TestAnAgentThatWasReplacedActsNoMore(t *testing.T) {
	t.Parallel()
	older := newSliceRig(t).start()
	older.order(broker.SliceLoad)
	older.untilState(broker.SliceLoaded, 0)
	older.exchange.with(func() { older.exchange.adverts["rome-adv"].Status.Epoch++ }) // a newer one opened a session
	silent := "a newer agent speaks for this cluster: silent until the advertisement is Stale"
	older.until("its silence", func() bool { return len(older.log.with(silent)) == 1 })
	told := older.tellings()
	older.order(broker.SliceActivate)
	older.pass(time.Minute)
	require.Zero(t, *older.deployment().Spec.Replicas)
	require.Equal(t, told, older.tellings())
}
