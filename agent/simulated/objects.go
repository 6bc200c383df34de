package simulated

import (
	"fmt"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Every simulated object says so.
const (
	// Label is "true" on every simulated object.
	Label = "bourse.dev/simulated"
	// Annotation says the same in words.
	Annotation = "bourse.dev/simulated"

	simulatedText = "made up in memory by bourse dev: no machine, no container stands behind it"
	podNamespace  = "default"
)

// simNode is a node with what stands on it.
type simNode struct {
	name        string
	cpuMilli    int64
	memoryBytes int64
	usedMilli   int64
	usedBytes   int64
	pods        []simPod    // the cluster's own, which come and go
	instances   []*instance // of Deployments
}

type simPod struct {
	name        string
	cpuMilli    int64
	memoryBytes int64
}

type podSize struct{ cpu, memory string }

func (s podSize) amounts() (cpuMilli, memoryBytes int64) {
	cpu, memory := resource.MustParse(s.cpu), resource.MustParse(s.memory)
	return cpu.MilliValue(), memory.Value()
}

func (n *simNode) fits(cpuMilli, memoryBytes int64) bool {
	return n.usedMilli+cpuMilli <= n.cpuMilli && n.usedBytes+memoryBytes <= n.memoryBytes && len(n.pods)+len(n.instances) < podsPerNode
}

func (n *simNode) add(p simPod) {
	n.pods = append(n.pods, p)
	n.usedMilli += p.cpuMilli
	n.usedBytes += p.memoryBytes
}

func (n *simNode) drop(i int) {
	n.usedMilli -= n.pods[i].cpuMilli
	n.usedBytes -= n.pods[i].memoryBytes
	n.pods = append(n.pods[:i], n.pods[i+1:]...)
}

func (c *Cluster) newNode(number int) *simNode {
	cpu, memory := resource.MustParse(c.config.CPUPerNode), resource.MustParse(c.config.MemoryPerNode)
	return &simNode{
		name:        fmt.Sprintf("sim-%s-%d", c.config.Name, number),
		cpuMilli:    cpu.MilliValue(),
		memoryBytes: memory.Value(),
	}
}

func (c *Cluster) nodeObject(n *simNode) *corev1.Node {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse(c.config.CPUPerNode),
		corev1.ResourceMemory: resource.MustParse(c.config.MemoryPerNode),
		corev1.ResourcePods:   *resource.NewQuantity(podsPerNode, resource.DecimalSI),
	}
	if c.config.GPUsPerNode > 0 {
		capacity["nvidia.com/gpu"] = *resource.NewQuantity(int64(c.config.GPUsPerNode), resource.DecimalSI)
	}
	return &corev1.Node{
		ObjectMeta: c.meta("", n.name, map[string]string{corev1.LabelHostname: n.name}),
		Status: corev1.NodeStatus{
			Capacity:    capacity,
			Allocatable: capacity.DeepCopy(),
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Simulated"}},
		},
	}
}

func (c *Cluster) podObject(n *simNode, name string, size podSize) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: c.meta(podNamespace, name, nil),
		Spec: corev1.PodSpec{
			NodeName: n.name,
			Containers: []corev1.Container{{
				Name:  "simulated",
				Image: "simulated",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU:    resource.MustParse(size.cpu),
					corev1.ResourceMemory: resource.MustParse(size.memory),
				}},
			}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// systemNamespace gives the cluster an identity, the same for the same name.
func (c *Cluster) systemNamespace() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: c.meta("", metav1.NamespaceSystem, nil)}
}

func (c *Cluster) meta(namespace, name string, labels map[string]string) metav1.ObjectMeta {
	all := map[string]string{Label: "true"}
	for k, v := range labels {
		all[k] = v
	}
	return metav1.ObjectMeta{
		Namespace:   namespace,
		Name:        name,
		UID:         types.UID(uuid.NewSHA1(uuid.NameSpaceDNS, []byte(c.config.Name+"/"+namespace+"/"+name)).String()),
		Labels:      all,
		Annotations: map[string]string{Annotation: simulatedText},
	}
}
