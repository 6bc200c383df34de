package agent

import (
	corev1 "k8s.io/api/core/v1"
)

// Marks of nodes that stand for another cluster's capacity. Counting one would sell somebody
// else's cores a second time.
const (
	liqoTypeLabel    = "liqo.io/type"
	liqoTypeVirtual  = "virtual-node"
	liqoTaint        = "virtual-node.liqo.io/not-allowed"
	virtualTypeLabel = "type"
	virtualType      = "virtual-kubelet"
	virtualTaint     = "virtual-kubelet.io/provider"
)

// usable says whether the node's capacity counts: Ready, schedulable, free of taints that keep
// ordinary pods away, and real.
func usable(n *corev1.Node) bool {
	return !virtual(n) && !n.Spec.Unschedulable && untainted(n) && ready(n)
}

func virtual(n *corev1.Node) bool {
	if n.Labels[liqoTypeLabel] == liqoTypeVirtual || n.Labels[virtualTypeLabel] == virtualType {
		return true
	}
	for i := range n.Spec.Taints {
		// Whatever the effect: some providers soften it to PreferNoSchedule.
		if key := n.Spec.Taints[i].Key; key == virtualTaint || key == liqoTaint {
			return true
		}
	}
	return false
}

func untainted(n *corev1.Node) bool {
	for i := range n.Spec.Taints {
		if e := n.Spec.Taints[i].Effect; e == corev1.TaintEffectNoSchedule || e == corev1.TaintEffectNoExecute {
			return false
		}
	}
	return true
}

func ready(n *corev1.Node) bool {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
