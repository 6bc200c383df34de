package blueprint

import (
	"math"
	"slices"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// approach says how many instances each cluster is told to run next: make before break. What goes
// elsewhere stays until what takes its place is ready, unless it must leave; so while it moves it holds
// capacity at both ends. An Aggressive blueprint has at most maxMoves of them under way. Where nothing
// can be made because what should go takes the room, one instance is broken first.
func (r *reconciliation) approach() {
	for _, t := range r.tasks {
		for at, n := range t.have {
			if s := t.shares[at]; n > 0 && t.surge[at] > 0 && s.settled() && t.runs(s) {
				t.next[at], t.surge[at] = n, 0 // the version has changed
				r.rehold(t, at)
			}
			if t.next[at] = n; n > 0 && r.mustLeave(t, at) {
				t.next[at] = 0
			}
			if s := t.shares[at]; s != nil && t.next[at] == 0 {
				r.moved += s.record.Instances
			}
		}
	}
	moved := false
	for _, t := range slices.Backward(r.tasks) { // who goes with another leaves before it
		moved = r.lower(t, sum(t.next)-t.lingering()) || moved
	}
	raised, blocked, starved := r.raise(r.moves())
	if moved || raised || r.underWay() {
		return
	}
	if starved { // what is on its way waits for a slice that goes with it
		if raised, _, _ = r.raise(1); raised {
			return
		}
	}
	for _, t := range slices.Backward(r.tasks) {
		if blocked && r.lower(t, 1) {
			return
		}
	}
}

// moves is how many instances may begin to move: to run in two places at once.
func (r *reconciliation) moves() int {
	if !r.aggressive() {
		return math.MaxInt
	}
	moves := int(r.blueprint.Spec.Moves())
	for _, t := range r.tasks {
		moves -= max(0, sum(t.next)-sum(t.counts()))
	}
	return moves
}

// lingering is how many instances have to run meanwhile: those of the target, and in place of each of
// them that is not ready one of those that should go.
func (t *task) lingering() int {
	placed, ready := 0, 0
	for at, n := range t.counts() {
		placed += min(n, t.next[at])
		ready += min(n, t.next[at], t.ready[at])
	}
	return placed + max(0, sum(t.counts())-ready)
}

// lower takes up to n instances from clusters that have more than they should, the least ready first.
func (r *reconciliation) lower(t *task, n int) (lowered bool) {
	for ; n > 0; n-- {
		best := -1
		for at := range t.next {
			if t.next[at] <= t.spread.Spots[at].Count || t.next[at] == 1 && r.needed(t, at) {
				continue
			}
			if best < 0 || t.next[at]-t.ready[at] >= t.next[best]-t.ready[best] {
				best = at
			}
		}
		if best < 0 {
			return lowered
		}
		t.next[best]--
		r.rehold(t, best)
		lowered = true
	}
	return lowered
}

// needed: a slice that goes with this one is there still.
func (r *reconciliation) needed(t *task, at int) bool {
	return slices.ContainsFunc(r.tasks, func(o *task) bool { return slices.Contains(o.with, t) && o.next[at] > 0 })
}

// raise adds instances where the target has more: what is missing, and so many moves beside. It says
// whether there was no room for some, or no move left.
func (r *reconciliation) raise(moves int) (raised, blocked, starved bool) {
	for _, t := range r.tasks {
		running, should := sum(t.next), sum(t.counts())
		for at, n := range t.counts() {
			for t.next[at] < n {
				if running >= should && moves <= 0 {
					starved = true
					break
				}
				if !r.raiseAt(t, at) {
					blocked = true
					break
				}
				if raised = true; running >= should {
					moves--
					r.moved++
				}
				running++
			}
		}
	}
	return raised, blocked, starved
}

func (r *reconciliation) raiseAt(t *task, at int) bool {
	if t.fault != "" {
		return false
	}
	for _, o := range t.with {
		if o.next[at] == 0 {
			return false
		}
	}
	for _, o := range t.apart {
		if o.next[at] > 0 {
			return false
		}
	}
	t.next[at]++
	if !r.rehold(t, at) {
		t.next[at]--
		return false
	}
	return true
}

// rehold makes the hold follow the instances. False: there is no room, and nothing was changed.
func (r *reconciliation) rehold(t *task, at int) bool {
	want := r.holdFor(t, at)
	if !r.fed.resize(r.fed.sites[at], t.hold[at], want, r.usedAt(t, at)) {
		return false
	}
	t.hold[at] = want
	return true
}

// holdFor is what a share holds for its next instances, and while a version changes for those beside.
// One that leaves holds what it held until its agent says that nothing is left.
func (r *reconciliation) holdFor(t *task, at int) allocation.Amounts {
	if t.next[at] == 0 {
		return t.hold[at]
	}
	return t.askAt(at).Times(t.next[at] + t.surge[at])
}

// underWay: something that was asked for is not there yet, and may come.
func (r *reconciliation) underWay() bool {
	return slices.ContainsFunc(r.tasks, func(t *task) bool {
		for at, s := range t.shares {
			if s != nil && r.fed.sites[at].heard && !s.settled() && !s.in(broker.SliceFailed) && (t.have[at] > 0 || s.leaving()) {
				return true
			}
		}
		return false
	})
}
