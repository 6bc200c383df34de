package blueprint

import (
	"slices"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// failedRollout names the share of a new version that never got ready, nil where none has failed. The
// version before is what history says was ready in full; without one there is nothing to go back to.
func (r *reconciliation) failedRollout() *broker.BlueprintRollback {
	for _, t := range r.tasks {
		before := r.versionBefore(t)
		if before == "" || before == t.wanted.artifact || t.fault != "" {
			continue
		}
		for at, s := range t.shares {
			if t.have[at] == 0 || s.object.Spec.Image != t.wanted.image || !s.in(broker.SliceFailed) {
				continue
			}
			// Where the version before does not run either, it may be refused for other reasons.
			if s.has(broker.ConditionRefused) && t.ready[at] == 0 {
				continue
			}
			return &broker.BlueprintRollback{
				Generation: r.blueprint.Generation, Slice: t.spec.Name, Artifact: t.wanted.artifact,
				ClusterID: s.record.Cluster, Message: broker.Clip(s.status().Message, broker.MaxConditionMessageBytes),
			}
		}
	}
	return nil
}

// takesBack: a version is to be taken back, and the stored status does not say so yet.
func (r *reconciliation) takesBack() bool {
	return r.rolledBack != nil && r.rolledBack != r.blueprint.Status.RolledBack
}

// rollout brings the wanted version to one cluster after another: to the next only when all that runs
// it is ready. Clusters on which something is broken come first, they have the least to lose.
func (r *reconciliation) rollout() {
	var outdated []int
	for at := range r.fed.sites {
		for _, t := range r.tasks {
			s := t.shares[at]
			if s == nil || t.next[at] == 0 || t.have[at] == 0 || t.fault != "" {
				continue
			}
			if !t.runs(s) {
				outdated = append(outdated, at)
			} else if !s.settled() {
				return
			}
		}
	}
	outdated = slices.Compact(outdated)
	slices.SortStableFunc(outdated, func(a, b int) int { return r.unready(b) - r.unready(a) })
	for _, at := range outdated {
		if r.turn(at) {
			return
		}
	}
}

// unready is 1 where instances that should run on the cluster don't.
func (r *reconciliation) unready(at int) int {
	for _, t := range r.tasks {
		if t.have[at] > t.ready[at] {
			return 1
		}
	}
	return 0
}

const nothingBeside = "no new version may come up beside the old one"

// keepsVersion says why a share with n instances keeps its version though another is wanted, "" where it
// need not.
func (r *reconciliation) keepsVersion(t *task, at, n int) string {
	site := r.fed.sites[at]
	switch unavailable, _ := r.blueprint.Spec.Rollout.Bounds(int32(n)); {
	case t.clings[at]:
		return "no room to change its version"
	case !site.open && unavailable == 0 && site.most(t.ask, t.hold[at], r.usedAt(t, at)) <= n:
		return site.closed() + ": " + nothingBeside
	}
	return ""
}

// turn gives the shares of one cluster the wanted version, with as many instances beside as may be and
// fit. False: there is no room, and no instance may be missing.
func (r *reconciliation) turn(at int) (turned bool) {
	for _, t := range r.tasks {
		s := t.shares[at]
		if s == nil || t.next[at] == 0 || t.have[at] == 0 || t.fault != "" || t.runs(s) {
			continue
		}
		unavailable, most := r.blueprint.Spec.Rollout.Bounds(int32(t.next[at]))
		least := 1
		if unavailable > 0 {
			least = 0
		}
		before := t.surge[at]
		t.turned[at] = true
		t.surge[at] = min(int(most), r.fed.sites[at].most(t.ask, t.hold[at], r.usedAt(t, at))-t.next[at])
		if t.clings[at] || t.surge[at] < least || !r.rehold(t, at) {
			t.turned[at], t.surge[at] = false, before
			if site := r.fed.sites[at]; site.open {
				r.blocked = t.spec.Name + ": no room on " + site.id + " to change its version"
			} else {
				r.blocked = t.spec.Name + ": " + site.id + " is " + site.closed() + ": " + nothingBeside
			}
			continue
		}
		turned = true
	}
	return turned
}
