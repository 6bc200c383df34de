package allocation

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// AmountsOf is a Kubernetes resource list in the house's integers. What a unit can't express is
// rounded up (requests, use) or down (supply).
func AmountsOf(list corev1.ResourceList, roundUp bool) (Amounts, error) {
	out := make(Amounts, 0, len(list))
	for name, quantity := range list {
		amount, err := broker.AmountOf(string(name), quantity, roundUp)
		if err != nil {
			return nil, err
		}
		if amount != 0 {
			out = append(out, Amount{string(name), amount})
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	slices.SortFunc(out, func(x, y Amount) int { return strings.Compare(x.Resource, y.Resource) })
	return out, nil
}

// ResourceList is the vector as the API writes it; nil for the zero vector.
func (a Amounts) ResourceList() corev1.ResourceList {
	if len(a) == 0 {
		return nil
	}
	return a.list()
}

func (a Amounts) list() corev1.ResourceList {
	list := make(corev1.ResourceList, len(a))
	for _, r := range a {
		list[corev1.ResourceName(r.Resource)] = broker.QuantityOf(r.Resource, r.Value)
	}
	return list
}

// index of a resource in the vector; -1 where it is not named.
func (a Amounts) index(resource string) int {
	for i := range a {
		if a[i].Resource == resource {
			return i
		}
	}
	return -1
}
