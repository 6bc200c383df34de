package agent

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podHash is the label that ties a pod to its ReplicaSet.
const podHash = "pod-template-hash"

// workloadOf is the key of the Deployment that made a slice's pod; empty for all other pods. A pod that only
// carries the labels is not taken for one: its ReplicaSet's name must be the Deployment's.
func workloadOf(p *corev1.Pod) string {
	if p.Labels[SliceLabel] == "" {
		return ""
	}
	controller := metav1.GetControllerOfNoCopy(p)
	if controller == nil || controller.Kind != "ReplicaSet" {
		return ""
	}
	name, ok := strings.CutSuffix(controller.Name, "-"+p.Labels[podHash])
	if !ok || p.Labels[podHash] == "" {
		return ""
	}
	return workloadKey(p.Namespace, name)
}

// instance is what is known of one of a slice's pods.
type instance struct {
	metav1.ObjectMeta // only the names
	workload          string
	template          string
	ready             bool
	leaving           bool
	trouble           trouble
}

func (i *instance) key() string { return i.Namespace + "/" + i.Name }

func readInstance(obj any) (any, error) {
	switch p := obj.(type) {
	case *instance:
		return p, nil
	case *corev1.Pod:
		return &instance{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
			workload:   workloadOf(p),
			template:   p.Annotations[templateAnnotation],
			ready:      podReady(p),
			leaving:    p.DeletionTimestamp != nil,
			trouble:    troubleOf(p),
		}, nil
	default:
		return nil, fmt.Errorf("a pod was expected, not %T", obj)
	}
}

func podReady(p *corev1.Pod) bool {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// trouble is why an instance is not ready: a word that stays the same, and the words for people.
type trouble struct {
	reason string
	text   string
}

// The reasons, the most telling first.
var troubleOrder = []string{reasonImage, reasonConfig, reasonCrash, reasonUnschedulable, reasonNotReady}

const (
	reasonImage         = "ImagePull"
	reasonConfig        = "ContainerConfig"
	reasonCrash         = "CrashLoop"
	reasonUnschedulable = "Unschedulable"
	reasonNotReady      = "NotReady"
)

func troubleOf(p *corev1.Pod) trouble {
	if podReady(p) {
		return trouble{}
	}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return trouble{reasonUnschedulable, "can't be scheduled: " + c.Message}
		}
	}
	for i := range p.Status.ContainerStatuses {
		if t := containerTrouble(&p.Status.ContainerStatuses[i]); t.reason != "" {
			return t
		}
	}
	return trouble{reasonNotReady, "not ready"}
}

// containerTrouble leaves out what changes from one attempt of the kubelet to the next: each change would be a
// write at the exchange.
func containerTrouble(c *corev1.ContainerStatus) trouble {
	if w := c.State.Waiting; w != nil {
		switch w.Reason {
		case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable":
			_, detail, _ := strings.Cut(w.Message, "ErrImagePull: ")
			if w.Reason == "ErrImagePull" || w.Reason == "InvalidImageName" {
				detail = w.Message
			}
			return trouble{reasonImage, strings.TrimSuffix(fmt.Sprintf("image %s can't be pulled: %s", c.Image, detail), ": ")}
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
			return trouble{reasonConfig, w.Reason + ": " + w.Message}
		case "CrashLoopBackOff":
			return crash(c.LastTerminationState.Terminated)
		}
	}
	if c.State.Terminated != nil {
		return crash(c.State.Terminated)
	}
	return trouble{}
}

func crash(last *corev1.ContainerStateTerminated) trouble {
	if last == nil {
		return trouble{reasonCrash, "crashes again and again"}
	}
	return trouble{reasonCrash, fmt.Sprintf("crashes again and again: exit code %d (%s)", last.ExitCode, cmp.Or(last.Reason, "no reason given"))}
}

// podCount is what a slice's pods add up to.
type podCount struct {
	live    int32 // not being deleted
	ready   int32 // of whichever template
	current int32 // ready, of the wanted template
	leaving int32
	trouble trouble // the most telling
	beset   int32   // how many have that one
}

// countInstances adds up a slice's pods. The result doesn't depend on their order.
func countInstances(pods []*instance, template string) podCount {
	var n podCount
	besetBy := map[string]int32{}
	var worst []*instance
	for _, p := range pods {
		if p.leaving {
			n.leaving++
			continue
		}
		n.live++
		if p.ready {
			n.ready++
			if p.template == template {
				n.current++
			}
			continue
		}
		besetBy[p.trouble.reason]++
		worst = append(worst, p)
	}
	if len(worst) == 0 {
		return n
	}
	first := slices.MinFunc(worst, func(a, b *instance) int {
		return cmp.Or(
			cmp.Compare(slices.Index(troubleOrder, a.trouble.reason), slices.Index(troubleOrder, b.trouble.reason)),
			cmp.Compare(a.Name, b.Name))
	})
	n.trouble, n.beset = first.trouble, besetBy[first.trouble.reason]
	return n
}

// words is why instances are missing; empty where no pod says so.
func (n *podCount) words() string {
	if n.beset == 0 {
		return ""
	}
	return podsText(n.beset) + ": " + n.trouble.text
}

func podsText(n int32) string {
	if n == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", n)
}
