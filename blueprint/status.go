package blueprint

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// report is the blueprint's status. stuck says why its commands have been refused for too long.
func (r *reconciliation) report(stuck string) *broker.BlueprintStatus {
	b := r.blueprint
	was := &b.Status
	status := &broker.BlueprintStatus{
		ObservedGeneration: b.Generation, RolledBack: r.rolledBack, History: was.History,
		Phase: broker.BlueprintActive,
	}
	if was.ObservedGeneration == b.Generation {
		status.ActivatedAt = was.ActivatedAt
	}
	var faults, pending []string
	for _, t := range r.tasks {
		line, waits := r.reportTask(t)
		status.Slices = append(status.Slices, line)
		status.Desired += line.Desired
		status.Placed += line.Placed
		status.Ready += line.Ready
		if line.Message != "" {
			faults = append(faults, line.Name+": "+line.Message)
		}
		if line.Ready < line.Desired {
			pending = append(pending, fmt.Sprintf("%s: %d of %d ready", line.Name, line.Ready, line.Desired))
			pending = append(pending, waits...)
		}
		if !t.steady() && line.Ready >= line.Desired {
			pending = append(pending, line.Name+": changing")
		}
	}
	if r.rolledBack == nil {
		status.History = r.history()
	}
	if back := r.rolledBack; back != nil {
		faults = append([]string{fmt.Sprintf("generation %d was taken back: %s did not get ready on %s: %s",
			back.Generation, back.Artifact, back.ClusterID, back.Message)}, faults...)
	}
	if r.blocked != "" {
		faults = append(faults, r.blocked)
	}
	if stuck != "" {
		faults = append(faults, stuck)
	}
	switch {
	case len(faults) > 0:
		status.Phase, status.Message = broker.BlueprintDegraded, strings.Join(faults, "; ")
	case len(pending) > 0:
		status.Phase, status.Message = broker.BlueprintProgressing, strings.Join(pending, "; ")
	default:
		status.Message = plural(int(status.Ready), "instance is", "instances are") + " ready"
		if status.ActivatedAt == nil {
			now := metav1.NewMicroTime(timeOf(r.now))
			status.ActivatedAt = &now
		}
	}
	status.Message = broker.Clip(status.Message, broker.MaxConditionMessageBytes)
	return status
}

// steady: all that runs is of the wanted version, as many as should, and ready.
func (t *task) steady() bool {
	for at, n := range t.next {
		s := t.shares[at]
		if n == 0 && t.have[at] == 0 {
			continue
		}
		if s == nil || t.turned[at] || t.have[at] != n || s.record.Instances != n || !t.runs(s) || !s.settled() {
			return false
		}
	}
	return true
}

// reportTask is what becomes of one slice, and what the agents say of shares that are on their way.
func (r *reconciliation) reportTask(t *task) (line broker.BlueprintSliceStatus, waits []string) {
	line = broker.BlueprintSliceStatus{Name: t.spec.Name, Artifact: t.wanted.artifact}
	var words []string
	before := r.reasons(t)
	var price int64
	for at, n := range t.next {
		if n == 0 {
			continue
		}
		site, s := r.fed.sites[at], t.shares[at]
		p := broker.BlueprintPlacement{ClusterID: site.id, Instances: int32(n), Ready: int32(min(n, t.ready[at])), Reason: before[site.id]}
		if s != nil {
			if s.observed() {
				p.State = s.status().State
			}
			switch failure := s.failure(); {
			case t.turned[at]: // what it says is of another version
			case failure != "":
				words = append(words, site.id+" failed: "+failure)
			case s.observed() && !s.settled() && s.status().Message != "":
				waits = append(waits, site.id+": "+s.status().Message)
			}
		}
		if p.Reason == "" || n > t.have[at] {
			p.Reason = broker.Clip(t.spread.Liking(at), broker.MaxPlacementReasonBytes)
		}
		line.Placed += p.Instances
		line.Ready += p.Ready
		line.Clusters = append(line.Clusters, p)
		if one := site.prices.Price(t.askAt(at).Times(n)); price == allocation.Unpriced || one == allocation.Unpriced {
			price = allocation.Unpriced
		} else {
			price += one
		}
	}
	line.Desired = int32(max(t.least, min(t.most, int(line.Placed))))
	line.PricePerHour = broker.FormatPrice(price)
	words = some(words)
	if why := r.unplaced(t); why != "" {
		words = append(words, why)
	}
	line.Message = broker.Clip(strings.Join(words, "; "), broker.MaxConditionMessageBytes)
	return line, some(waits)
}

// some of a list, and how many others there are.
func some(list []string) []string {
	if more := len(list) - namedMisses; more > 0 {
		return append(list[:namedMisses:namedMisses], fmt.Sprintf("%d others", more))
	}
	return list
}

// reasons are what the status says of why the slice is where it is.
func (r *reconciliation) reasons(t *task) map[string]string {
	reasons := map[string]string{}
	for i := range r.blueprint.Status.Slices {
		if line := &r.blueprint.Status.Slices[i]; line.Name == t.spec.Name {
			for j := range line.Clusters {
				reasons[line.Clusters[j].ClusterID] = line.Clusters[j].Reason
			}
		}
	}
	return reasons
}

// unplaced says why not all of a slice that must run has a place, "" where it has.
func (r *reconciliation) unplaced(t *task) string {
	switch lack := t.least - sum(t.counts()); {
	case t.fault != "":
		return t.fault
	case lack > 0:
		return fmt.Sprintf("%d of %s no place: %s", lack, plural(t.least, "instance has", "instances have"), r.misses(t))
	}
	return ""
}

func plural(n int, one, many string) string {
	if n == 1 {
		many = one
	}
	return fmt.Sprint(n, " ", many)
}

// misses says what the clusters lack, those that lack capacity alone first.
func (r *reconciliation) misses(t *task) string {
	if len(r.fed.sites) == 0 {
		return "no cluster is advertised"
	}
	var near, far []string
	for at, s := range r.fed.sites {
		switch why := r.missing(t, at); {
		case why == "":
		case s.closed() == "" && t.selector.Matches(s.labels):
			near = append(near, s.id+": "+why)
		default:
			far = append(far, s.id+": "+why)
		}
	}
	return strings.Join(some(append(near, far...)), "; ")
}

// history with what each slice runs in full now in the newest entry, and the other slices as they were in
// it: one that has no place must not make others go back to what they ran long ago. A generation has one entry.
func (r *reconciliation) history() []broker.BlueprintVersion {
	was := r.blueprint.Status.History
	artifacts, news := map[string]string{}, false
	for _, t := range r.tasks {
		artifact := r.versionBefore(t)
		if t.wanted.artifact != artifact && t.fault == "" && sum(t.next) > 0 && t.steady() {
			artifact, news = t.wanted.artifact, true
		}
		if artifact != "" {
			artifacts[t.spec.Name] = artifact
		}
	}
	if !news {
		return was
	}
	next := []broker.BlueprintVersion{{
		Generation: r.blueprint.Generation, Artifacts: artifacts, ActiveAt: metav1.NewMicroTime(timeOf(r.now)),
	}}
	if len(was) > 0 && was[0].Generation == r.blueprint.Generation {
		was = was[1:]
	}
	return append(next, was[:min(len(was), broker.MaxBlueprintHistory-1)]...)
}

// waiting: the target counts on capacity that is not free yet, and may never be.
func (r *reconciliation) waiting() bool {
	return r.blocked != "" || slices.ContainsFunc(r.tasks, func(t *task) bool { return !slices.Equal(t.counts(), t.next) })
}

// wanting: more capacity could change something.
func (r *reconciliation) wanting() bool {
	return r.waiting() || slices.ContainsFunc(r.tasks, func(t *task) bool { return sum(t.next) < t.most })
}
