package agent

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bourse-dev/bourse/allocation"
)

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func quantity(text string) *resource.Quantity {
	q := resource.MustParse(text)
	return &q
}

func container(pairs ...string) corev1.Container {
	return corev1.Container{Name: "c", Resources: corev1.ResourceRequirements{Requests: list(pairs...)}}
}

func sidecar(pairs ...string) corev1.Container {
	always := corev1.ContainerRestartPolicyAlways
	c := container(pairs...)
	c.Name, c.RestartPolicy = "sidecar", &always
	return c
}

func podOn(node, name string, containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.PodSpec{NodeName: node, Containers: containers},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func TestEffectiveRequestsAreTheSchedulers(t *testing.T) {
	t.Parallel()
	const mi = int64(1) << 20
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		cpu    int64
		memory int64
	}{
		"containers add up": {func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{container("cpu", "500m", "memory", "64Mi"), container("cpu", "250m")}
		}, 750, 64 * mi},
		"the largest init container counts where it is more": {func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{container("cpu", "500m", "memory", "64Mi")}
			p.Spec.InitContainers = []corev1.Container{container("cpu", "2"), container("cpu", "1", "memory", "32Mi")}
		}, 2000, 64 * mi},
		"a sidecar runs beside the containers": {func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{container("cpu", "500m")}
			p.Spec.InitContainers = []corev1.Container{sidecar("cpu", "100m", "memory", "16Mi")}
		}, 600, 16 * mi},
		"an init container after a sidecar runs beside it": {func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{container("cpu", "500m")}
			p.Spec.InitContainers = []corev1.Container{sidecar("cpu", "100m"), container("cpu", "1")}
		}, 1100, 0},
		"an init container before a sidecar does not": {func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{container("cpu", "500m")}
			p.Spec.InitContainers = []corev1.Container{container("cpu", "1"), sidecar("cpu", "100m")}
		}, 1000, 0},
		"overhead is added": {func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{container("cpu", "500m")}
			p.Spec.Overhead = list("cpu", "250m", "memory", "120Mi")
		}, 750, 120 * mi},
		"pod-level requests take the place of the containers'": {func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{container("cpu", "500m", "memory", "64Mi")}
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: list("cpu", "2")}
		}, 2000, 64 * mi},
		"a resize under way counts at the greater size": {func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{container("cpu", "500m")}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: "c", AllocatedResources: list("cpu", "1"),
				Resources: &corev1.ResourceRequirements{Requests: list("cpu", "1")},
			}}
		}, 1000, 0},
		"part of a thousandth of a core counts whole": {func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{container("cpu", "100u")}
		}, 1, 0},
		"a pod without requests takes a pod's place": {func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{container()}
		}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := podOn("n", "p")
			c.change(p)
			got := effectiveRequests(p)
			require.Equal(t, c.cpu, got.Get("cpu"))
			require.Equal(t, c.memory, got.Get("memory"))
			require.Equal(t, int64(1), got.Get("pods"))
		})
	}
}

func TestWhichPodsTakeRoom(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		node  string
		phase corev1.PodPhase
		takes bool
	}{
		"a running pod does":                           {"n", corev1.PodRunning, true},
		"a pod that is bound and not yet running does": {"n", corev1.PodPending, true},
		"a pod without a node does not":                {"", corev1.PodPending, false},
		"a pod that succeeded does not":                {"n", corev1.PodSucceeded, false},
		"a pod that failed does not":                   {"n", corev1.PodFailed, false},
		"a pod nobody hears from does":                 {"n", corev1.PodUnknown, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := podOn(c.node, "p")
			p.Status.Phase = c.phase
			require.Equal(t, c.takes, occupies(p))
			now := metav1.Now()
			p.DeletionTimestamp = &now
			require.Equal(t, c.takes, occupies(p), "until it is gone")
		})
	}
}

func TestWhatCannotBeCountedNeverSellsWhatIsNotThere(t *testing.T) {
	t.Parallel()
	absurd := list("memory", "900Pi", "cpu", "1")
	require.Equal(t, allocation.MaxAmount, amountsOf(absurd, true, allocation.MaxAmount).Get("memory"))
	require.Zero(t, amountsOf(absurd, false, 0).Get("memory"))
	require.Equal(t, int64(1000), amountsOf(absurd, false, 0).Get("cpu"))
	require.Zero(t, amountsOf(list("cpu", "-1"), false, 0).Get("cpu"))
}
