package v1alpha1

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func shop() *Blueprint {
	return &Blueprint{
		ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "rome"},
		Spec: BlueprintSpec{Slices: []BlueprintSlice{
			{Name: "db", Artifact: "postgres:18", Instances: int32Pointer(1), Resources: resources("cpu", "2", "memory", "4Gi")},
			{Name: "web", Artifact: "com.example:web:1.4.2", MinInstances: int32Pointer(2), MaxInstances: int32Pointer(6), Resources: resources("cpu", "500m")},
			{Name: "cache", Artifact: "docker.io/library/redis:8", Instances: int32Pointer(7), Resources: resources("memory", "1Gi")},
		}},
	}
}

func bound(v string) *intstr.IntOrString {
	b := intstr.Parse(v)
	return &b
}

func TestValidBlueprintsPass(t *testing.T) {
	t.Parallel()
	cases := map[string]func(*BlueprintSpec){
		"of three artifacts": func(*BlueprintSpec) {},
		"balanced":           func(s *BlueprintSpec) { s.Strategy = StrategyBalanced },
		"aggressive":         func(s *BlueprintSpec) { s.Reconciliation, s.MaxMoves = ReconcileAggressive, int32Pointer(3) },
		"strict":             func(s *BlueprintSpec) { s.Admission = AdmissionStrict },
		"that never surges":  func(s *BlueprintSpec) { s.Rollout = BlueprintRollout{MaxSurge: bound("0")} },
		"that never misses one": func(s *BlueprintSpec) {
			s.Rollout = BlueprintRollout{MaxUnavailable: bound("0%"), MaxSurge: bound("1")}
		},
		"that may all be away":     func(s *BlueprintSpec) { s.Rollout = BlueprintRollout{MaxUnavailable: bound("100%")} },
		"beside an earlier slice":  func(s *BlueprintSpec) { s.Slices[1].Affinity = []string{"db"} },
		"away from a later slice":  func(s *BlueprintSpec) { s.Slices[0].AntiAffinity = []string{"cache"} },
		"one on each cluster":      func(s *BlueprintSpec) { s.Slices[2].AntiAffinity = []string{"cache"} },
		"two versions of one name": func(s *BlueprintSpec) { s.Slices[0].Artifact = "redis:7" },
		"somewhere in the west": func(s *BlueprintSpec) {
			s.Slices[0].ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"region": "eu-west"}}
		},
		"as large as may be": func(s *BlueprintSpec) {
			s.Slices = manySlices(MaxBlueprintSlices)
			s.Slices[0].Instances = int32Pointer(MaxBlueprintInstances - MaxBlueprintSlices + 1)
		},
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := shop()
			change(&b.Spec)
			require.Empty(t, ValidateBlueprint(b))
		})
	}
}

func TestBadBlueprintsAreRefusedByFieldAndValue(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change      func(*BlueprintSpec)
		path, value string
	}{
		"no slices":       {func(s *BlueprintSpec) { s.Slices = nil }, "spec.slices", "at least one"},
		"too many slices": {func(s *BlueprintSpec) { s.Slices = manySlices(MaxBlueprintSlices + 1) }, "spec.slices", "33"},
		"too many instances": {func(s *BlueprintSpec) {
			s.Slices = manySlices(MaxBlueprintSlices)
			s.Slices[0].Instances = int32Pointer(MaxBlueprintInstances - MaxBlueprintSlices + 2)
		}, "spec.slices", "1001"},
		"slice without a name": {func(s *BlueprintSpec) { s.Slices[0].Name = "" }, "spec.slices[0].name", `""`},
		"slice name no label":  {func(s *BlueprintSpec) { s.Slices[0].Name = "the.db" }, "spec.slices[0].name", `"the.db"`},
		"slice name twice":     {func(s *BlueprintSpec) { s.Slices[1].Name = "db" }, "spec.slices[1].name", `"db"`},

		"no artifact":         {func(s *BlueprintSpec) { s.Slices[0].Artifact = "" }, "spec.slices[0].artifact", "group:name:version"},
		"artifact no image":   {func(s *BlueprintSpec) { s.Slices[0].Artifact = "Postgres 18" }, "spec.slices[0].artifact", `"Postgres 18"`},
		"artifact a URL":      {func(s *BlueprintSpec) { s.Slices[0].Artifact = "https://example.com/x" }, "spec.slices[0].artifact", "https://example.com/x"},
		"bad coordinates":     {func(s *BlueprintSpec) { s.Slices[1].Artifact = "com.example:Web:1" }, "spec.slices[1].artifact", `"Web"`},
		"artifact too long":   {func(s *BlueprintSpec) { s.Slices[1].Artifact = strings.Repeat("a/", 300) + "x" }, "spec.slices[1].artifact", "512"},
		"artifact twice":      {func(s *BlueprintSpec) { s.Slices[1].Artifact = "docker.io/library/postgres:18" }, "spec.slices[1].artifact", "docker.io/library/postgres:18"},
		"coordinates twice":   {func(s *BlueprintSpec) { s.Slices[2].Artifact = "com.example:web:1.4.2" }, "spec.slices[2].artifact", "com.example:web:1.4.2"},
		"latest by two names": {func(s *BlueprintSpec) { s.Slices[0].Artifact, s.Slices[2].Artifact = "redis", "redis:latest" }, "spec.slices[2].artifact", "redis:latest"},

		"instances 0":        {func(s *BlueprintSpec) { s.Slices[0].Instances = int32Pointer(0) }, "spec.slices[0].instances", "0"},
		"instances -3":       {func(s *BlueprintSpec) { s.Slices[0].Instances = int32Pointer(-3) }, "spec.slices[0].instances", "-3"},
		"instances 1001":     {func(s *BlueprintSpec) { s.Slices[0].Instances = int32Pointer(1001) }, "spec.slices[0].instances", "1001"},
		"no number at all":   {func(s *BlueprintSpec) { s.Slices[0].Instances = nil }, "spec.slices[0].instances", "minInstances"},
		"number and least":   {func(s *BlueprintSpec) { s.Slices[0].MinInstances = int32Pointer(1) }, "spec.slices[0].minInstances", "state instances"},
		"number and most":    {func(s *BlueprintSpec) { s.Slices[0].MaxInstances = int32Pointer(1) }, "spec.slices[0].maxInstances", "state instances"},
		"least without most": {func(s *BlueprintSpec) { s.Slices[1].MaxInstances = nil }, "spec.slices[1].maxInstances", "minInstances"},
		"most without least": {func(s *BlueprintSpec) { s.Slices[1].MinInstances = nil }, "spec.slices[1].minInstances", "maxInstances"},
		"least 0":            {func(s *BlueprintSpec) { s.Slices[1].MinInstances = int32Pointer(0) }, "spec.slices[1].minInstances", "0"},
		"least over most":    {func(s *BlueprintSpec) { s.Slices[1].MinInstances = int32Pointer(7) }, "spec.slices[1].minInstances", "(6)"},
		"no resources":       {func(s *BlueprintSpec) { s.Slices[0].Resources = nil }, "spec.slices[0].resources", "at least one"},
		"cpu 0":              {func(s *BlueprintSpec) { s.Slices[0].Resources = resources("cpu", "0") }, "spec.slices[0].resources.cpu", `"0"`},
		"cpu -1":             {func(s *BlueprintSpec) { s.Slices[0].Resources = resources("cpu", "-1") }, "spec.slices[0].resources.cpu", `"-1"`},
		"memory in sum":      {func(s *BlueprintSpec) { s.Slices[2].Resources = resources("memory", "2Ei") }, "spec.slices[2].resources.memory", `"2Ei"`},
		"bad selector":       {func(s *BlueprintSpec) { s.Slices[0].ClusterSelector = badSelector() }, "spec.slices[0].clusterSelector.matchExpressions[0].operator", `"Near"`},
		"priority too high":  {func(s *BlueprintSpec) { s.Slices[0].Priority = 1001 }, "spec.slices[0].priority", "1001"},
		"priority too low":   {func(s *BlueprintSpec) { s.Slices[0].Priority = -1001 }, "spec.slices[0].priority", "-1001"},
		"unknown strategy":   {func(s *BlueprintSpec) { s.Strategy = "Random" }, "spec.strategy", `"Random"`},
		"unknown care":       {func(s *BlueprintSpec) { s.Reconciliation = "Brutal" }, "spec.reconciliation", `"Brutal"`},
		"unknown admission":  {func(s *BlueprintSpec) { s.Admission = "strict" }, "spec.admission", `"strict"`},
		"no moves":           {func(s *BlueprintSpec) { s.MaxMoves = int32Pointer(0) }, "spec.maxMoves", "0"},
		"too many moves":     {func(s *BlueprintSpec) { s.MaxMoves = int32Pointer(1001) }, "spec.maxMoves", "1001"},
		"nothing may give": {func(s *BlueprintSpec) {
			s.Rollout = BlueprintRollout{MaxUnavailable: bound("0%"), MaxSurge: bound("0")}
		}, "spec.rollout.maxUnavailable", "maxSurge"},
		"more than all away":  {func(s *BlueprintSpec) { s.Rollout.MaxUnavailable = bound("101%") }, "spec.rollout.maxUnavailable", "101%"},
		"less than none away": {func(s *BlueprintSpec) { s.Rollout.MaxUnavailable = bound("-1") }, "spec.rollout.maxUnavailable", "-1"},
		"surge in words":      {func(s *BlueprintSpec) { s.Rollout.MaxSurge = bound("half") }, "spec.rollout.maxSurge", "half"},
		"surge -5%":           {func(s *BlueprintSpec) { s.Rollout.MaxSurge = bound("-5%") }, "spec.rollout.maxSurge", "-5%"},

		"affinity to nobody":      {func(s *BlueprintSpec) { s.Slices[1].Affinity = []string{"queue"} }, "spec.slices[1].affinity[0]", `"queue"`},
		"affinity to itself":      {func(s *BlueprintSpec) { s.Slices[1].Affinity = []string{"web"} }, "spec.slices[1].affinity[0]", `"web"`},
		"affinity to a later one": {func(s *BlueprintSpec) { s.Slices[0].Affinity = []string{"cache"} }, "spec.slices[0].affinity[0]", "earlier"},
		"affinity twice":          {func(s *BlueprintSpec) { s.Slices[1].Affinity = []string{"db", "db"} }, "spec.slices[1].affinity[1]", `"db"`},
		"antiAffinity to nobody":  {func(s *BlueprintSpec) { s.Slices[1].AntiAffinity = []string{"queue"} }, "spec.slices[1].antiAffinity[0]", `"queue"`},
		"antiAffinity twice":      {func(s *BlueprintSpec) { s.Slices[1].AntiAffinity = []string{"db", "db"} }, "spec.slices[1].antiAffinity[1]", `"db"`},
		"both with and without": {func(s *BlueprintSpec) {
			s.Slices[1].Affinity, s.Slices[1].AntiAffinity = []string{"db"}, []string{"db"}
		}, "spec.slices[1].antiAffinity[0]", `"db"`},
		"with one who is without": {func(s *BlueprintSpec) {
			s.Slices[1].Affinity, s.Slices[0].AntiAffinity = []string{"db"}, []string{"web"}
		}, "spec.slices[0].antiAffinity[0]", `"web"`},
		"without a friend's friend": {func(s *BlueprintSpec) {
			s.Slices[1].Affinity, s.Slices[2].Affinity, s.Slices[2].AntiAffinity = []string{"db"}, []string{"web"}, []string{"db"}
		}, "spec.slices[2].antiAffinity[0]", `"db"`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := shop()
			c.change(&b.Spec)
			requireFault(t, ValidateBlueprint(b), c.path, c.value)
		})
	}
	unnamed := shop()
	unnamed.Name = "The_Shop"
	requireFault(t, ValidateBlueprint(unnamed), "metadata.name", `"The_Shop"`)
}

func manySlices(n int) []BlueprintSlice {
	list := make([]BlueprintSlice, n)
	for i := range list {
		list[i] = BlueprintSlice{
			Name: fmt.Sprintf("s%d", i), Artifact: fmt.Sprintf("web:%d", i), Instances: int32Pointer(1), Resources: resources("cpu", "1"),
		}
	}
	return list
}

func TestARolloutIsBoundedAsADeployments(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rollout            BlueprintRollout
		instances          int32
		unavailable, surge int32
	}{
		"by default a quarter":          {BlueprintRollout{}, 10, 2, 3},
		"by default of one":             {BlueprintRollout{}, 1, 0, 1},
		"by numbers":                    {BlueprintRollout{bound("2"), bound("3")}, 10, 2, 3},
		"never more than there are":     {BlueprintRollout{bound("5"), bound("0")}, 3, 3, 0},
		"one where all comes to none":   {BlueprintRollout{bound("10%"), bound("0")}, 3, 1, 0},
		"rounded apart":                 {BlueprintRollout{bound("50%"), bound("50%")}, 3, 1, 2},
		"none of none":                  {BlueprintRollout{}, 0, 0, 0},
		"all of them":                   {BlueprintRollout{bound("100%"), bound("100%")}, 4, 4, 4},
		"of none, though one may be it": {BlueprintRollout{bound("0"), bound("2")}, 0, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			unavailable, surge := c.rollout.Bounds(c.instances)
			require.Equal(t, []int32{c.unavailable, c.surge}, []int32{unavailable, surge})
		})
	}
}

func TestWhatABlueprintDoesNotSay(t *testing.T) {
	t.Parallel()
	spec := &shop().Spec
	require.Equal(t, StrategyRoundRobin, spec.EffectiveStrategy())
	require.Zero(t, spec.Moves())
	spec.Reconciliation = ReconcileAggressive
	require.Equal(t, int32(1), spec.Moves())
	spec.MaxMoves = int32Pointer(5)
	require.Equal(t, int32(5), spec.Moves())
	least, most := spec.Slices[0].Range()
	require.Equal(t, []int32{1, 1}, []int32{least, most})
	least, most = spec.Slices[1].Range()
	require.Equal(t, []int32{2, 6}, []int32{least, most})
}
