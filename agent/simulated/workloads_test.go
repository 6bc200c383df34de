package simulated

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
)

// shop is a cluster with one Deployment, on a clock that only the test advances.
type shop struct {
	t     *testing.T
	c     *Cluster
	clock *clocktesting.FakeClock
}

func newShop(t *testing.T, replicas int32, image, cpu string) *shop {
	t.Helper()
	config := Default("rome")
	s := &shop{t: t, clock: clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))}
	config.Clock = s.clock
	s.c = newCluster(t, config)
	labels := map[string]string{"app": "web"}
	_, err := s.c.Client().AppsV1().Deployments("shop").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Strategy: appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{
				MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(1)),
			}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "web", Image: image,
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("64Mi")}},
				}}},
			},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return s
}

// tend looks once and returns the Deployment's pods.
func (s *shop) tend() []corev1.Pod {
	s.t.Helper()
	s.clock.Step(tendEvery)
	require.NoError(s.t, s.c.tend(s.t.Context()))
	pods, err := s.c.Client().CoreV1().Pods("shop").List(s.t.Context(), metav1.ListOptions{})
	require.NoError(s.t, err)
	requireBooksMatchObjects(s.t, s.c)
	return pods.Items
}

func (s *shop) change(f func(*appsv1.Deployment)) *appsv1.Deployment {
	s.t.Helper()
	all := s.c.Client().AppsV1().Deployments("shop")
	d, err := all.Get(s.t.Context(), "web", metav1.GetOptions{})
	require.NoError(s.t, err)
	f(d)
	d, err = all.Update(s.t.Context(), d, metav1.UpdateOptions{})
	require.NoError(s.t, err)
	return d
}

func (s *shop) status() appsv1.DeploymentStatus {
	s.t.Helper()
	d, err := s.c.Client().AppsV1().Deployments("shop").Get(s.t.Context(), "web", metav1.GetOptions{})
	require.NoError(s.t, err)
	return d.Status
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func readyOf(pods []corev1.Pod) (n int) {
	for i := range pods {
		if isReady(&pods[i]) {
			n++
		}
	}
	return n
}

func TestADeploymentsPodsGetReadyAfterAMomentAndSayThatTheyAreSimulated(t *testing.T) {
	t.Parallel()
	s := newShop(t, 3, "web:1", "100m")
	pods := s.tend()
	require.Len(t, pods, 3)
	require.Zero(t, readyOf(pods))
	began := s.clock.Now()
	for readyOf(pods) < 3 {
		pods = s.tend()
		require.Less(t, s.clock.Since(began), 3*time.Second)
	}
	require.GreaterOrEqual(t, s.clock.Since(began), readyAfter)
	for _, p := range pods {
		require.Equal(t, "true", p.Labels[Label])
		require.Contains(t, p.Annotations[Annotation], "made up")
		require.Equal(t, corev1.PodRunning, p.Status.Phase)
		require.Equal(t, "web-"+p.Labels[appsv1.DefaultDeploymentUniqueLabelKey], metav1.GetControllerOf(&p).Name)
	}
	require.Equal(t, appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: 3, AvailableReplicas: 3}, s.status())
}

func TestARollingUpdateKeepsWithinItsBounds(t *testing.T) {
	t.Parallel()
	s := newShop(t, 4, "web:1", "100m")
	for readyOf(s.tend()) < 4 {
	}
	d := s.change(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "web:2" })
	require.Equal(t, int64(2), d.Generation)
	for range 100 {
		pods := s.tend()
		require.LessOrEqual(t, len(pods), 5, "surge 1")
		require.GreaterOrEqual(t, readyOf(pods), 3, "unavailable 1")
		if s.status().UpdatedReplicas == 4 && s.status().Replicas == 4 && s.status().ReadyReplicas == 4 {
			return
		}
	}
	t.Fatal("the rollout did not end")
}

func TestABrokenImageNeverGetsReadyAndStopsTheRollout(t *testing.T) {
	t.Parallel()
	s := newShop(t, 4, "web:1", "100m")
	for readyOf(s.tend()) < 4 {
	}
	s.change(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "web:broken" })
	var pods []corev1.Pod
	for range 50 {
		pods = s.tend()
		require.GreaterOrEqual(t, readyOf(pods), 3)
	}
	waiting := 0
	for _, p := range pods {
		if len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Waiting != nil {
			require.Equal(t, "ErrImagePull", p.Status.ContainerStatuses[0].State.Waiting.Reason)
			waiting++
		}
	}
	require.Equal(t, 2, waiting)
	s.change(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "web:1" })
	for range 50 {
		pods = s.tend()
		require.GreaterOrEqual(t, readyOf(pods), 3)
	}
	require.Equal(t, 4, readyOf(pods))
	require.Len(t, pods, 4)
}

func TestWhatDoesNotFitWaitsForRoom(t *testing.T) {
	t.Parallel()
	s := newShop(t, 8, "web:1", "2500m") // of three nodes of 4 cores, each takes at most one
	var pods []corev1.Pod
	for range 20 {
		pods = s.tend()
	}
	require.Len(t, pods, 8)
	waiting := 0
	for _, p := range pods {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				require.Equal(t, corev1.PodReasonUnschedulable, c.Reason)
				require.Empty(t, p.Spec.NodeName)
				waiting++
			}
		}
	}
	require.GreaterOrEqual(t, waiting, 5)
	require.Equal(t, 8-waiting, readyOf(pods))
}

func TestPodsOfALostNodeAreMadeAnew(t *testing.T) {
	t.Parallel()
	s := newShop(t, 6, "web:1", "100m")
	require.NoError(t, s.c.changeNodes(t.Context())) // the extra node joins, empty: it gets most
	for readyOf(s.tend()) < 6 {
	}
	require.NotEmpty(t, s.c.extra.instances)
	require.NoError(t, s.c.changeNodes(t.Context()))
	require.Nil(t, s.c.extra)
	for range 20 {
		s.tend()
	}
	pods := s.tend()
	require.Len(t, pods, 6)
	require.Equal(t, 6, readyOf(pods))
}

func TestADeletedDeploymentLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t, 3, "web:1", "100m")
	require.Len(t, s.tend(), 3)
	s.change(func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](1) })
	require.Len(t, s.tend(), 1)
	require.NoError(t, s.c.Client().AppsV1().Deployments("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	require.Empty(t, s.tend())
	require.Empty(t, s.c.workloads)
}

func TestDeploymentsDoNotChangeWhatElseHappens(t *testing.T) {
	t.Parallel()
	story := func(deploy bool) (told []int) {
		s := newShop(t, 2, "web:1", "10m")
		if !deploy {
			require.NoError(t, s.c.Client().AppsV1().Deployments("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}))
		}
		for range 100 {
			s.tend()
			require.NoError(t, s.c.step(t.Context()))
			told = append(told, s.c.lastName, s.c.percent())
		}
		return told
	}
	require.Equal(t, story(false), story(true))
}
