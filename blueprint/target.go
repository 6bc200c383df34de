package blueprint

import (
	"slices"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// aggressive says whether instances may be moved to better places.
func (r *reconciliation) aggressive() bool { return r.Rebalance && r.blueprint.Spec.Moves() > 0 }

// target says where instances should be: what may stay stays, what is too much is removed, and then
// what is missing added, slice by slice; first where there is room now, then where there will be once
// what leaves has left. An Aggressive blueprint is placed as if nothing of it ran, which is the same
// all along the way there.
func (r *reconciliation) target() {
	sites := make([]allocation.Site, len(r.fed.sites))
	for at, s := range r.fed.sites {
		sites[at] = allocation.Site{ClusterID: s.id, Account: s.account, Prices: s.prices}
	}
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
	least, most := func(t *task) int { return t.least }, func(t *task) int { return t.most }
	r.clear(sites)
	for i, t := range r.tasks {
		if r.aggressive() && t.fault == "" {
			continue
		}
		r.stay(t)
		r.leave(t, r.tasks[:i])
		r.open(t) // instances leave clusters first that take none
		t.spread.Drop(sum(t.counts()) - t.most)
	}
	if !slices.ContainsFunc(r.tasks, func(t *task) bool { return sum(t.counts()) < t.most }) {
		return // nothing is missing
	}
	if !r.aggressive() {
		r.asTheyAre(sites)
		r.fill(least, (*task).beside)
		r.clear(sites)
	}
	whole := func(t *task, _ int) allocation.Amounts { return t.ask }
	r.fill(least, whole)
	for _, t := range r.tasks {
		r.cling(t)
	}
	// What may run comes once all that must has its place; and who goes with it may follow.
	for r.fill(most, whole)+r.fill(least, whole) > 0 {
	}
}

// stay keeps instances where they are. Where they are to have another size, no more than fit.
func (r *reconciliation) stay(t *task) {
	for at := range t.have {
		n := min(r.mayStay(t, at)-r.lost(t, at), t.spread.Spots[at].Most)
		for n > 0 && t.fault == "" && !t.askAt(at).Equal(t.ask) {
			if _, fits := allocation.Fits(&t.spread.Sites[at].Account, t.ask.Times(n)); fits {
				break
			}
			n--
		}
		if n > 0 {
			t.spread.Keep(at, n)
		}
	}
}

// asTheyAre makes the accounts what they are now, but for what those that stay will take beside.
func (r *reconciliation) asTheyAre(sites []allocation.Site) {
	for at, s := range r.fed.sites {
		sites[at].Account = s.account
		for _, t := range r.tasks {
			stay := min(t.spread.Spots[at].Count, t.have[at])
			added := t.beside(at).Times(stay).Add(t.ask.Times(t.spread.Spots[at].Count - stay))
			sites[at].Account.HeldOrUsed = sites[at].Account.HeldOrUsed.Add(added)
		}
	}
}

// clear makes the accounts what they will be: without what the blueprint's shares hold and use, but
// with the target so far. What fails to leave may be there for long.
func (r *reconciliation) clear(sites []allocation.Site) {
	for at, s := range r.fed.sites {
		sites[at].Account = s.account
	}
	give := func(s *share, at int) {
		if s.leaving() && s.in(broker.SliceFailed) {
			return
		}
		a, used := &sites[at].Account, r.used(s)
		a.HeldOrUsed = a.HeldOrUsed.Sub(s.held().Max(used))
		a.Allocated, a.Used = a.Allocated.Sub(used), a.Used.Sub(used)
	}
	for _, s := range r.strays {
		if at, known := r.fed.find(s.record.Cluster); known {
			give(s, at)
		}
	}
	for _, t := range r.tasks {
		for at, s := range t.shares {
			if s != nil {
				give(s, at)
			}
			a := &sites[at].Account
			a.HeldOrUsed = a.HeldOrUsed.Add(t.ask.Times(t.spread.Spots[at].Count))
		}
	}
}

// beside is what an instance that stays takes more than it does.
func (t *task) beside(at int) allocation.Amounts { return t.ask.Sub(t.askAt(at)).Max(nil) }

// fill adds instances of each slice up to so many, as far as there is room. again is what one takes
// that is there and may stay after all.
func (r *reconciliation) fill(upTo func(*task) int, again func(*task, int) allocation.Amounts) (added int) {
	for _, t := range r.tasks {
		if lack := upTo(t) - sum(t.counts()); lack > 0 {
			back := r.back(t, lack, again)
			r.open(t)
			added += back + t.spread.Fill(lack-back)
		}
	}
	return added
}

// back keeps instances where they are once the slices that they go with come there too.
func (r *reconciliation) back(t *task, lack int, again func(*task, int) allocation.Amounts) (kept int) {
	if len(t.with) == 0 || r.aggressive() {
		return 0
	}
	for at := range t.spread.Spots {
		spot := &t.spread.Spots[at]
		n := min(lack-kept, min(r.mayStay(t, at)-r.lost(t, at), spot.Most)-spot.Count)
		if n <= 0 || !t.joined(at) || t.conflicts(at, r.tasks) {
			continue
		}
		for ask := again(t, at); n > 0; n-- {
			if _, fits := allocation.Fits(&t.spread.Sites[at].Account, ask.Times(n)); fits {
				t.spread.KeepAs(at, n, ask)
				kept += n
				break
			}
		}
	}
	return kept
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

// cling keeps instances that should go but have no better place where they are, where nobody else has
// taken the room. All of a share are of one size: where more can run of the old one, they keep it. On a
// cluster that is short they may run yet, if it does not get shorter by them.
func (r *reconciliation) cling(t *task) {
	missing := t.least - sum(t.counts())
	for at := range t.spread.Spots {
		spot := &t.spread.Spots[at]
		placed := spot.Count
		n := min(missing+placed, r.mayStay(t, at), spot.Most)
		if n <= placed || !t.joined(at) || t.conflicts(at, r.tasks) {
			continue
		}
		ask := t.shares[at].ask
		t.spread.Keep(at, -placed)
		for n > placed && shorter(&t.spread.Sites[at].Account, ask.Times(n), &r.fed.sites[at].account) {
			n--
		}
		if n > placed {
			t.spread.KeepAs(at, n, ask)
			t.clings[at] = !ask.Equal(t.ask)
		} else {
			t.spread.Keep(at, placed)
		}
		missing -= n - placed
	}
}

// shorter says whether an account would come to lack more by those amounts than it lacks as it is.
func shorter(target *allocation.Account, added allocation.Amounts, is *allocation.Account) bool {
	would := *target
	would.HeldOrUsed = would.HeldOrUsed.Add(added)
	return slices.ContainsFunc(added, func(a allocation.Amount) bool { return would.Short(a.Resource) > is.Short(a.Resource) })
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
