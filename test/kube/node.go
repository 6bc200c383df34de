package kube

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

// notReadyAnnotation makes kwok report the node as not Ready for as long as it is there; see stages.yaml.
const notReadyAnnotation = "node-not-ready.stage.kwok.x-k8s.io/on"

// podsPerNode is what a kubelet allows unless told otherwise.
const podsPerNode = "110"

// Node is a machine that kwok plays.
type Node struct {
	Name      string
	CPU       string            // quantity: 8
	Memory    string            // quantity: 32Gi
	Resources map[string]string // more resources: nvidia.com/gpu: 4; pods: 500
	Labels    map[string]string
	Taints    []corev1.Taint
}

// AddNode adds a node and returns once it is Ready and pods can be bound to it.
func (c *Cluster) AddNode(ctx context.Context, n Node) error {
	if err := c.createNode(ctx, n); err != nil {
		return fmt.Errorf("cluster %s: %w", c.name, err)
	}
	if err := c.waitNode(ctx, n.Name, true); err != nil {
		return fmt.Errorf("cluster %s: %w", c.name, err)
	}
	return nil
}

// DeleteNode removes a node. As on any cluster its pods stay until the garbage collector finds them, 40 s or more.
func (c *Cluster) DeleteNode(ctx context.Context, name string) error {
	if err := c.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("cluster %s: deleting node %s: %w", c.name, name, err)
	}
	return nil
}

// SetNodeReady makes the node's kubelet report Ready or not, and returns once the controllers have put or removed the
// not-ready taint.
func (c *Cluster) SetNodeReady(ctx context.Context, name string, ready bool) error {
	var value any // null removes the annotation
	if !ready {
		value = "true"
	}
	patch := map[string]any{"metadata": map[string]any{"annotations": map[string]any{notReadyAnnotation: value}}}
	if err := c.patchNode(ctx, name, patch); err != nil {
		return err
	}
	if err := c.waitNode(ctx, name, ready); err != nil {
		return fmt.Errorf("cluster %s: %w", c.name, err)
	}
	return nil
}

// SetNodeUnschedulable does what kubectl cordon and uncordon do.
func (c *Cluster) SetNodeUnschedulable(ctx context.Context, name string, unschedulable bool) error {
	return c.patchNode(ctx, name, map[string]any{"spec": map[string]any{"unschedulable": unschedulable}})
}

// TaintNode adds a taint, or replaces the one with the same key and effect.
func (c *Cluster) TaintNode(ctx context.Context, name string, taint corev1.Taint) error {
	return c.changeTaints(ctx, name, func(old corev1.Taint) bool { return !old.MatchTaint(&taint) }, taint)
}

// UntaintNode removes all taints with a key.
func (c *Cluster) UntaintNode(ctx context.Context, name, key string) error {
	return c.changeTaints(ctx, name, func(old corev1.Taint) bool { return old.Key != key })
}

// changeTaints keeps some taints and adds others. It retries, as the controllers change taints too.
func (c *Cluster) changeTaints(ctx context.Context, name string, keep func(corev1.Taint) bool, add ...corev1.Taint) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node, err := c.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		var taints []corev1.Taint
		for _, t := range node.Spec.Taints {
			if keep(t) {
				taints = append(taints, t)
			}
		}
		node.Spec.Taints = append(taints, add...)
		_, err = c.client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("cluster %s: changing the taints of node %s: %w", c.name, name, err)
	}
	return nil
}

func (c *Cluster) patchNode(ctx context.Context, name string, patch map[string]any) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	if _, err := c.client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("cluster %s: changing node %s: %w", c.name, name, err)
	}
	return nil
}

func (c *Cluster) createNode(ctx context.Context, n Node) error {
	quantities := map[string]string{"cpu": n.CPU, "memory": n.Memory, "pods": podsPerNode}
	for name, q := range n.Resources {
		quantities[name] = q
	}
	capacity := corev1.ResourceList{}
	for name, q := range quantities {
		parsed, err := resource.ParseQuantity(q)
		if err != nil {
			return fmt.Errorf("node %s: %s %q: %w", n.Name, name, q, err)
		}
		capacity[corev1.ResourceName(name)] = parsed
	}
	labels := map[string]string{
		corev1.LabelHostname: n.Name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
	}
	for k, v := range n.Labels {
		labels[k] = v
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: labels},
		Spec:       corev1.NodeSpec{Taints: n.Taints},
		Status:     corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
	}
	if _, err := c.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating node %s: %w", n.Name, err)
	}
	return nil
}

// waitNode waits until the node's Ready condition is as wanted and the controllers' not-ready taint agrees with it.
func (c *Cluster) waitNode(ctx context.Context, name string, ready bool) error {
	what := "node " + name + " to be Ready"
	if !ready {
		what = "node " + name + " not to be Ready"
	}
	if err := c.waitFor(ctx, what, func(ctx context.Context) error {
		node, err := c.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		condition := corev1.ConditionUnknown
		for _, cond := range node.Status.Conditions {
			if cond.Type == corev1.NodeReady {
				condition = cond.Status
			}
		}
		tainted := false
		for _, t := range node.Spec.Taints {
			tainted = tainted || t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable
		}
		if (condition == corev1.ConditionTrue) != ready || tainted == ready {
			return notYetf("Ready is %s, not-ready taint: %t", condition, tainted)
		}
		return nil
	}); err != nil {
		return err
	}
	if ready {
		c.logf("node %s ready", name)
	}
	return nil
}
