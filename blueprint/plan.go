package blueprint

import (
	"cmp"
	"strings"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
)

// Preview is what a blueprint would come to.
type Preview struct {
	// Changes by slice and cluster, in the order of the spec and of cluster IDs.
	Changes []broker.PlannedChange
	// Unplaced are the slices that would not fit now.
	Unplaced []Unplaced
	// Unselected are the indexes of slices whose clusterSelector matches no cluster.
	Unselected []int
}

// Unplaced is a slice that has no place for all instances that must run.
type Unplaced struct {
	Slice int // its index in the spec
	// Message says how many instances of how many, and what the nearest clusters lack.
	Message string
}

// Plan says what the room would make of the blueprint on this state, all moves made: it is the same
// function. The blueprint need not be stored, nor its UID be set. Pure, on any goroutine.
func Plan(p Policy, state *fsm.State, b *broker.Blueprint, now fsm.Millis) Preview {
	var shares []*share
	for row := range state.Scan(broker.SlicesPrefix + b.Namespace + "/") {
		s := shareOf(row)
		if b.UID != "" && s.record.UID == string(b.UID) && s.record.Blueprint == b.Name {
			shares = append(shares, s)
		}
	}
	r := aim(p, newFederation(state), b, shares, now)
	var out Preview
	for i, t := range r.tasks {
		matches := false
		for at, after := range t.counts() {
			matches = matches || t.selector.Matches(r.fed.sites[at].labels)
			if c, changed := r.planned(t, at, after); changed {
				out.Changes = append(out.Changes, c)
			}
		}
		if !matches {
			out.Unselected = append(out.Unselected, i)
		}
		if why := r.unplaced(t); why != "" {
			out.Unplaced = append(out.Unplaced, Unplaced{i, why})
		}
	}
	for _, s := range r.strays {
		if s.record.Instances > 0 {
			out.Changes = append(out.Changes, broker.PlannedChange{
				Action: "-", Slice: s.record.Slice, ClusterID: s.record.Cluster, Before: int32(s.record.Instances),
				Reason: "the blueprint has no such slice any more",
			})
		}
	}
	return out
}

// planned is one line of a plan; false: nothing changes there.
func (r *reconciliation) planned(t *task, at, after int) (broker.PlannedChange, bool) {
	site, s, before := r.fed.sites[at], t.shares[at], 0
	if s != nil {
		before = s.record.Instances
	}
	c := broker.PlannedChange{Slice: t.spec.Name, ClusterID: site.id, Before: int32(before), After: int32(after)}
	if after > 0 {
		ask := t.ask
		if t.clings[at] {
			ask = s.ask
		}
		c.PricePerHour = broker.FormatPrice(site.prices.Price(ask.Times(after)))
	}
	var why []string
	switch {
	case after > before:
		c.Action, why = "+", append(why, t.spread.Liking(at))
	case after < before:
		c.Action, why = "-", append(why, r.whyLess(t, at))
	}
	if before > 0 && after > 0 && t.fault == "" && !t.runs(s) {
		c.Action = cmp.Or(c.Action, "~")
		if keeps := r.keepsVersion(t, at, after); keeps != "" {
			why = append(why, keeps)
		} else {
			c.NewVersion, why = true, append(why, t.becomes(s)...)
		}
	}
	c.Reason = strings.Join(why, "; ")
	return c, c.Action != ""
}

// becomes says what the wanted version changes of a share.
func (t *task) becomes(s *share) (words []string) {
	const becomes = " becomes "
	was, is := &s.object.Spec, &t.wanted
	switch {
	case was.Artifact != is.artifact:
		words = append(words, was.Artifact+becomes+is.artifact)
	case was.Image != is.image: // the mapping of its group has changed
		words = append(words, was.Image+becomes+is.image)
	}
	for _, a := range s.ask.Max(t.ask) {
		if before, after := s.ask.Get(a.Resource), t.ask.Get(a.Resource); before != after {
			from, to := broker.QuantityOf(a.Resource, before), broker.QuantityOf(a.Resource, after)
			words = append(words, a.Resource+" "+from.String()+becomes+to.String())
		}
	}
	return words
}

func (r *reconciliation) whyLess(t *task, at int) string {
	switch {
	case r.mustLeave(t, at) || !t.selector.Matches(r.fed.sites[at].labels):
		return r.missing(t, at)
	case r.lost(t, at) > 0:
		return "the cluster has less capacity than it has promised"
	case !t.joined(at) || t.conflicts(at, r.tasks):
		return r.missing(t, at)
	case r.aggressive() && sum(t.counts()) >= sum(t.have):
		return "a better place is elsewhere"
	}
	return "fewer instances are wanted"
}
