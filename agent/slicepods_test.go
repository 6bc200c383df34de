package agent

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// instanceOf makes the pod one of a slice's Deployment.
func instanceOf(p *corev1.Pod, slice string) *corev1.Pod {
	p.Labels = map[string]string{SliceLabel: slice, podHash: "5c9d8"}
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: slice + "-5c9d8", Controller: ptr.To(true)}}
	return p
}

func TestOnlyPodsThatASlicesDeploymentMadeAreItsPods(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"as made":                      {func(*corev1.Pod) {}, "default/web"},
		"without the label":            {func(p *corev1.Pod) { delete(p.Labels, SliceLabel) }, ""},
		"with the label only":          {func(p *corev1.Pod) { p.OwnerReferences = nil }, ""},
		"of a Job":                     {func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "Job" }, ""},
		"of a ReplicaSet of its own":   {func(p *corev1.Pod) { p.OwnerReferences[0].Name = "web" }, ""},
		"without a template's hash":    {func(p *corev1.Pod) { delete(p.Labels, podHash) }, ""},
		"owned but not controlled":     {func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }, ""},
		"whatever the label's text is": {func(p *corev1.Pod) { p.Labels[SliceLabel] = "other" }, "default/web"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := instanceOf(podOn("a", "p"), "web")
			c.change(p)
			require.Equal(t, c.want, workloadOf(p))
		})
	}
}

func TestTroubleIsNamedFromThePodsStatus(t *testing.T) {
	t.Parallel()
	waiting := func(reason, message string) corev1.PodStatus {
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Image: "docker.io/library/web:2", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
		}}}
	}
	crashed := waiting("CrashLoopBackOff", "back-off 40s restarting failed container")
	crashed.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}
	for name, c := range map[string]struct {
		status corev1.PodStatus
		want   trouble
	}{
		"no such image": {
			waiting("ErrImagePull", "manifest unknown"),
			trouble{reasonImage, "image docker.io/library/web:2 can't be pulled: manifest unknown"},
		},
		"no such image, said in the next turn": {
			waiting("ImagePullBackOff", `Back-off pulling image "web:2": ErrImagePull: manifest unknown`),
			trouble{reasonImage, "image docker.io/library/web:2 can't be pulled: manifest unknown"},
		},
		"no such image, by an older kubelet": {
			waiting("ImagePullBackOff", `Back-off pulling image "web:2"`),
			trouble{reasonImage, "image docker.io/library/web:2 can't be pulled"},
		},
		"an image that runs as root": {
			waiting("CreateContainerConfigError", "container has runAsNonRoot and image will run as root"),
			trouble{reasonConfig, "CreateContainerConfigError: container has runAsNonRoot and image will run as root"},
		},
		"a crash loop": {crashed, trouble{reasonCrash, "crashes again and again: exit code 137 (OOMKilled)"}},
		"between two crashes": {
			corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}}}}},
			trouble{reasonCrash, "crashes again and again: exit code 1 (Error)"},
		},
		"no room": {
			corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available: 3 Insufficient cpu."}}},
			trouble{reasonUnschedulable, "can't be scheduled: 0/3 nodes are available: 3 Insufficient cpu."},
		},
		"not ready": {corev1.PodStatus{Phase: corev1.PodRunning}, trouble{reasonNotReady, "not ready"}},
		"ready":     {corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}, trouble{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, troubleOf(&corev1.Pod{Status: c.status}))
		})
	}
}

func TestTheMostTellingTroubleSpeaksForAll(t *testing.T) {
	t.Parallel()
	pod := func(name, template string, ready bool, t trouble) *instance {
		return &instance{ObjectMeta: metav1.ObjectMeta{Name: name}, template: template, ready: ready, trouble: t}
	}
	image := trouble{reasonImage, "image web:2 can't be pulled"}
	pods := []*instance{
		pod("a", "new", false, trouble{reasonNotReady, "not ready"}), pod("c", "new", false, image), pod("b", "new", false, image),
		pod("d", "new", true, trouble{}), pod("e", "old", true, trouble{}),
		{ObjectMeta: metav1.ObjectMeta{Name: "f"}, leaving: true, ready: true},
	}
	n := countInstances(pods, "new")
	require.Equal(t, podCount{live: 5, ready: 2, current: 1, leaving: 1, trouble: image, beset: 2}, n)
	require.Equal(t, "2 pods: image web:2 can't be pulled", n.words())
	pods[0], pods[4] = pods[4], pods[0]
	require.Equal(t, n, countInstances(pods, "new"))
}
