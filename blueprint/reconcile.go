package blueprint

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
)

// Policy is how blueprints are kept. The zero value maps no registry and moves nothing.
type Policy struct {
	// Registries say where artifacts with coordinates lie.
	Registries broker.ArtifactRegistries
	// Rebalance lets Aggressive blueprints move instances to better places.
	Rebalance bool
	// BackoffMin is the pause before a failed slice is tried again, doubled with each try up to BackoffMax.
	BackoffMin, BackoffMax fsm.Millis
}

// pause after so many tries that failed, besides the first.
func (p *Policy) pause(tries int) fsm.Millis {
	pause := p.BackoffMin
	for range min(tries, maxDoublings) {
		pause = min(2*pause, p.BackoffMax)
	}
	return pause
}

// reconciliation compares one blueprint with its shares. It is pure: the same state, policy and time give
// the same changes, whoever leads. It is made in this order:
//
//	target   where instances should be
//	approach how many may be raised and lowered now on the way there
//	rollout  which shares get the wanted version now
//	instruct what becomes of each row
//	report   the blueprint's status
type reconciliation struct {
	Policy
	now       fsm.Millis
	fed       *federation
	blueprint *broker.Blueprint
	tasks     []*task
	strays    []*share // of slices that the spec does not name, or clusters that are gone

	rolledBack *broker.BlueprintRollback
	blocked    string // why a rollout can't go on
	retryAt    fsm.Millis
	moved      int // instances, off clusters that they must leave or to better ones
	changes    []change
}

// version is what a share runs.
type version struct{ artifact, image string }

// task is one slice of the spec beside its shares. Lists are by site.
type task struct {
	spec        *broker.BlueprintSlice
	least, most int
	ask         allocation.Amounts
	selector    labels.Selector
	ownApart    bool    // at most one instance on each cluster
	with, apart []*task // on the same clusters only, on no common cluster

	wanted version
	first  version // what is placed anew begins with: the proven version, until the wanted one is
	fault  string  // why the wanted version can't be run at all

	shares []*share // nil: none there
	have   []int    // instances that run or are on their way, on clusters that are heard
	ready  []int
	spread *allocation.Spread // the target
	next   []int
	hold   []allocation.Amounts // as it will be
	surge  []int
	turned []bool // gets the wanted version now
	clings []bool // keeps its version: there is no room for the wanted size
}

// reconcile says what should change. shares are those of this very blueprint.
func reconcile(p Policy, fed *federation, b *broker.Blueprint, shares []*share, now fsm.Millis) *reconciliation {
	r := aim(p, fed, b, shares, now)
	r.approach()
	r.rollout()
	r.instruct()
	return r
}

// aim is a reconciliation as far as the target, which is all that a plan needs.
func aim(p Policy, fed *federation, b *broker.Blueprint, shares []*share, now fsm.Millis) *reconciliation {
	r := &reconciliation{Policy: p, now: now, fed: fed, blueprint: b}
	if back := b.Status.RolledBack; back != nil && back.Generation == b.Generation {
		r.rolledBack = back
	}
	r.read(shares)
	if r.rolledBack == nil {
		if r.rolledBack = r.failedRollout(); r.rolledBack != nil {
			r.chooseVersions()
		}
	}
	r.target()
	return r
}

// read makes the tasks of the spec and puts each share where it belongs.
func (r *reconciliation) read(shares []*share) {
	n := len(r.fed.sites)
	byName := map[string]*task{}
	for i := range r.blueprint.Spec.Slices {
		spec := &r.blueprint.Spec.Slices[i]
		least, most := spec.Range()
		t := &task{
			spec: spec, least: int(least), most: int(most), selector: labels.Everything(),
			shares: make([]*share, n), have: make([]int, n), ready: make([]int, n), next: make([]int, n),
			hold: make([]allocation.Amounts, n), surge: make([]int, n), turned: make([]bool, n), clings: make([]bool, n),
		}
		var err error
		if t.ask, err = allocation.AmountsOf(spec.Resources, true); err != nil {
			t.fault = "resources: " + err.Error()
		}
		if spec.ClusterSelector != nil {
			if t.selector, err = metav1.LabelSelectorAsSelector(spec.ClusterSelector); err != nil {
				t.selector = labels.Nothing()
			}
		}
		r.tasks = append(r.tasks, t)
		byName[spec.Name] = t
	}
	for _, t := range r.tasks {
		for _, name := range t.spec.Affinity {
			if other := byName[name]; other != nil {
				t.with = append(t.with, other)
			}
		}
		for _, name := range t.spec.AntiAffinity {
			switch other := byName[name]; other {
			case nil:
			case t:
				t.ownApart = true
			default:
				t.apart, other.apart = append(t.apart, other), append(other.apart, t)
			}
		}
	}
	for _, s := range shares {
		at, heard := r.fed.find(s.record.Cluster)
		t := byName[s.record.Slice]
		if t == nil || !heard {
			r.strays = append(r.strays, s)
			continue
		}
		t.shares[at], t.hold[at], t.surge[at] = s, s.held(), s.record.Surge
		if r.fed.sites[at].heard {
			t.have[at] = s.record.Instances
			if s.object.Spec.Command == broker.SliceActivate {
				t.ready[at] = min(int(s.status().ReadyInstances), s.record.Instances)
			}
		}
	}
	slices.SortFunc(r.strays, func(a, b *share) int { return strings.Compare(a.row.Key, b.row.Key) })
	r.chooseVersions()
}

// chooseVersions: what the spec wants, or after a rollout that was taken back what ran before it. What is
// placed anew while the wanted version comes up begins with the one before, and then has its turn; but not
// where none runs because agents refuse that.
func (r *reconciliation) chooseVersions() {
	for _, t := range r.tasks {
		t.wanted = version{artifact: t.spec.Artifact}
		before := r.versionBefore(t)
		if r.rolledBack != nil && before != "" {
			t.wanted.artifact = before
		}
		image, err := r.Registries.Image(t.wanted.artifact)
		if t.wanted.image = image; err != nil {
			t.fault = "artifact " + t.wanted.artifact + ": " + err.Error()
		}
		if t.first = t.wanted; before == "" || before == t.wanted.artifact {
			continue
		}
		image, err = r.Registries.Image(before)
		if err != nil || sum(t.have) == 0 && slices.ContainsFunc(t.shares, func(s *share) bool { return s.refuses(image) }) {
			continue
		}
		t.first = version{before, image}
	}
}

// versionBefore is the artifact that a slice last ran in full, "" where it never did.
func (r *reconciliation) versionBefore(t *task) string {
	if h := r.blueprint.Status.History; len(h) > 0 {
		return h[0].Artifacts[t.spec.Name]
	}
	return ""
}

// runs says whether the share is of the wanted version and size.
func (t *task) runs(s *share) bool {
	spec := &s.object.Spec
	return spec.Image == t.wanted.image && s.ask.Equal(t.ask)
}

// askAt is what one instance takes on a cluster: as long as the version there has not changed, what it took.
func (t *task) askAt(at int) allocation.Amounts {
	if t.have[at] > 0 && !t.turned[at] {
		return t.shares[at].ask
	}
	return t.ask
}

// refused: the cluster's agent does not run the wanted version here, nor that with which it would begin.
// What it said stands while the slice is kept empty for that.
func (t *task) refused(at int) bool {
	s := t.shares[at]
	return s.refuses(t.wanted.image) || t.have[at] == 0 && s.refuses(t.first.image)
}

// mustLeave: what is on the cluster can't or may not stay for a moment longer.
func (r *reconciliation) mustLeave(t *task, at int) bool {
	site := r.fed.sites[at]
	return !site.heard || !site.consent || t.refused(at)
}

// used is what the pods inside a share use, as last reported.
func (r *reconciliation) used(s *share) allocation.Amounts {
	at, known := r.fed.find(s.record.Cluster)
	if !known || r.fed.sites[at].row.Account == nil {
		return nil
	}
	hold, _ := r.fed.sites[at].row.Account.Hold(s.row.Key)
	return hold.Used
}

func (r *reconciliation) usedAt(t *task, at int) allocation.Amounts {
	if t.shares[at] == nil {
		return nil
	}
	return r.used(t.shares[at])
}

func sum(list []int) (total int) {
	for _, n := range list {
		total += n
	}
	return total
}
