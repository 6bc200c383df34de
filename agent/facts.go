package agent

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// facts are the figures that only the agent knows. Every resource named is one that some usable
// node has.
type facts struct {
	allocatable allocation.Amounts
	allocated   allocation.Amounts
	largestFree allocation.Amounts
	use         []holdUse // by namespace and name
}

// holdUse is what the pods inside a hold request; it is part of allocated.
type holdUse struct {
	hold
	used allocation.Amounts
}

func (f facts) equal(o facts) bool {
	return f.allocatable.Equal(o.allocatable) && f.allocated.Equal(o.allocated) && f.largestFree.Equal(o.largestFree) &&
		slices.EqualFunc(f.use, o.use, func(a, b holdUse) bool { return a.hold == b.hold && a.used.Equal(b.used) })
}

// report puts the facts into the words of the API.
func (f facts) report() broker.FactsReport {
	report := broker.FactsReport{
		Allocatable: resourceList(f.allocatable),
		Allocated:   resourceList(f.allocated),
		LargestFree: resourceList(f.largestFree),
	}
	for _, u := range f.use {
		report.Use = append(report.Use, broker.HoldUse{
			Kind: broker.HolderSlice, Namespace: u.namespace, Name: u.name, Fence: u.fence, Used: resourceList(u.used),
		})
	}
	return report
}

// usesOf sorts the use and cuts it to what a report may carry; what is cut stays allocated.
func usesOf(byHold map[hold]tally, names []string) []holdUse {
	var uses []holdUse
	for h, used := range byHold {
		if amounts := used.amounts(names); len(amounts) > 0 {
			uses = append(uses, holdUse{h, amounts})
		}
	}
	slices.SortFunc(uses, func(a, b holdUse) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	return uses[:min(len(uses), broker.MaxHoldUse)]
}

func resourceList(amounts allocation.Amounts) corev1.ResourceList {
	list := make(corev1.ResourceList, len(amounts))
	for _, a := range amounts {
		list[corev1.ResourceName(a.Resource)] = broker.QuantityOf(a.Resource, a.Value)
	}
	return list
}

// tally is a sum that is added to and taken from. It wraps around where it overflows, so that
// taking away what was added always gives back what was there.
type tally map[string]int64

func (t tally) add(amounts allocation.Amounts, sign int64) {
	for _, a := range amounts {
		if v := t[a.Resource] + sign*a.Value; v != 0 {
			t[a.Resource] = v
		} else {
			delete(t, a.Resource)
		}
	}
}

// amounts returns the sums of the named resources (sorted), each within what an amount may be.
func (t tally) amounts(names []string) allocation.Amounts {
	out := make(allocation.Amounts, 0, len(names))
	for _, name := range names {
		switch v := t[name]; {
		case v < 0 || v > allocation.MaxAmount: // negative: wrapped around
			out = append(out, allocation.Amount{Resource: name, Value: allocation.MaxAmount})
		case v > 0:
			out = append(out, allocation.Amount{Resource: name, Value: v})
		}
	}
	return out
}

// reportable sorts the resources' names and cuts them to what a report may carry: cpu, memory
// and pods first, then by name.
func (t tally) reportable() []string {
	rank := func(name string) int {
		if name == allocation.CPU || name == allocation.Memory || name == string(corev1.ResourcePods) {
			return 0
		}
		return 1
	}
	names := make([]string, 0, len(t))
	for name := range t {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		if a < b {
			return -1
		}
		return 1
	})
	names = names[:min(len(names), broker.MaxResources)]
	slices.Sort(names)
	return names
}
