package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
)

const (
	// namespace is where RunPods makes its pods.
	namespace = "default"
	// runLabel groups the pods of one RunPods.
	runLabel = "kube.test/run"
	// pauseImage is never pulled: kwok runs no containers.
	pauseImage = "pause:3.10"
)

// RunPods makes n pods in the default namespace, each with one container that requests cpu and memory, and returns
// their names once the scheduler has bound all of them and they are Running. The error says why one is not.
func (c *Cluster) RunPods(ctx context.Context, n int, cpu, memory string) ([]string, error) {
	names, err := c.runPods(ctx, n, cpu, memory)
	if err != nil {
		return names, fmt.Errorf("cluster %s: running %d pods: %w", c.name, n, err)
	}
	return names, nil
}

func (c *Cluster) runPods(ctx context.Context, n int, cpu, memory string) ([]string, error) {
	requests := corev1.ResourceList{}
	for name, q := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
		parsed, err := resource.ParseQuantity(q)
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", name, q, err)
		}
		requests[name] = parsed
	}
	run := string(uuid.NewUUID())
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "load-", Labels: map[string]string{runLabel: run}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "pause", Image: pauseImage,
			Resources: corev1.ResourceRequirements{Requests: requests},
		}}},
	}
	pods := c.client.CoreV1().Pods(namespace)
	var names []string
	for range n {
		made, err := pods.Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			return names, err
		}
		names = append(names, made.Name)
	}
	return names, c.waitFor(ctx, "pods to run", func(ctx context.Context) error {
		list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: runLabel + "=" + run})
		if err != nil {
			return err
		}
		running := 0
		var waiting *corev1.Pod
		for i, p := range list.Items {
			if p.Status.Phase == corev1.PodRunning {
				running++
			} else {
				waiting = &list.Items[i]
			}
		}
		if running < n {
			return notYetf("%d of %d run; %s", running, n, whyWaiting(waiting))
		}
		return nil
	})
}

// DeletePod deletes a pod of the default namespace and returns once it is gone.
func (c *Cluster) DeletePod(ctx context.Context, name string) error {
	pods := c.client.CoreV1().Pods(namespace)
	if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("cluster %s: deleting pod %s: %w", c.name, name, err)
	}
	if err := c.waitFor(ctx, "pod "+name+" to be gone", func(ctx context.Context) error {
		pod, err := pods.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return notYetf("still there, %s", pod.Status.Phase)
	}); err != nil {
		return fmt.Errorf("cluster %s: %w", c.name, err)
	}
	return nil
}

// whyWaiting is what the scheduler or kwok last said about a pod that does not run; p is nil if it was deleted.
func whyWaiting(p *corev1.Pod) string {
	if p == nil {
		return "the others were deleted"
	}
	for _, cond := range p.Status.Conditions {
		if cond.Type == corev1.PodScheduled && cond.Status == corev1.ConditionFalse {
			return fmt.Sprintf("pod %s: %s", p.Name, cond.Message)
		}
	}
	return fmt.Sprintf("pod %s is %s on node %q", p.Name, p.Status.Phase, p.Spec.NodeName)
}
