package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/server"
	"github.com/bourse-dev/bourse/store"
)

// consent makes a cluster that runs blueprints.
func (x *exchange) consent(id string, cores int) {
	x.t.Helper()
	x.advertise(id, cores)
	x.client(server.GroupAgent+id).must(http.StatusOK, "PATCH", group+"/clusteradvertisements/"+id+"-adv/status",
		`{"status":{"conditions":[{"type":"BlueprintsAllowed","status":"True","reason":"Allowed","message":"all namespaces","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`,
		"Content-Type", mergeTyp)
}

// placed is how many instances of a slice the stored slices run, by cluster.
func (x *exchange) placed(blueprint, slice string) map[string]int32 {
	x.t.Helper()
	placed := map[string]int32{}
	for row := range x.DB.State().Scan(broker.SlicesPrefix + "rome/") {
		s := store.SliceOf(row)
		require.NotNil(x.t, s)
		if s.Spec.Blueprint == blueprint && s.Spec.Slice == slice {
			placed[s.Spec.ClusterID] += s.Spec.Instances
		}
	}
	return placed
}

func planned(b *broker.Blueprint, slice string) map[string]int32 {
	after := map[string]int32{}
	for _, c := range b.Status.Plan {
		if c.Slice == slice && c.After > 0 {
			after[c.ClusterID] = c.After
		}
	}
	return after
}

func TestADryRunOfABlueprintPlansWhatApplyThenDoes(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.consent("berlin", 8)
	x.consent("paris", 4)
	x.advertise("oslo", 64) // does not consent
	c := x.client(server.GroupRequester + "rome")
	body := blueprintBody("shop", oneSlice(6, `,"strategy":"Spread"`))
	ways := map[string]func(query string) answer{
		"create": func(q string) answer { return c.must(http.StatusCreated, "POST", romeBP+applied+q, body) },
		"apply --server-side": func(q string) answer {
			return c.must(http.StatusCreated, "PATCH", romeBP+"/shop"+applied+q, body, "Content-Type", applyTyp)
		},
	}
	for way, create := range ways {
		before := x.DB.State().Hash()
		dry := create("&" + dryRun).blueprint(t)
		require.Equal(t, before, x.DB.State().Hash(), "%s: a dry run wrote something", way)
		require.Equal(t, broker.BlueprintProgressing, dry.Status.Phase)
		require.Equal(t, map[string]int32{"berlin": 3, "paris": 3}, planned(dry, "web"), "%s: %+v", way, dry.Status)
		for _, change := range dry.Status.Plan {
			require.Equal(t, "+", change.Action)
			require.NotEmpty(t, change.Reason)
		}
		require.Empty(t, create("").blueprint(t).Status.Plan, "%s: a plan is not stored", way)
		require.Equal(t, planned(dry, "web"), x.placed("shop", "web"), way)
		held := x.stored("paris").Spec.Resources.Reserved["cpu"]
		require.Equal(t, "3", held.String())
		c.must(http.StatusOK, "DELETE", romeBP+"/shop", "")
		for row := range x.DB.State().Scan(broker.SlicesPrefix) {
			s := store.SliceOf(row)
			require.Equal(t, broker.SliceUnload, s.Spec.Command)
			x.client(server.GroupAgent+s.Spec.ClusterID).must(http.StatusOK, "PATCH", romeSlices+"/"+s.Name+"/status", fmt.Sprintf(
				`{"status":{"observedGeneration":%d,"state":"Unloading","conditions":[{"type":"Unloaded","status":"True","reason":"Gone","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`,
				s.Generation), "Content-Type", mergeTyp)
		}
		require.Empty(t, x.placed("shop", "web"), "%s: deletion leaves nothing", way)
	}
}

func TestADryRunOfAChangePlansTheChangeAlone(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.consent("berlin", 8)
	c := x.client(admin...)
	c.must(http.StatusCreated, "POST", romeBP, blueprintBody("shop", oneSlice(2, "")))
	plan := func(patch string) []broker.PlannedChange {
		got := c.must(http.StatusOK, "PATCH", romeBP+"/shop?"+dryRun, patch, "Content-Type", jsonTyp)
		return got.blueprint(t).Status.Plan
	}
	require.Empty(t, plan(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`))
	grown := plan(`[{"op":"replace","path":"/spec/slices/0/instances","value":5}]`)
	require.Len(t, grown, 1)
	require.Equal(t, []any{"+", "berlin", int32(2), int32(5)}, []any{grown[0].Action, grown[0].ClusterID, grown[0].Before, grown[0].After})
	other := plan(`[{"op":"replace","path":"/spec/slices/0/artifact","value":"com.example:web:2"}]`)
	require.Len(t, other, 1)
	require.Equal(t, "~", other[0].Action)
	require.Contains(t, other[0].Reason, "nginx:1.29")
	require.Contains(t, other[0].Reason, "com.example:web:2")
	require.Equal(t, map[string]int32{"berlin": 2}, x.placed("shop", "web"), "nothing was changed")
}

func TestWhatWouldNotFitIsAWarningOrWithStrictARefusal(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.consent("berlin", 4)
	c := x.client(admin...)
	warning := func(a answer) string {
		return strings.ReplaceAll(strings.Join(a.header.Values("Warning"), "\n"), `\"`, `"`)
	}

	got := c.must(http.StatusCreated, "POST", romeBP, blueprintBody("large", oneSlice(6, "")))
	require.Contains(t, warning(got), "spec.slices[0] (web): would not fit the federation now: 2 of 6 instances")
	require.Contains(t, warning(got), "berlin: cpu 1 requested, 0 available")
	c.must(http.StatusOK, "DELETE", romeBP+"/large", "")
	dry := c.must(http.StatusCreated, "POST", romeBP+"?"+dryRun, blueprintBody("huge", oneSlice(60, ""))).blueprint(t)
	require.Equal(t, broker.BlueprintDegraded, dry.Status.Phase)
	require.Contains(t, dry.Status.Message, "of 60 instances")

	strict := func(instances int) string {
		return blueprintBody("strict", oneSlice(instances, `,"admission":"Strict"`))
	}
	x.consent("paris", 4)
	before := x.DB.State().Hash()
	for _, query := range []string{"", "?" + dryRun} {
		refused := strings.ReplaceAll(c.must(http.StatusUnprocessableEntity, "POST", romeBP+query, strict(60)).body, `\"`, `"`)
		require.Contains(t, refused, "spec.slices[0].instances")
		require.Contains(t, refused, "would not fit the federation now")
	}
	require.Equal(t, before, x.DB.State().Hash())
	got = c.must(http.StatusCreated, "POST", romeBP, strict(4))
	require.NotContains(t, warning(got), "would not fit")
	c.must(http.StatusUnprocessableEntity, "PATCH", romeBP+"/strict", `[{"op":"replace","path":"/spec/slices/0/instances","value":60}]`, "Content-Type", jsonTyp)

	// What is running stays editable when the federation shrinks under it.
	x.client(server.GroupProvider+"paris").must(http.StatusOK, "PATCH", group+"/clusteradvertisements/paris-adv",
		`{"spec":{"lending":{"withdrawn":true}}}`, "Content-Type", mergeTyp)
	c.must(http.StatusOK, "PATCH", romeBP+"/strict", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", mergeTyp)
}

func TestDoubtsAreWarnings(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.consent("berlin", 4)
	c := x.client(admin...)
	selecting := func(name, label string) string {
		return blueprintBody(name, `"slices":[`+sliceSpec("web", "nginx", 1, `,"clusterSelector":{"matchLabels":{"region":"`+label+`"}}`)+`]`)
	}
	got := c.must(http.StatusCreated, "POST", romeBP, selecting("far", "mars"))
	warned := strings.Join(got.header.Values("Warning"), "\n")
	require.Contains(t, warned, "spec.slices[0].clusterSelector: matches no cluster")
	require.Contains(t, warned, "spec.slices[0].artifact")
	require.Contains(t, warned, "name a version")
	near := c.must(http.StatusCreated, "POST", romeBP, selecting("near", "eu"))
	require.NotContains(t, strings.Join(near.header.Values("Warning"), "\n"), "clusterSelector")
	labelled := c.must(http.StatusOK, "PATCH", romeBP+"/far", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", mergeTyp)
	require.Empty(t, labelled.header.Values("Warning"), "only a new spec is judged")
}

func TestASliceChangedOrDeletedByHandIsPutRight(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.consent("berlin", 8)
	c := x.client(admin...)
	c.must(http.StatusCreated, "POST", romeBP, blueprintBody("shop", oneSlice(2, "")))
	var list broker.SliceList
	require.NoError(t, unmarshal(c.must(http.StatusOK, "GET", romeSlices+"?fieldSelector=spec.blueprint%3Dshop", "").body, &list))
	require.Len(t, list.Items, 1)
	path := romeSlices + "/" + list.Items[0].Name
	c.must(http.StatusOK, "PATCH", path, `{"spec":{"instances":7,"command":"Unload"}}`, "Content-Type", mergeTyp)
	read := func() *broker.Slice {
		s := &broker.Slice{}
		require.NoError(t, unmarshal(c.must(http.StatusOK, "GET", path, "").body, s))
		return s
	}
	require.EqualValues(t, 2, read().Spec.Instances)
	require.Equal(t, list.Items[0].Spec.Command, read().Spec.Command)
	c.must(http.StatusOK, "DELETE", path, "")
	require.EqualValues(t, 2, read().Spec.Instances, "it is made again")
	require.NotEqual(t, list.Items[0].UID, read().UID)
}

// plans is how many have been computed.
func (x *exchange) plans() int {
	x.t.Helper()
	text := x.client(admin...).must(http.StatusOK, "GET", "/metrics", "").body
	_, rest, found := strings.Cut(text, "\nbourse_blueprint_plan_seconds_count ")
	require.True(x.t, found)
	var n int
	_, err := fmt.Sscan(rest, &n)
	require.NoError(x.t, err)
	return n
}

func TestARequestPlansOnce(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.consent("berlin", 8)
	c := x.client(admin...)
	strict := blueprintBody("shop", oneSlice(2, `,"admission":"Strict"`))
	grow := `[{"op":"replace","path":"/spec/slices/0/instances","value":5}]`
	label := `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`
	for _, r := range []struct {
		says               string
		code               int
		method, path, body string
		contentType        string
		plans              int
	}{
		{"a dry run of a Strict one", http.StatusCreated, "POST", "?" + dryRun, strict, "application/json", 1},
		{"a Strict one that does not fit", http.StatusUnprocessableEntity, "POST", "", blueprintBody("large", oneSlice(60, `,"admission":"Strict"`)), "application/json", 1},
		{"a Strict one", http.StatusCreated, "POST", "", strict, "application/json", 1},
		{"a dry run of a changed one", http.StatusOK, "PATCH", "/shop?" + dryRun, grow, jsonTyp, 1},
		{"a dry run of a label", http.StatusOK, "PATCH", "/shop?" + dryRun, label, jsonTyp, 1},
		{"a label", http.StatusOK, "PATCH", "/shop", label, jsonTyp, 0},
		{"a changed one", http.StatusOK, "PATCH", "/shop", grow, jsonTyp, 1},
		{"a dry run of an applied one", http.StatusCreated, "PATCH", "/other" + applied + "&" + dryRun, blueprintBody("other", oneSlice(1, "")), applyTyp, 1},
	} {
		before := x.plans()
		c.must(r.code, r.method, romeBP+r.path, r.body, "Content-Type", r.contentType)
		require.Equal(t, r.plans, x.plans()-before, r.says)
	}
}
