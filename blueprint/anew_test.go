package blueprint

import (
	"testing"

	"github.com/stretchr/testify/require"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

const (
	goodVersion = "registry.example.com/web:1"
	nextVersion = "registry.example.com/web:2"
)

// oneAtATime checks after each entry that a version that is not proven has come to one cluster more at
// most, to none before all that had it was ready, and never with a new row.
func (x *exchange) oneAtATime(version string) {
	had, seen := map[string]bool{}, map[string]bool{} // by row and uid: a row that is made anew is another
	id := func(s *share) string { return s.row.Key + string(s.object.UID) }
	for _, s := range x.rows() {
		seen[id(s)] = true
	}
	x.onEntry = func() {
		x.consistent()
		history := x.get("a").Status.History
		proven := len(history) > 0 && history[0].Artifacts["web"] == version
		waits, came, has := false, 0, map[string]bool{}
		for _, s := range x.rows() {
			require.NotNil(x.t, s.object.Spec.Rollout.MaxUnavailable, s.row.Key)
			require.NotNil(x.t, s.object.Spec.Rollout.MaxSurge, s.row.Key)
			has[id(s)] = s.object.Spec.Image == version && s.record.Instances > 0
			switch {
			case has[id(s)] && had[id(s)]:
				waits = waits || !s.settled()
			case has[id(s)]:
				came++
				require.True(x.t, proven || seen[id(s)], "%s was made with a version that is not proven", s.row.Key)
			}
			seen[id(s)] = true
		}
		if !proven {
			require.LessOrEqual(x.t, came, 1)
			require.False(x.t, waits && came > 0, "another cluster has it before the last is ready")
		}
		had = has
	}
}

// Whatever is placed anew while a version comes up, because somebody deleted a slice, a cluster joined
// or one was lost, begins with the version that is proven and has its turn as all others.
func TestWhatIsPlacedAnewDuringARolloutIsOfTheProvenVersion(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"deleted", "all deleted", "joined and lost", "joined"} {
		for moment := range 12 {
			x := newExchange(t)
			for _, id := range []string{"berlin", "paris", "rome"} {
				x.cluster(id, "cpu=8", "")
			}
			x.create(blueprint("a", "web=6*cpu=1"))
			x.rest()
			x.oneAtATime(nextVersion)
			x.edit("a", func(s *broker.BlueprintSpec) { s.Slices[0].Artifact = nextVersion })
			x.run()
			for range moment {
				x.act()
				x.run()
			}
			switch what {
			case "deleted":
				x.delete(x.rows()[moment%3].row.Key)
			case "all deleted":
				for _, s := range x.rows() {
					x.delete(s.row.Key)
				}
			case "joined and lost":
				x.cluster("oslo", "cpu=8", "")
				x.agents["rome"].up = false
				x.agents["rome"].advertise()
			case "joined":
				x.cluster("oslo", "cpu=8", "")
				x.edit("a", func(s *broker.BlueprintSpec) { *s.Slices[0].Instances = 10 })
			}
			x.rest()
			require.Equal(t, broker.BlueprintActive, x.get("a").Status.Phase, "%s after %d: %s", what, moment, x.get("a").Status.Message)
			for _, s := range x.rows() {
				if x.agents[s.record.Cluster].up {
					require.Equal(t, nextVersion, s.object.Spec.Image)
				}
			}
		}
	}
}

// A cluster that does not run the version before either has not made the new one fail.
func TestAClusterThatRefusesBothVersionsTakesNothingBack(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=4", "")
	paris := x.cluster("paris", "cpu=8", "")
	x.create(blueprint("a", "web=4*cpu=1"))
	x.rest()
	require.Equal(t, "web@berlin=2 web@paris=2", x.placed("a"))
	paris.refuses = map[string]bool{goodVersion: true, nextVersion: true}
	x.edit("a", func(s *broker.BlueprintSpec) { s.Slices[0].Artifact = nextVersion })
	x.act()
	x.rest()
	status := x.get("a").Status
	require.Equal(t, broker.BlueprintActive, status.Phase, status.Message)
	require.Nil(t, status.RolledBack)
	require.Equal(t, "web@berlin=4", x.placed("a"))

	const third = "registry.example.com/web:3"
	tried := false
	x.onEntry = func() {
		for _, s := range x.rows() {
			tried = tried || s.record.Cluster == "paris" && s.record.Instances > 0 && s.object.Spec.Image == nextVersion
		}
	}
	x.edit("a", func(s *broker.BlueprintSpec) { s.Slices[0].Artifact, *s.Slices[0].Instances = third, 5 })
	x.rest()
	require.False(t, tried, "what is refused there is not how it begins there")
	require.Equal(t, "web@berlin=4 web@paris=1", x.placed("a"), "once the third is proven")
	require.Equal(t, broker.BlueprintActive, x.get("a").Status.Phase)
}

// Where nothing runs because the version before is refused, the new one does not wait for it.
func TestANewVersionDoesNotBeginWithOneThatNobodyRuns(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("berlin", "cpu=8", "")
	x.create(blueprint("a", "web=4*cpu=1"))
	x.rest()
	x.agents["berlin"].refuses = map[string]bool{goodVersion: true}
	x.rest()
	require.Empty(t, x.placed("a"))
	x.edit("a", func(s *broker.BlueprintSpec) { s.Slices[0].Artifact = nextVersion })
	x.rest()
	status := x.get("a").Status
	require.Equal(t, broker.BlueprintActive, status.Phase, status.Message)
	require.Equal(t, nextVersion, status.History[0].Artifacts["web"])
}
