package agent

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// occupies says whether the pod takes room on a node. A terminating pod does, until it is gone.
func occupies(p *corev1.Pod) bool {
	return p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// effectiveRequests is what the scheduler counts for the pod: containers, sidecars and init
// containers as they overlap, overhead, pod-level resources, resizes under way at the greater
// size, and the pod itself as one of "pods".
func effectiveRequests(p *corev1.Pod) allocation.Amounts {
	list := resource.PodRequests(p, resource.PodResourcesOptions{
		UseStatusResources: true,
		InPlacePodLevelResourcesVerticalScalingEnabled: true,
	})
	sum := allocation.Amounts{{Resource: string(corev1.ResourcePods), Value: 1}}
	return sum.Add(amountsOf(list, true, allocation.MaxAmount))
}

// amountsOf converts what Kubernetes says. It never fails: what can't be counted counts as
// otherwise (the whole for a request, nothing for capacity), so that a mistake never sells
// what isn't there.
func amountsOf(list corev1.ResourceList, roundUp bool, otherwise int64) allocation.Amounts {
	amounts := make([]allocation.Amount, 0, len(list))
	for name, quantity := range list {
		value, err := broker.AmountOf(string(name), quantity, roundUp)
		if err != nil || value > allocation.MaxAmount {
			value = otherwise
		}
		amounts = append(amounts, allocation.Amount{Resource: string(name), Value: max(0, value)})
	}
	return allocation.NewAmounts(amounts...)
}
