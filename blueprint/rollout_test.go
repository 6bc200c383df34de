package blueprint

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
)

// A version that never gets ready on some cluster goes back by itself, and at no time fewer instances
// are ready than before less what one cluster may miss.
func TestARolloutThatNeverGetsReadyGoesBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x := newExchange(t)
		for _, id := range someClusters[:4] {
			x.cluster(id, "cpu=8", "")
		}
		n := rapid.Int32Range(1, 12).Draw(t, "instances")
		b := blueprint("a", fmt.Sprintf("web=%d*cpu=1", n), "db=2*cpu=500m")
		b.Spec.Rollout = broker.BlueprintRollout{
			MaxUnavailable: bound(t, "unavailable", 0), MaxSurge: bound(t, "surge", 1),
		}
		x.create(b)
		x.rest()
		require.Equal(t, broker.BlueprintActive, x.get("a").Status.Phase)
		placed := x.placed("a")
		var perCluster []int32
		for _, s := range x.rows() {
			unavailable, _ := b.Spec.Rollout.Bounds(int32(s.record.Instances))
			perCluster = append(perCluster, unavailable)
		}
		least := int(n) + 2 - int(slices.Max(perCluster))
		const bad = "registry.example.com/web:2"
		var sick []string
		for _, id := range someClusters[:4] {
			how := rapid.SampledFrom([]string{"gets ready", "never gets ready", "is refused"}).Draw(t, id)
			if how == "gets ready" || !strings.Contains(placed, "web@"+id) {
				continue
			}
			if sick = append(sick, id); how == "is refused" {
				x.agents[id].refuses = map[string]bool{bad: true}
			} else {
				x.agents[id].bad = map[string]bool{bad: true}
			}
		}
		x.edit("a", func(s *broker.BlueprintSpec) { s.Slices[0].Artifact = bad })
		for acts, before := 0, fsm.Revision(0); !x.idle() || x.busy || before != x.state.Revision(); acts++ {
			require.Less(t, acts, 1_000)
			if before = x.state.Revision(); x.idle() {
				x.act()
			} else {
				x.enter(x.plan())
			}
			require.GreaterOrEqual(t, x.readyPods(), least, "ready instances of %d", n+2)
			if rapid.IntRange(0, 19).Draw(t, "takeover") == 0 {
				x.begin()
			}
		}
		x.rest()
		status := x.get("a").Status
		require.Equal(t, placed, x.placed("a"))
		if len(sick) == 0 {
			require.Equal(t, broker.BlueprintActive, status.Phase, status.Message)
			require.Len(t, status.History, 2)
			require.Nil(t, status.RolledBack)
			return
		}
		require.Equal(t, broker.BlueprintDegraded, status.Phase)
		require.NotNil(t, status.RolledBack)
		require.Equal(t, sick[0], status.RolledBack.ClusterID, "the first that failed, in the order of IDs")
		require.Len(t, status.History, 1)
		for _, s := range x.rows() {
			require.True(t, s.settled(), s.row.Key)
			require.NotEqual(t, bad, s.object.Spec.Image)
			require.Zero(t, s.record.Surge)
		}
		x.edit("a", func(s *broker.BlueprintSpec) { s.Slices[0].Artifact = "registry.example.com/web:3" })
		x.rest()
		require.Equal(t, broker.BlueprintActive, x.get("a").Status.Phase, "the next version is tried again")
		require.Equal(t, placed, x.placed("a"))
	})
}

func bound(t *rapid.T, name string, least int32) *intstr.IntOrString {
	v := intstr.FromInt32(rapid.Int32Range(least, 3).Draw(t, name))
	if rapid.Bool().Draw(t, name+" in percent") {
		v = intstr.FromString(fmt.Sprintf("%d%%", rapid.Int32Range(25*least, 60).Draw(t, name)))
	}
	return &v
}

func (x *exchange) readyPods() (total int) {
	for _, a := range x.agents {
		for _, w := range a.work {
			_, ready := w.count()
			total += ready
		}
	}
	return total
}

const badVersion = "registry.example.com/web:2"

// What a surge that does not fit costs to find out must not grow with the surge.
func TestASurgeOfAThousandIsFoundNotToFitAtOnce(t *testing.T) {
	reconciled := func(surge int32) float64 {
		x := newExchange(t)
		rome := x.cluster("rome", "cpu=4", "")
		b := blueprint("a", "web=4*cpu=1")
		zero, many := intstr.FromInt32(0), intstr.FromInt32(surge)
		b.Spec.Rollout = broker.BlueprintRollout{MaxUnavailable: &zero, MaxSurge: &many}
		x.create(b)
		x.rest()
		x.edit("a", func(s *broker.BlueprintSpec) { s.Slices[0].Artifact = badVersion })
		x.rest()
		require.Contains(t, x.get("a").Status.Message, "web: no room on rome to change its version")
		fed, shares, object := newFederation(x.state), x.rows(), x.get("a")
		allocs := testing.AllocsPerRun(10, func() { reconcile(x.cfg.Policy, fed, object, shares, x.now) })
		rome.allocatable = amounts("cpu=7500m")
		rome.report()
		x.run()
		require.EqualValues(t, min(surge, 3), x.rows()[0].record.Surge, "as many beside as fit, and no more than may be")
		return allocs
	}
	require.Less(t, reconciled(1000), 2*reconciled(2))
}

// A failure of one slice's long healthy version must not take it back because another slice has no place.
func TestASliceWithoutAPlaceDoesNotKeepOthersOutOfTheHistory(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	paris := x.cluster("paris", "cpu=8", "")
	x.cluster("berlin", "cpu=8", "")
	x.create(blueprint("a", "web=4*cpu=1"))
	x.rest()
	x.edit("a", func(s *broker.BlueprintSpec) {
		s.Slices[0].Artifact = badVersion
		s.Slices = append(s.Slices, blueprint("b", "gpu=1*cpu=64").Spec.Slices[0])
	})
	x.rest()
	status := x.get("a").Status
	require.Equal(t, broker.BlueprintDegraded, status.Phase, "gpu has no place")
	require.Len(t, status.History, 2)
	require.Equal(t, map[string]string{"web": badVersion}, status.History[0].Artifacts)
	require.EqualValues(t, 2, status.History[0].Generation)

	paris.bad = map[string]bool{badVersion: true}
	for _, w := range paris.work {
		for _, p := range w.pods {
			p.ready = 0
		}
	}
	x.pass(minute)
	require.Nil(t, x.get("a").Status.RolledBack, "it is tried again, as any failed slice")
	for _, s := range x.rows() {
		require.Equal(t, badVersion, s.object.Spec.Image)
	}
	paris.bad = nil
	x.pass(2 * minute)
	for _, s := range x.rows() {
		require.True(t, s.settled(), s.row.Key)
	}

	paris.allocatable = amounts("cpu=80") // gpu gets its place, in the same generation
	paris.report()
	x.rest()
	status = x.get("a").Status
	require.Len(t, status.History, 2, "a generation has one entry")
	require.Equal(t, map[string]string{"web": badVersion, "gpu": "registry.example.com/gpu:1"}, status.History[0].Artifacts)
}

// A slice that fails goes back to its own last version; what another slice ran in full meanwhile stays.
func TestOnlyTheSliceThatNeverRanGoesBack(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=2", "")
	paris := x.cluster("paris", "cpu=4", "")
	b := blueprint("a", "web=1*cpu=1", "db=1*cpu=1")
	b.Spec.Slices[1].AntiAffinity = []string{"web"}
	x.create(b)
	x.rest()
	require.Equal(t, "db@paris=1 web@berlin=1", x.placed("a"))
	const badDB = "registry.example.com/db:2"
	paris.bad = map[string]bool{badDB: true}
	x.edit("a", func(s *broker.BlueprintSpec) { s.Slices[0].Artifact, s.Slices[1].Artifact = badVersion, badDB })
	x.rest()
	status := x.get("a").Status
	require.NotNil(t, status.RolledBack)
	require.Equal(t, "db", status.RolledBack.Slice)
	require.Equal(t, map[string]string{"web": badVersion, "db": "registry.example.com/db:1"}, status.History[0].Artifacts)
	for _, s := range x.rows() {
		require.True(t, s.settled(), s.row.Key)
		require.Equal(t, status.History[0].Artifacts[s.record.Slice], s.object.Spec.Image)
	}
}

// Wherever the entry is full while a version is taken back, it is taken back once.
func TestARollbackThatFillsTheEntryIsNotForgotten(t *testing.T) {
	t.Parallel()
	for filler := maxItems - 4; filler <= maxItems; filler++ {
		x := newExchange(t)
		for _, id := range []string{"berlin", "paris", "rome", "wien"} {
			x.cluster(id, "cpu=80", "").bad = map[string]bool{badVersion: true}
		}
		x.create(blueprint("z", "web=4*cpu=1"))
		x.rest()
		x.edit("z", func(s *broker.BlueprintSpec) { s.Slices[0].Artifact = badVersion })
		failed := func() bool {
			return slices.ContainsFunc(x.rows(), func(s *share) bool { return s.in(broker.SliceFailed) })
		}
		for acts := 0; !failed(); acts++ {
			require.Less(t, acts, 100)
			x.run()
			x.act()
		}
		var list []string
		for i := range filler / 4 {
			list = append(list, fmt.Sprintf("s%d=4*cpu=10m", i))
		}
		if n := filler % 4; n > 0 {
			list = append(list, fmt.Sprintf("t=%d*cpu=10m", n))
		}
		x.create(blueprint("a", list...))
		ran := 0
		x.onEntry = func() {
			now := 0
			for _, s := range x.rows() {
				if s.object.Spec.Image == badVersion {
					now++
				}
			}
			if now > 0 && ran < 0 {
				require.Fail(t, "the version comes again", "with %d other commands", filler)
			}
			if ran = now; now == 0 {
				ran = -1
			}
		}
		x.rest()
		require.NotNil(t, x.get("z").Status.RolledBack)
		require.Len(t, x.rows(), 4+filler)
	}
}
