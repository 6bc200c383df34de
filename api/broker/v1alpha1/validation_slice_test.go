package v1alpha1

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func shareOfParis() *Slice {
	return &Slice{
		ObjectMeta: metav1.ObjectMeta{Name: "shop-web-paris-0a1b2c3d", Namespace: "rome", Generation: 3},
		Spec: SliceSpec{
			Blueprint: "shop", BlueprintUID: "u-1", Slice: "web", ClusterID: "paris", Artifact: "com.example:web:1.4.2",
			Image: "registry.example.com/com.example/web:1.4.2", Instances: 2, Resources: resources("cpu", "500m"), Command: SliceActivate,
		},
		Status: SliceStatus{ObservedGeneration: 3, State: SliceActive, ReadyInstances: 2, Message: "2 of 2 ready"},
	}
}

func TestSlicesChangedByHandAreRefusedByFieldAndValue(t *testing.T) {
	t.Parallel()
	require.Empty(t, ValidateSliceUpdate(shareOfParis(), shareOfParis()))
	cases := map[string]struct {
		change      func(*SliceSpec)
		path, value string
	}{
		"of another blueprint":  {func(s *SliceSpec) { s.Blueprint = "shop2" }, "spec.blueprint", `"shop2"`},
		"of its namesake":       {func(s *SliceSpec) { s.BlueprintUID = "u-2" }, "spec.blueprintUID", `"u-2"`},
		"of another slice":      {func(s *SliceSpec) { s.Slice = "db" }, "spec.slice", `"db"`},
		"on another cluster":    {func(s *SliceSpec) { s.ClusterID = "berlin" }, "spec.clusterID", `"berlin"`},
		"of no image":           {func(s *SliceSpec) { s.Image = "" }, "spec.image", "image"},
		"of a bad image":        {func(s *SliceSpec) { s.Image = "Web" }, "spec.image", `"Web"`},
		"of a long artifact":    {func(s *SliceSpec) { s.Artifact = strings.Repeat("x", 513) }, "spec.artifact", "512"},
		"-1 instances":          {func(s *SliceSpec) { s.Instances = -1 }, "spec.instances", "-1"},
		"too many instances":    {func(s *SliceSpec) { s.Instances = 1001 }, "spec.instances", "1001"},
		"attempt -1":            {func(s *SliceSpec) { s.Attempt = -1 }, "spec.attempt", "-1"},
		"cpu 0":                 {func(s *SliceSpec) { s.Resources = resources("cpu", "0") }, "spec.resources.cpu", `"0"`},
		"without resources":     {func(s *SliceSpec) { s.Resources = nil }, "spec.resources", "Required"},
		"with empty resources":  {func(s *SliceSpec) { s.Resources = resources() }, "spec.resources", "Required"},
		"cpu without end":       {func(s *SliceSpec) { s.Resources = resources("cpu", "40000000000000") }, "spec.resources.cpu", "2 instances"},
		"nothing may give":      {func(s *SliceSpec) { s.Rollout = BlueprintRollout{bound("0"), bound("0")} }, "spec.rollout.maxUnavailable", "maxSurge"},
		"without a command":     {func(s *SliceSpec) { s.Command = "" }, "spec.command", "Unload"},
		"with an unknown order": {func(s *SliceSpec) { s.Command = "Explode" }, "spec.command", `"Explode"`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			updated := shareOfParis()
			c.change(&updated.Spec)
			requireFault(t, ValidateSliceUpdate(updated, shareOfParis()), c.path, c.value)
		})
	}
}

func TestBadReportsOfSlicesAreRefusedByFieldAndValue(t *testing.T) {
	t.Parallel()
	require.Empty(t, ValidateSliceStatusUpdate(shareOfParis()))
	cases := map[string]struct {
		change      func(*SliceStatus)
		path, value string
	}{
		"unknown state":          {func(s *SliceStatus) { s.State = "Napping" }, "status.state", `"Napping"`},
		"ready -1":               {func(s *SliceStatus) { s.ReadyInstances = -1 }, "status.readyInstances", "-1"},
		"ready absurd":           {func(s *SliceStatus) { s.ReadyInstances = 2001 }, "status.readyInstances", "2001"},
		"of a spec yet to come":  {func(s *SliceStatus) { s.ObservedGeneration = 4 }, "status.observedGeneration", "4"},
		"a message too long":     {func(s *SliceStatus) { s.Message = strings.Repeat("m", 1025) }, "status.message", "1024"},
		"a condition half-said":  {func(s *SliceStatus) { s.Conditions = []metav1.Condition{{Type: "Refused"}} }, "status.conditions[0]", "Required"},
		"conditions without end": {func(s *SliceStatus) { s.Conditions = make([]metav1.Condition, MaxConditions+1) }, "status.conditions", "17"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			updated := shareOfParis()
			c.change(&updated.Status)
			errs := ValidateSliceStatusUpdate(updated)
			require.NotEmpty(t, errs)
			require.True(t, strings.HasPrefix(errs[0].Field, c.path), "%v", errs)
			require.Contains(t, errs.ToAggregate().Error(), c.value)
		})
	}
}

func TestUseNamesAKindOfHolderThatThereIs(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"", HolderReservation, HolderSlice} {
		f := report()
		f.Use[0].Kind = kind
		require.Empty(t, ValidateFactsReport(f))
	}
	f := report()
	f.Use[0].Kind = "Pod"
	requireFault(t, ValidateFactsReport(f), "use[0].kind", `"Pod"`)
}
