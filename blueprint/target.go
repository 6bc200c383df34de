package blueprint

import (
	"slices"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// aggressive says whether instances may be moved to better places.
func (r *reconciliation) aggressive() bool { return r.Rebalance && r.blueprint.Spec.Moves() > 0 }

// target says where instances should be: with what the blueprint holds given back, what may stay stays,
// what is too much is removed, and then what is missing added, slice by slice. An Aggressive blueprint
// is placed as if nothing of it ran.
func (r *reconciliation) target() {
	sites := r.sites()
	offset := 0
	for _, t := range r.tasks {
		t.spread = &allocation.Spread{
			Strategy: r.blueprint.Spec.EffectiveStrategy(), Ask: t.ask, Offset: offset,
			Sites: sites, Spots: make([]allocation.Spot, len(sites)),
		}
		offset += t.most
		for at := range sites {
			if t.spread.Spots[at].Most = t.most; t.ownApart {
				t.spread.Spots[at].Most = 1
			}
		}
	}
	r.stay(func(t *task, at int) bool { return t.askAt(at).Equal(t.ask) })
	r.stay(func(t *task, at int) bool { return !t.askAt(at).Equal(t.ask) })
	for i, t := range r.tasks {
		r.leave(t, r.tasks[:i])
		r.open(t) // instances leave clusters first that take none
		t.spread.Drop(sum(t.counts()) - t.most)
	}
	for _, t := range r.tasks {
		r.open(t)
		t.spread.Fill(t.least - sum(t.counts()))
		r.cling(t)
	}
	for _, t := range r.tasks { // what may run, once all that must has its place
		if t.most > t.least {
			r.open(t)
			t.spread.Fill(t.most - sum(t.counts()))
		}
	}
}

// stay keeps instances where they are. Where they are to have another size, no more than fit.
func (r *reconciliation) stay(these func(*task, int) bool) {
	for _, t := range r.tasks {
		if r.aggressive() && t.fault == "" {
			continue
		}
		for at := range t.have {
			n := min(r.mayStay(t, at)-r.lost(t, at), t.spread.Spots[at].Most)
			if n <= 0 || !these(t, at) {
				continue
			}
			for !t.askAt(at).Equal(t.ask) && n > 0 {
				if _, fits := allocation.Fits(&t.spread.Sites[at].Account, t.ask.Times(n)); fits {
					break
				}
				n--
			}
			t.spread.Keep(at, n)
		}
	}
}

// sites are the accounts without what the blueprint's own shares hold and use. That counts what leaves
// too, as free soon: so the target is the same all along the way to it. Not where it fails to.
func (r *reconciliation) sites() []allocation.Site {
	sites := make([]allocation.Site, len(r.fed.sites))
	for at, s := range r.fed.sites {
		sites[at] = allocation.Site{ClusterID: s.id, Account: s.account, Prices: s.prices}
	}
	give := func(s *share) {
		at, known := r.fed.index[s.record.Cluster]
		if !known || s.leaving() && s.in(broker.SliceFailed) {
			return
		}
		a, used := &sites[at].Account, r.used(s)
		a.HeldOrUsed = a.HeldOrUsed.Sub(s.held().Max(used))
		a.Allocated, a.Used = a.Allocated.Sub(used), a.Used.Sub(used)
	}
	for _, t := range r.tasks {
		for _, s := range t.shares {
			if s != nil {
				give(s)
			}
		}
	}
	for _, s := range r.strays {
		give(s)
	}
	return sites
}

// mayStay is how many instances on a cluster may stay, whatever the other slices do.
func (r *reconciliation) mayStay(t *task, at int) int {
	if t.have[at] == 0 || r.mustLeave(t, at) || !t.selector.Matches(r.fed.sites[at].labels) {
		return 0
	}
	return t.have[at]
}

// lost is how many instances of a share its cluster has no capacity for any more.
func (r *reconciliation) lost(t *task, at int) int {
	s := t.shares[at]
	if s == nil || len(r.fed.sites[at].short) == 0 {
		return 0
	}
	lost := 0
	ask := t.askAt(at)
	spare := t.hold[at].Sub(ask.Times(t.have[at])).Max(nil)
	for _, lack := range r.fed.sites[at].short[s.row.Key] {
		if one := ask.Get(lack.Resource); one > 0 {
			missing := max(0, lack.Value-spare.Get(lack.Resource))
			lost = max(lost, int((missing+one-1)/one))
		}
	}
	return min(lost, t.have[at])
}

// leave takes a slice off clusters that earlier ones don't allow.
func (r *reconciliation) leave(t *task, earlier []*task) {
	for at := range t.spread.Spots {
		if n := t.spread.Spots[at].Count; n > 0 && (!t.joined(at) || t.conflicts(at, earlier)) {
			t.spread.Keep(at, -n)
		}
	}
}

// open says which clusters take new instances of the slice now.
func (r *reconciliation) open(t *task) {
	for at, s := range r.fed.sites {
		t.spread.Spots[at].Open = t.fault == "" && s.closed() == "" && !t.refused(at) &&
			t.selector.Matches(s.labels) && t.joined(at) && !t.conflicts(at, r.tasks)
	}
}

// joined: all slices that it goes with are there.
func (t *task) joined(at int) bool {
	return !slices.ContainsFunc(t.with, func(o *task) bool { return o.spread.Spots[at].Count == 0 })
}

// conflicts: one of those slices is there and must not be.
func (t *task) conflicts(at int, others []*task) bool {
	return slices.ContainsFunc(t.apart, func(o *task) bool {
		return o.spread.Spots[at].Count > 0 && slices.Contains(others, o)
	})
}

// cling keeps instances that should go but have no better place where they are: on a cluster that is
// short they may run yet, and an artifact that can't be resolved stays as it is.
func (r *reconciliation) cling(t *task) {
	missing := t.least - sum(t.counts())
	for at := range t.spread.Spots {
		spot := &t.spread.Spots[at]
		n := min(missing, min(r.mayStay(t, at), spot.Most)-spot.Count)
		if n > 0 && t.joined(at) && !t.conflicts(at, r.tasks) {
			t.spread.Keep(at, n)
			missing -= n
		}
	}
}

func (t *task) counts() []int {
	counts := make([]int, len(t.spread.Spots))
	for at := range counts {
		counts[at] = t.spread.Spots[at].Count
	}
	return counts
}

// missing says in words why a cluster takes no instance, "" where the strategy alone decides.
func (r *reconciliation) missing(t *task, at int) string {
	s := r.fed.sites[at]
	switch lack, fits := allocation.Fits(&t.spread.Sites[at].Account, t.ask); {
	case !t.selector.Matches(s.labels):
		return "not selected by clusterSelector"
	case s.closed() != "":
		return s.closed()
	case t.refused(at):
		return "refused by its agent: " + t.shares[at].status().Message
	case !t.joined(at):
		return "does not run all slices of affinity"
	case t.conflicts(at, r.tasks):
		return "runs a slice of antiAffinity"
	case !fits:
		requested, available := broker.QuantityOf(lack.Resource, lack.Requested), broker.QuantityOf(lack.Resource, lack.Available)
		return lack.Resource + " " + requested.String() + " requested, " + available.String() + " available"
	case t.ownApart && t.spread.Spots[at].Count > 0:
		return "one instance already"
	}
	return ""
}
