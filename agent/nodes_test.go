package agent

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func readyNode(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}},
		Status: corev1.NodeStatus{
			Allocatable: list("cpu", "4", "memory", "8Gi", "pods", "110"),
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
			},
		},
	}
}

func TestWhichNodesCount(t *testing.T) {
	t.Parallel()
	taint := func(key string, effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: key, Effect: effect}} }
	}
	label := func(key, value string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Labels[key] = value }
	}
	condition := func(status corev1.ConditionStatus) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Status.Conditions[1].Status = status }
	}
	for name, c := range map[string]struct {
		change func(*corev1.Node)
		counts bool
	}{
		"a ready node counts":                       {func(*corev1.Node) {}, true},
		"a node that is not ready does not":         {condition(corev1.ConditionFalse), false},
		"a node nobody hears from does not":         {condition(corev1.ConditionUnknown), false},
		"a node without conditions does not":        {func(n *corev1.Node) { n.Status.Conditions = nil }, false},
		"a cordoned node does not":                  {func(n *corev1.Node) { n.Spec.Unschedulable = true }, false},
		"a control-plane taint excludes":            {taint("node-role.kubernetes.io/control-plane", corev1.TaintEffectNoSchedule), false},
		"a NoExecute taint excludes":                {taint("dedicated", corev1.TaintEffectNoExecute), false},
		"a PreferNoSchedule taint does not exclude": {taint("slow", corev1.TaintEffectPreferNoSchedule), true},
		"Liqo's virtual node does not count":        {label("liqo.io/type", "virtual-node"), false},
		"another liqo.io/type does":                 {label("liqo.io/type", "worker"), true},
		"a virtual-kubelet does not":                {label("type", "virtual-kubelet"), false},
		"a softened virtual-kubelet taint excludes": {taint("virtual-kubelet.io/provider", corev1.TaintEffectPreferNoSchedule), false},
		"a softened Liqo taint excludes":            {taint("virtual-node.liqo.io/not-allowed", corev1.TaintEffectPreferNoSchedule), false},
		"the agent role alone says nothing":         {label("kubernetes.io/role", "agent"), true},
		"the agent role with a provider taint is virtual": {func(n *corev1.Node) {
			n.Labels["kubernetes.io/role"] = "agent"
			n.Spec.Taints = []corev1.Taint{{Key: "virtual-kubelet.io/provider", Value: "azure"}}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := readyNode("n")
			c.change(n)
			require.Equal(t, c.counts, usable(n))
		})
	}
}
