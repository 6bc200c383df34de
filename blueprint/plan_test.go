package blueprint

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/equality"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

func TestAPlanIsWhatApplyThenDoes(t *testing.T) {
	t.Parallel()
	cases, changes, news, skipped := 0, 0, 0, 0
	check := func(t *rapid.T) {
		x := newExchange(t)
		federate(t, x)
		other := randomSpec(t, "b")
		other.Spec.Slices = other.Spec.Slices[:1]
		if s := &other.Spec.Slices[0]; s.Instances == nil {
			s.Instances, s.MinInstances, s.MaxInstances = s.MinInstances, nil, nil
		}
		other.Spec.Reconciliation, other.Spec.MaxMoves = "", nil
		x.create(other)
		x.rest()
		if strings.Contains(x.get("b").Status.Message, "no place") {
			x.delete(x.key("b")) // it would take what the other leaves
			x.rest()
		}
		if rapid.Bool().Draw(t, "an update") {
			x.create(randomSpec(t, "a"))
			x.rest()
		}
		b, sized := randomSpec(t, "a"), false
		if row := x.state.Row(x.key("a")); row != nil {
			b.UID, b.Generation = x.get("a").UID, x.get("a").Generation+1
			b.Status = x.get("a").Status
			for i := range b.Spec.Slices {
				old := x.get("a").Spec.Slices
				sized = sized || i < len(old) && !equality.Semantic.DeepEqual(b.Spec.Slices[i].Resources, old[i].Resources)
			}
		}
		want, versions := x.byPlaceOf("a"), x.versionsOf("a")
		preview := Plan(Policy{Rebalance: true}, x.state, b, x.now)
		for _, c := range preview.Changes {
			require.EqualValues(t, want[c.Slice+"@"+c.ClusterID], c.Before)
			if want[c.Slice+"@"+c.ClusterID] = int(c.After); c.After == 0 {
				delete(want, c.Slice+"@"+c.ClusterID)
			}
			if c.NewVersion {
				news++
			}
			if c.NewVersion || c.Before == 0 {
				versions[c.Slice+"@"+c.ClusterID] = versionIn(b, c.Slice)
			}
			require.Equal(t, c.NewVersion, strings.Contains(c.Reason, " becomes "), c.Reason)
			changes++
		}
		b.Status = broker.BlueprintStatus{}
		x.create(b)
		for _, task := range x.reconcile("a").tasks {
			if sized && sum(task.counts()) < task.most {
				skipped++
				t.Skip("what a version leaves when it is smaller is taken then")
			}
			for at, n := range task.counts() {
				if task.next[at] < n && !x.reconcile("a").aggressive() {
					skipped++
					t.Skip("something has to leave first, and then the first room that is free is taken")
				}
			}
		}
		x.rest()
		if sized && strings.Contains(x.get("a").Status.Message, "to change its version") {
			skipped++
			t.Skip("a size for which there is no room beside the old one waits, and says so")
		}
		require.Equal(t, want, x.byPlaceOf("a"))
		for place, version := range x.versionsOf("a") {
			require.Equal(t, versions[place], version, place)
		}
		status := x.get("a").Status
		require.Equal(t, len(preview.Unplaced) > 0, strings.Contains(status.Message, "no place: "), status.Message)
		cases++
	}
	enough := 1000
	if underRace {
		enough = 100
	}
	for cases < enough {
		rapid.Check(t, check)
	}
	require.Positive(t, changes)
	require.Positive(t, news)
	t.Logf("%d cases, %d changes, %d of a version; %d skipped", cases, changes, news, skipped)
}

// versionsOf is artifact and size of what runs, by place.
func (x *exchange) versionsOf(name string) map[string]string {
	versions := map[string]string{}
	for _, s := range x.rows() {
		if s.record.Blueprint == name && s.record.Instances > 0 {
			versions[s.record.Slice+"@"+s.record.Cluster] = fmt.Sprint(s.object.Spec.Artifact, s.ask)
		}
	}
	return versions
}

func versionIn(b *broker.Blueprint, slice string) string {
	for i := range b.Spec.Slices {
		if s := &b.Spec.Slices[i]; s.Name == slice {
			ask, err := allocation.AmountsOf(s.Resources, true)
			if err != nil {
				panic(err)
			}
			return fmt.Sprint(s.Artifact, ask)
		}
	}
	return ""
}

// A cluster that gets more or fewer instances and another version is told of with both.
func TestAPlanSaysBothThatInstancesAndThatVersionsChange(t *testing.T) {
	t.Parallel()
	x := shop(t)
	b := x.get("shop").DeepCopy()
	plan := func() []string {
		b.Generation++
		var list []string
		for _, c := range Plan(Policy{}, x.state, b, x.now).Changes {
			list = append(list, fmt.Sprintf("%s %s %d-%d %v %s", c.Action, c.ClusterID, c.Before, c.After, c.NewVersion, c.Reason))
		}
		return list
	}
	web := &b.Spec.Slices[0]
	web.Artifact, *web.Instances = "registry.example.com/web:2", 8
	const becomes = "registry.example.com/web:1 becomes registry.example.com/web:2"
	require.Equal(t, []string{
		"~ berlin 3-3 true " + becomes,
		"+ paris 2-3 true its turn; " + becomes,
		"~ rome 2-2 true " + becomes,
	}, plan())
	*web.Instances, web.Resources = 6, list("cpu=1500m,memory=1Gi")
	require.Equal(t, []string{
		"- berlin 3-2 true fewer instances are wanted; " + becomes + "; cpu 1 becomes 1500m; memory 0 becomes 1Gi",
		"~ paris 2-2 true " + becomes + "; cpu 1 becomes 1500m; memory 0 becomes 1Gi",
		"~ rome 2-2 true " + becomes + "; cpu 1 becomes 1500m; memory 0 becomes 1Gi",
	}, plan())
	web.Artifact, web.Resources = "registry.example.com/web:1", list("cpu=1")
	require.Equal(t, []string{"- berlin 3-2 false fewer instances are wanted"}, plan())
}
