package server_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/server"
	"github.com/bourse-dev/bourse/store"
)

const (
	romeBP     = group + "/namespaces/rome/blueprints"
	romeSlices = group + "/namespaces/rome/slices"
)

func blueprintBody(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"broker.fluidos.eu/v1alpha1","kind":"Blueprint","metadata":{"name":%q},"spec":{%s}}`, name, spec)
}

// sliceSpec is one slice of a blueprint's spec, as JSON.
func sliceSpec(name, artifact string, instances int, more string) string {
	return fmt.Sprintf(`{"name":%q,"artifact":%q,"instances":%d,"resources":{"cpu":"1"}%s}`, name, artifact, instances, more)
}

func oneSlice(instances int, more string) string {
	return `"slices":[` + sliceSpec("web", "nginx:1.29", instances, "") + `]` + more
}

func (a answer) blueprint(t *testing.T) *broker.Blueprint {
	t.Helper()
	b := &broker.Blueprint{}
	require.NoError(t, unmarshal(a.body, b), a.body)
	return b
}

// addSlice makes a share of rome/shop as the leader's room does, with a hold of a core for each instance.
func (x *exchange) addSlice(name, cluster string, instances int32) fsm.Revision {
	x.t.Helper()
	s := &broker.Slice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "rome", Name: name, UID: types.UID("u-" + name), Generation: 1, CreationTimestamp: metav1.Now()},
		Spec: broker.SliceSpec{
			Blueprint: "shop", BlueprintUID: "none", Slice: "web", ClusterID: cluster, Artifact: "nginx:1.29",
			Image: "docker.io/library/nginx:1.29", Instances: instances, Command: broker.SliceActivate,
			Resources: corev1.ResourceList{"cpu": resource.MustParse("1")},
		},
	}
	body, err := store.SliceBody(s)
	require.NoError(x.t, err)
	key := broker.SliceKey("rome", name)
	held := allocation.NewAmounts(allocation.Amount{Resource: "cpu", Value: int64(instances) * 1000})
	result, err := x.Write(context.Background(), fsm.Txn{
		Writes: []fsm.Write{{Key: key, Body: body, Ledger: &fsm.Ledger{}}},
		Moves:  []fsm.Move{{Op: fsm.MoveHold, Account: broker.AdvertisementKey(cluster), Holder: key, Amounts: held}},
	})
	require.NoError(x.t, err)
	require.Nil(x.t, result.Refusal)
	return x.DB.State().Row(key).Ledger.Fence
}

func TestABlueprintIsWrittenAsAnyObject(t *testing.T) {
	t.Parallel()
	x := start(t)
	c := x.client(server.GroupRequester + "rome")
	body := strings.TrimSuffix(blueprintBody("shop", oneSlice(2, "")), "}") + `,"status":{"phase":"Active","ready":9}}`
	b := c.must(http.StatusCreated, "POST", romeBP, body).blueprint(t)
	require.EqualValues(t, 1, b.Generation)
	require.Zero(t, b.Status.Ready, "a status from a user's hand")
	require.NotEqual(t, broker.BlueprintActive, b.Status.Phase)

	b = c.must(http.StatusOK, "PATCH", romeBP+"/shop"+applied+"&force=true", blueprintBody("shop", oneSlice(3, "")), "Content-Type", applyTyp).blueprint(t)
	require.EqualValues(t, 2, b.Generation)
	b = c.must(http.StatusOK, "PATCH", romeBP+"/shop", `{"metadata":{"labels":{"a":"b"}},"status":{"ready":9}}`, "Content-Type", mergeTyp).blueprint(t)
	require.EqualValues(t, 2, b.Generation)
	require.Zero(t, b.Status.Ready)
	require.NotNil(t, meta.FindStatusCondition(b.Status.Conditions, "Ready"))

	c.must(http.StatusOK, "GET", romeBP+"/shop/status", "")
	x.client(admin...).must(http.StatusMethodNotAllowed, "PATCH", romeBP+"/shop/status", `{"status":{"ready":9}}`, "Content-Type", mergeTyp)
	c.must(http.StatusConflict, "PATCH", romeBP+"/shop", `{"metadata":{"resourceVersion":"1"},"spec":{"strategy":"Pack"}}`, "Content-Type", mergeTyp)
	require.Contains(t, c.must(http.StatusOK, "GET", romeBP+"?fieldSelector=status.phase%3D"+string(b.Status.Phase), "").body, `"shop"`)
	x.client(admin...).must(http.StatusConflict, "DELETE", "/api/v1/namespaces/rome", "")
	c.must(http.StatusOK, "DELETE", romeBP+"/shop", "")
	c.must(http.StatusNotFound, "GET", romeBP+"/shop", "")
}

func TestBadBlueprintsAndSlicesAreRefusedByFieldAndValueAndChangeNothing(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.advertise("berlin", 32)
	c := x.client(admin...)
	c.must(http.StatusCreated, "POST", romeBP, blueprintBody("shop", oneSlice(1, "")))
	x.addSlice("shop-web-berlin-1", "berlin", 2)
	quantity := func(q string) string {
		return blueprintBody("bad", `"slices":[{"name":"web","artifact":"nginx:1","instances":1,"resources":{"cpu":"1"}},{"name":"db","artifact":"pg:1","instances":1,"resources":`+q+`}]`)
	}
	with := func(slice string) string { return blueprintBody("bad", `"slices":[`+slice+`]`) }
	own := romeSlices + "/shop-web-berlin-1"
	x.refuses(c, map[string]badInput{
		"unknown field":           {"POST", romeBP + "?fieldValidation=Strict", blueprintBody("bad", oneSlice(1, `,"colour":"red"`)), "", 400, []string{"spec.colour"}},
		"instances many":          {"POST", romeBP, with(`{"name":"web"},{"name":"db","instances":"many"}`), "", 400, []string{`spec.slices[1].instances: Invalid value: "many": must be a whole number`}},
		"instances many, YAML":    {"POST", romeBP, "apiVersion: broker.fluidos.eu/v1alpha1\nkind: Blueprint\nmetadata: {name: bad}\nspec:\n  slices: [{name: web}, {name: db, instances: many}]\n", "application/yaml", 400, []string{`spec.slices[1].instances`, `"many"`}},
		"instances many, merge":   {"PATCH", romeBP + "/shop", `{"spec":{"slices":[{"name":"web"},{"name":"db","instances":"many"}]}}`, mergeTyp, 422, []string{`Blueprint.broker.fluidos.eu "shop" is invalid: spec.slices[1].instances: Invalid value: "many": must be a whole number`}},
		"a slice that is a word":  {"POST", romeBP, with(`"web"`), "", 400, []string{`spec.slices[0]: Invalid value: "web": must be an object`}},
		"a list of resources":     {"POST", romeBP, with(`{"name":"web","resources":[1]}`), "", 400, []string{`spec.slices[0].resources: Invalid value: "[...]": must be an object`}},
		"a surge that is true":    {"POST", romeBP, blueprintBody("bad", oneSlice(1, `,"rollout":{"maxSurge":true}`)), "", 400, []string{"spec.rollout.maxSurge", "must be a whole number"}},
		"cpu four":                {"POST", romeBP, quantity(`{"cpu":"four"}`), "", 400, []string{"spec.slices[1].resources.cpu", `"four"`}},
		"cpu four, apply":         {"PATCH", romeBP + "/bad" + applied, quantity(`{"cpu":"four"}`), applyTyp, 422, []string{"spec.slices[1].resources.cpu", `"four"`}},
		"cpu four, merge patch":   {"PATCH", romeBP + "/shop", `{"spec":{"slices":[{"name":"web","resources":{"cpu":"four"}}]}}`, mergeTyp, 422, []string{"spec.slices[0].resources.cpu", `"four"`}},
		"cpu four, JSON patch":    {"PATCH", romeBP + "/shop", `[{"op":"add","path":"/spec/slices/0/resources/cpu","value":"four"}]`, jsonTyp, 422, []string{"spec.slices[0].resources.cpu", `"four"`}},
		"cpu -1":                  {"POST", romeBP, quantity(`{"cpu":"-1"}`), "", 422, []string{"spec.slices[1].resources.cpu", `"-1"`}},
		"no slices":               {"POST", romeBP, blueprintBody("bad", `"slices":[]`), "", 422, []string{"spec.slices"}},
		"instances 0":             {"POST", romeBP, with(sliceSpec("web", "nginx:1", 0, "")), "", 422, []string{"spec.slices[0].instances", "0"}},
		"artifact no image":       {"POST", romeBP, with(sliceSpec("web", "Nginx", 1, "")), "", 422, []string{"spec.slices[0].artifact", `"Nginx"`}},
		"artifact of an unmapped": {"POST", romeBP, with(sliceSpec("web", "org.example:web:1", 1, "")), "", 422, []string{"spec.slices[0].artifact", "org.example:web:1", "blueprint-registries"}},
		"unknown strategy":        {"POST", romeBP, blueprintBody("bad", oneSlice(1, `,"strategy":"Random"`)), "", 422, []string{"spec.strategy", `"Random"`}},
		"unknown selector":        {"GET", romeBP + "?fieldSelector=spec.strategy%3DPack", "", "", 400, []string{"spec.strategy"}},

		"slice by hand":              {"POST", romeSlices, `{"apiVersion":"broker.fluidos.eu/v1alpha1","kind":"Slice","metadata":{"name":"mine"},"spec":{}}`, "", 405, []string{"slices"}},
		"slice by apply":             {"PATCH", romeSlices + "/mine" + applied, `{"apiVersion":"broker.fluidos.eu/v1alpha1","kind":"Slice","metadata":{"name":"mine"},"spec":{}}`, applyTyp, 404, []string{"mine"}},
		"slice moved by hand":        {"PATCH", own, `{"spec":{"clusterID":"paris"}}`, mergeTyp, 422, []string{"spec.clusterID", `"paris"`, `"berlin"`}},
		"slice of -1 instances":      {"PATCH", own, `{"spec":{"instances":-1}}`, mergeTyp, 422, []string{"spec.instances", "-1"}},
		"slice of four cores, merge": {"PATCH", own, `{"spec":{"resources":{"cpu":"four"}}}`, mergeTyp, 422, []string{`Slice.broker.fluidos.eu "shop-web-berlin-1" is invalid: spec.resources.cpu: Invalid value: "four": must be a quantity`}},
		"slice of four cores, JSON":  {"PATCH", own, `[{"op":"add","path":"/spec/resources/cpu","value":"four"}]`, jsonTyp, 422, []string{"spec.resources.cpu", `"four"`}},
		"slice of four cores, put":   {"PUT", own, `{"apiVersion":"broker.fluidos.eu/v1alpha1","kind":"Slice","metadata":{"name":"shop-web-berlin-1"},"spec":{"resources":{"cpu":"four"}}}`, "", 400, []string{"spec.resources.cpu", `"four"`}},
		"offer of four cores":        {"PATCH", group + "/clusteradvertisements/berlin-adv", `{"spec":{"resources":{"allocatable":{"cpu":"four"}}}}`, mergeTyp, 422, []string{"spec.resources.allocatable.cpu", `"four"`}},
		"slice of nothing":           {"PATCH", own, `{"spec":{"resources":null}}`, mergeTyp, 422, []string{"spec.resources: Required"}},
		"slice in an unknown state":  {"PATCH", own + "/status", `{"status":{"state":"Napping"}}`, mergeTyp, 422, []string{"status.state", `"Napping"`}},
		"slice selected by artifact": {"GET", romeSlices + "?fieldSelector=spec.artifact%3Dx", "", "", 400, []string{"spec.artifact"}},
	})
}

func TestAnAgentReportsOnItsOwnSlices(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.advertise("berlin", 16)
	fence := x.addSlice("shop-web-berlin-1", "berlin", 4)
	agent := x.client(server.GroupAgent + "berlin")
	path := romeSlices + "/shop-web-berlin-1"
	generation := 1
	report := func(state string, ready int) *broker.Slice {
		s := &broker.Slice{}
		answer := agent.must(http.StatusOK, "PATCH", path+"/status", fmt.Sprintf(`{"metadata":{"labels":{"mine":"yes"}},"spec":{"instances":99},`+
			`"status":{"observedGeneration":%d,"state":%q,"readyInstances":%d,"message":"says the agent","fence":7,"stateSince":"2001-01-01T00:00:00.000000Z",`+
			`"conditions":[{"type":"Unloaded","status":"False","reason":"Running","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"},`+
			`{"type":"Ready","status":"True","reason":"Forged","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, generation, state, ready), "Content-Type", mergeTyp)
		require.NoError(t, unmarshal(answer.body, s))
		return s
	}
	loading := report("Loading", 0)
	require.EqualValues(t, fence, loading.Status.Fence, "the ledger's")
	require.Greater(t, loading.Status.StateSince.Year(), 2001, "the exchange's clock")
	require.True(t, meta.IsStatusConditionFalse(loading.Status.Conditions, "Ready"))
	require.True(t, meta.IsStatusConditionFalse(loading.Status.Conditions, "Unloaded"))
	require.Empty(t, loading.Labels)
	require.NotEqualValues(t, 99, loading.Spec.Instances)

	before := x.DB.State().Revision()
	again := report("Loading", 0)
	require.Equal(t, before, x.DB.State().Revision(), "nothing new was said, nothing is written")
	require.Equal(t, loading.Status.StateSince, again.Status.StateSince)
	require.Equal(t, loading.Status.StateSince, report("Loading", 1).Status.StateSince)
	active := report("Active", 4)
	require.NotEqual(t, loading.Status.StateSince, active.Status.StateSince)
	retry := func(attempt int) {
		x.client(admin...).must(http.StatusOK, "PATCH", path, fmt.Sprintf(`{"spec":{"attempt":%d}}`, attempt), "Content-Type", mergeTyp)
		generation++
	}
	retry(1)
	require.Equal(t, active.Status.StateSince, report("Active", 4).Status.StateSince)
	failed := report("Failed", 0)
	require.Equal(t, failed.Status.StateSince, report("Failed", 1).Status.StateSince)
	retry(2)
	require.True(t, failed.Status.StateSince.Before(report("Failed", 0).Status.StateSince), "it failed once more: the next try waits from now on")
}

func TestUseOfASliceLeavesAllocated(t *testing.T) {
	t.Parallel()
	x := start(t)
	session, epoch := x.advertise("berlin", 16)
	fence := x.addSlice("shop-web-berlin-1", "berlin", 4)
	c := x.client(admin...)
	c.must(http.StatusCreated, "POST", rome, reservationBody("shop-web-berlin-1", "rome", `"targetClusterID":"berlin"`))
	agent := x.client(server.GroupAgent + "berlin")
	available := func(sequence int64, kind string) string {
		agent.must(http.StatusCreated, "POST", group+"/clusteradvertisements/berlin-adv/facts", factsBody(session, epoch, sequence, fmt.Sprintf(
			`,"allocatable":{"cpu":"16","memory":"60Pi"},"allocated":{"cpu":"4"},"use":[{%s"namespace":"rome","name":"shop-web-berlin-1","fence":%d,"used":{"cpu":"4"}}]`,
			kind, fence)))
		free := x.stored("berlin").Spec.Resources.Available["cpu"]
		return free.String()
	}
	require.Equal(t, "8", available(2, `"kind":"Slice",`), "4 held by the slice, 4 by the reservation; its pods are inside")
	require.Equal(t, "4", available(3, ""), "pods of a reservation with that fence there are not: they are the cluster's own")
	require.Equal(t, "8", available(4, `"kind":"Slice",`))
}

func TestBlueprintsAndSlicesAreSeenByWhomTheyConcern(t *testing.T) {
	t.Parallel()
	x := start(t)
	for _, id := range []string{"berlin", "paris"} {
		x.advertise(id, 16)
		x.addSlice("shop-web-"+id+"-1", id, 1)
	}
	c := x.client(admin...)
	c.must(http.StatusCreated, "POST", romeBP, blueprintBody("held", oneSlice(1, "")))
	const (
		requester = server.GroupRequester + "rome"
		stranger  = server.GroupRequester + "oslo"
		agent     = server.GroupAgent + "berlin"
		other     = server.GroupAgent + "paris"
		viewer    = server.GroupViewer

		all    = group + "/slices"
		own    = romeSlices + "/shop-web-berlin-1"
		label  = `{"metadata":{"labels":{"a":"b"}}}`
		status = `{"status":{"observedGeneration":1,"state":"Active"}}`
	)
	shop := blueprintBody("shop2", oneSlice(1, ""))
	cases := []struct {
		says, role, method, path, body string
		code                           int
	}{
		{"a requester makes blueprints", requester, "POST", romeBP, shop, 201},
		{"a requester dry-runs them", requester, "POST", romeBP + "?dryRun=All", blueprintBody("shop3", oneSlice(1, "")), 201},
		{"a requester edits them", requester, "PATCH", romeBP + "/held", label, 200},
		{"a requester applies them", requester, "APPLY", romeBP + "/shop4", blueprintBody("shop4", oneSlice(1, "")), 201},
		{"a requester lists them", requester, "GET", romeBP, "", 200},
		{"a requester reads their status", requester, "GET", romeBP + "/held/status", "", 200},
		{"a requester deletes them", requester, "DELETE", romeBP + "/shop2", "", 200},
		{"a requester makes none elsewhere", requester, "POST", group + "/namespaces/paris/blueprints", shop, 403},
		{"a requester lists none elsewhere", requester, "GET", group + "/blueprints", "", 403},
		{"a requester writes no status", requester, "PATCH", romeBP + "/held/status", `{"status":{"ready":1}}`, 403},
		{"a requester sees its slices", requester, "GET", romeSlices, "", 200},
		{"a requester reads one", requester, "GET", own, "", 200},
		{"a requester sees no others", requester, "GET", all, "", 403},
		{"a requester edits no slice", requester, "PATCH", own, label, 403},
		{"a requester deletes no slice", requester, "DELETE", own, "", 403},
		{"a requester reports nothing", requester, "PATCH", own + "/status", status, 403},
		{"another requester sees nothing", stranger, "GET", romeBP, "", 403},
		{"nor any slice", stranger, "GET", own, "", 403},

		{"a viewer reads all", viewer, "GET", group + "/blueprints", "", 200},
		{"a viewer reads all slices", viewer, "GET", all, "", 200},
		{"a viewer reads one slice", viewer, "GET", own, "", 200},
		{"a viewer writes nothing", viewer, "POST", romeBP, shop, 403},

		{"an agent lists its own", agent, "GET", all + "?fieldSelector=spec.clusterID%3Dberlin", "", 200},
		{"an agent lists nothing else", agent, "GET", all, "", 403},
		{"nor of another", agent, "GET", all + "?fieldSelector=spec.clusterID%3Dparis", "", 403},
		{"nor in a namespace", agent, "GET", romeSlices, "", 403},
		{"nor by blueprint", agent, "GET", all + "?fieldSelector=spec.blueprint%3Dshop", "", 403},
		{"an agent reads its own", agent, "GET", own, "", 200},
		{"a third agent does not", other, "GET", own, "", 403},
		{"nor its status", other, "GET", own + "/status", "", 403},
		{"an agent reports on its own", agent, "PATCH", own + "/status", status, 200},
		{"a third agent does not ", other, "PATCH", own + "/status", status, 403},
		{"an agent edits no slice", agent, "PATCH", own, label, 403},
		{"an agent deletes no slice", agent, "DELETE", own, "", 403},
		{"an agent reads no blueprints", agent, "GET", romeBP + "/held", "", 403},
		{"an agent makes no blueprints", agent, "POST", romeBP, shop, 403},

		{"an administrator edits a slice", server.GroupAdmin, "PATCH", own, label, 200},
		{"a requester clears its namespace", requester, "DELETE", romeBP, "", 200},
	}
	clients := map[string]client{}
	for _, k := range cases {
		if _, ok := clients[k.role]; !ok {
			clients[k.role] = x.client(k.role)
		}
		method, path, contentType := k.method, k.path, "application/json"
		switch method {
		case "PATCH":
			contentType = mergeTyp
		case "APPLY":
			method, path, contentType = "PATCH", path+applied, applyTyp
		}
		got := clients[k.role].do(method, path, k.body, "Content-Type", contentType)
		require.Equal(t, k.code, got.code, "%s: %s %s: %s", k.says, method, path, got.body)
	}
	seen := clients[agent].must(http.StatusOK, "GET", all+"?fieldSelector=spec.clusterID%3Dberlin", "")
	require.Contains(t, seen.body, "shop-web-berlin-1")
	require.NotContains(t, seen.body, "shop-web-paris-1")
	rules := clients[requester].must(http.StatusCreated, "POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
		`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview","spec":{"namespace":"rome"}}`)
	require.Contains(t, rules.body, `"blueprints"`)
}

func TestTablesOfBlueprintsAndSlices(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.advertise("berlin", 16)
	c := x.client(admin...)
	c.must(http.StatusCreated, "POST", romeBP, blueprintBody("shop", oneSlice(1, "")))
	x.addSlice("shop-web-berlin-1", "berlin", 2)
	for path, want := range map[string]string{
		romeBP:     "Name Phase Desired Ready Strategy Age Message*",
		romeSlices: "Name Artifact Cluster Desired Ready State Age Message*",
	} {
		var table metav1.Table
		require.NoError(t, unmarshal(c.must(http.StatusOK, "GET", path, "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").body, &table))
		var names []string
		for _, column := range table.ColumnDefinitions {
			names = append(names, column.Name+strings.Repeat("*", int(column.Priority)))
		}
		require.Equal(t, want, strings.Join(names, " "))
		require.NotEmpty(t, table.Rows)
	}
}
