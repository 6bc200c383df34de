package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/server"
)

const (
	rome     = group + "/namespaces/rome/reservations"
	applied  = "?fieldManager=test"
	dryRun   = "dryRun=All"
	applyTyp = "application/apply-patch+yaml"
	mergeTyp = "application/merge-patch+json"
	jsonTyp  = "application/json-patch+json"
)

func TestEveryWayToCreateIsDecidedAtOnceAndADryRunHoldsNothing(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.advertise("berlin", 32)
	x.advertise("rome", 8)
	c := x.client(server.GroupRequester + "rome")
	body := func(name string) string { return reservationBody(name, "rome", `"duration":"2h"`) }
	ways := map[string]func(name, query string) answer{
		"create": func(name, query string) answer {
			return c.must(http.StatusCreated, "POST", rome+applied+query, body(name))
		},
		"apply --server-side": func(name, query string) answer {
			return c.must(http.StatusCreated, "PATCH", rome+"/"+name+applied+query, body(name), "Content-Type", applyTyp)
		},
	}
	for way, create := range ways {
		name := strings.Fields(way)[0]
		before := x.DB.State().Revision()
		dry := create(name, "&"+dryRun).reservation(t)
		require.Equal(t, before, x.DB.State().Revision(), "%s: a dry run wrote something", way)
		real := create(name, "").reservation(t)
		for _, r := range []*broker.Reservation{dry, real} {
			require.Equal(t, broker.ReservationReserved, r.Status.Phase, way)
			require.Equal(t, "berlin", r.Status.TargetClusterID, way)
			require.NotNil(t, r.Status.ExpiresAt, way)
			require.NotNil(t, r.Status.Decision, way)
			require.Len(t, r.Status.Decision.Candidates, 1, way)
		}
		require.NotZero(t, real.Status.Fence)
	}
	berlin := x.stored("berlin").Spec.Resources
	reserved, available := berlin.Reserved["cpu"], berlin.Available["cpu"]
	require.Equal(t, "8", reserved.String())
	require.Equal(t, "24", available.String())
}

func TestADryRunOfAnExtensionShowsTheNewExpiry(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.advertise("berlin", 32)
	c := x.client(admin...)
	granted := c.must(http.StatusCreated, "POST", rome, reservationBody("r", "rome", `"duration":"2h"`)).reservation(t)
	longer := c.must(http.StatusOK, "PATCH", rome+"/r?"+dryRun, `{"spec":{"duration":"3h"}}`, "Content-Type", mergeTyp).reservation(t)
	require.Equal(t, "1h0m0s", longer.Status.ExpiresAt.Sub(granted.Status.ExpiresAt.Time).String())
	stored := c.must(http.StatusOK, "GET", rome+"/r", "").reservation(t)
	require.Equal(t, granted.Status.ExpiresAt, stored.Status.ExpiresAt)
}

func TestBadInputIsRefusedByFieldAndValueAndChangesNothing(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.advertise("berlin", 32)
	c := x.client(admin...)
	c.must(http.StatusCreated, "POST", rome, reservationBody("held", "rome", `"duration":"2h"`))
	c.must(http.StatusOK, "PATCH", group+"/clusteradvertisements/berlin-adv", `{"spec":{"cost":{"currency":"EUR","cpu":"1"}}}`, "Content-Type", mergeTyp)
	quantity := func(q string) string {
		return `{"apiVersion":"broker.fluidos.eu/v1alpha1","kind":"Reservation","metadata":{"name":"bad"},"spec":{"requesterID":"rome","requestedResources":` + q + `}}`
	}
	with := func(spec string) string { return reservationBody("bad", "rome", spec) }
	x.refuses(c, map[string]badInput{
		"unknown field":         {"POST", rome + "?fieldValidation=Strict", with(`"colour":"red"`), "", 400, []string{"spec.colour"}},
		"unknown field, apply":  {"PATCH", rome + "/bad" + applied, with(`"colour":"red"`), applyTyp, 400, []string{"spec.colour"}},
		"cpu four":              {"POST", rome, quantity(`{"cpu":"four"}`), "", 400, []string{"spec.requestedResources.cpu", `"four"`}},
		"cpu four, apply":       {"PATCH", rome + "/bad" + applied, quantity(`{"cpu":"four"}`), applyTyp, 422, []string{"spec.requestedResources.cpu", `"four"`}},
		"cpu four, merge patch": {"PATCH", rome + "/held", `{"spec":{"requestedResources":{"cpu":"four"}}}`, mergeTyp, 422, []string{"spec.requestedResources.cpu", `"four"`}},
		"cpu four, JSON patch":  {"PATCH", rome + "/held", `[{"op":"add","path":"/spec/requestedResources/cpu","value":"four"}]`, jsonTyp, 422, []string{"spec.requestedResources.cpu", `"four"`}},
		// Each of these kept a core busy for minutes, after its client had gone.
		"cpu 1e999999999":              {"POST", rome, quantity(`{"cpu":"1e999999999"}`), "", 400, []string{"spec.requestedResources.cpu", `"1e999999999"`}},
		"cpu 1e-999999999":             {"POST", rome, quantity(`{"cpu":"1e-999999999"}`), "", 400, []string{"spec.requestedResources.cpu", `"1e-999999999"`}},
		"cpu 1e999999999, a number":    {"POST", rome, quantity(`{"cpu":1e999999999}`), "", 400, []string{"spec.requestedResources.cpu", "1e999999999"}},
		"cpu 1E999999999, apply":       {"PATCH", rome + "/bad" + applied, quantity(`{"cpu":"1E999999999"}`), applyTyp, 422, []string{"spec.requestedResources.cpu", `"1E999999999"`}},
		"cpu 1e999999999, merge patch": {"PATCH", rome + "/held", `{"spec":{"requestedResources":{"cpu":"1e999999999"}}}`, mergeTyp, 422, []string{"spec.requestedResources.cpu", `"1e999999999"`}},
		"cpu 1e999999999, in YAML":     {"POST", rome, quantity(`{"cpu":"1\x65999999999"}`), "application/yaml", 400, []string{"spec.requestedResources.cpu", `"1e999999999"`}},
		"cpu 1e999999999, apply":       {"PATCH", rome + "/bad" + applied, quantity("{\"cpu\":\"1e9\\\n999\"}"), applyTyp, 422, []string{"spec.requestedResources.cpu", `"1e9999"`}},
		"cpu 1e999999999, hidden":      {"POST", rome, quantity(`{"cpu":"1e999999999","cpu":"1"}`), "", 400, []string{"twice"}},
		"cpu 1e999999999, JSON patch":  {"PATCH", rome + "/held", `[{"op":"add","path":"/spec/requestedResources/cpu","value":"1e999999999"}]`, jsonTyp, 422, []string{`"1e999999999"`}},
		"cpu -1":                       {"POST", rome, quantity(`{"cpu":"-1"}`), "", 422, []string{"spec.requestedResources.cpu", `"-1"`}},
		"cpu 0":                        {"POST", rome, quantity(`{"cpu":"0"}`), "", 422, []string{"spec.requestedResources.cpu", `"0"`}},
		"memory 8Q":                    {"POST", rome, quantity(`{"memory":"8Q"}`), "", 400, []string{"spec.requestedResources.memory", `"8Q"`}},
		"no resources":                 {"POST", rome, quantity(`{}`), "", 422, []string{"spec.requestedResources"}},
		"duration 2 hours":             {"POST", rome, with(`"duration":"2 hours"`), "", 422, []string{"spec.duration", `"2 hours"`}},
		"priority out of range":        {"POST", rome, with(`"priority":1001`), "", 422, []string{"spec.priority", "1001"}},
		"name too long":                {"POST", rome, reservationBody(strings.Repeat("n", 254), "rome", ""), "", 422, []string{"metadata.name", "253"}},
		"changed while Reserved":       {"PATCH", rome + "/held", `{"spec":{"priority":5}}`, mergeTyp, 422, []string{"spec.priority", "5", "Reserved"}},
		"shorter while Reserved":       {"PATCH", rome + "/held", `{"spec":{"duration":"1h"}}`, mergeTyp, 422, []string{"spec.duration", "1h", "Reserved", "2h"}},
		"stale resourceVersion":        {"PATCH", rome + "/held", `{"metadata":{"resourceVersion":"1","labels":{"a":"b"}}}`, mergeTyp, 409, []string{"modified"}},
		"created with a version":       {"POST", rome, strings.Replace(with(""), `"metadata":{`, `"metadata":{"resourceVersion":"5",`, 1), "", 400, []string{"metadata.resourceVersion"}},
		"watch from the future":        {"GET", rome + "?watch=1&resourceVersion=99999&timeoutSeconds=5", "", "", 410, []string{"99999"}},
		"unknown field selector":       {"GET", rome + "?fieldSelector=spec.colour%3Dred", "", "", 400, []string{"spec.colour"}},
		"cost annotation":              {"PATCH", group + "/clusteradvertisements/berlin-adv", `{"metadata":{"annotations":{"cost.cpu":"cheap"}}}`, mergeTyp, 422, []string{"metadata.annotations[cost.cpu]", `"cheap"`}},
		"advertisement's name":         {"POST", group + "/clusteradvertisements", strings.Replace(advertisementBody("oslo"), "oslo-adv", "oslo", 1), "", 422, []string{"metadata.name", `"oslo-adv"`}},
		"another currency":             {"POST", group + "/clusteradvertisements", strings.Replace(advertisementBody("oslo"), `"region":"eu"`, `"cost":{"currency":"NOK","cpu":"1"}`, 1), "", 422, []string{"spec.cost.currency", "NOK", "EUR"}},
		"foreground finalizer":         {"PATCH", rome + "/held", `{"metadata":{"finalizers":["foregroundDeletion"]}}`, mergeTyp, 422, []string{"metadata.finalizers[0]"}},
		"body over the limit":          {"POST", rome, strings.Repeat(" ", broker.MaxObjectBytes+1), "", 413, []string{"131073", "131072"}},
		"status from a user's hand":    {"PATCH", rome + "/held/status", `{"status":{"conditions":[{"type":"Peered"}]}}`, mergeTyp, 422, []string{"status.conditions"}},
	})
}

func TestAnAgentsBadFactsAreRefused(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.advertise("berlin", 32)
	agent := x.client(server.GroupAgent + "berlin")
	for figures, says := range map[string]string{
		`,"allocatable":{"cpu":"-1"}`:                                        `allocatable.cpu: Invalid value: "-1"`,
		`,"allocatable":{"memory":"7Ei"}`:                                    `allocatable.memory: Invalid value: "7Ei"`,
		`,"largestFree":{"cpu":"many"}`:                                      `largestFree.cpu: Invalid value: "many"`,
		`,"use":[{"namespace":"a","name":"b","used":{"cpu":"1e999999999"}}]`: `use[0].used.cpu: Invalid value: "1e999999999"`,
		`,"use":[{"namespace":"a","name":""}]`:                               `use[0].name`,
	} {
		got := agent.do("POST", group+"/clusteradvertisements/berlin-adv/facts", factsBody("3e1c0a0e-9c4f-4f0b-8a80-0d6f0a7c5a11", 1, 9, figures))
		require.Contains(t, []int{400, 422}, got.code, got.body)
		require.Contains(t, strings.ReplaceAll(got.body, `\"`, `"`), says)
	}
	agent404 := x.client(server.GroupAgent + "oslo")
	agent404.must(http.StatusNotFound, "POST", group+"/clusteradvertisements/oslo-adv/facts", factsBody("3e1c0a0e-9c4f-4f0b-8a80-0d6f0a7c5a11", 0, 0, ""))
}

func TestASecondAgentTakesOverAndTheFirstIsToldSo(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.advertise("berlin", 32)
	agent := x.client(server.GroupAgent + "berlin")
	facts := group + "/clusteradvertisements/berlin-adv/facts"
	agent.must(http.StatusCreated, "POST", facts, factsBody("3e1c0a0e-9c4f-4f0b-8a80-0d6f0a7c5a11", 0, 0, ""))
	old := agent.must(http.StatusCreated, "POST", facts, factsBody("4e1c0a0e-9c4f-4f0b-8a80-0d6f0a7c5a11", 1, 2, ""))
	require.Contains(t, old.body, `"Superseded"`)
	unknown := agent.must(http.StatusCreated, "POST", facts, factsBody("5e1c0a0e-9c4f-4f0b-8a80-0d6f0a7c5a11", 77, 2, ""))
	require.Contains(t, unknown.body, `"UnknownSession"`)
}

func TestUsersCannotWriteWhatTheExchangeOwns(t *testing.T) {
	t.Parallel()
	x := start(t)
	c := x.client(admin...)
	hand := strings.Replace(advertisementBody("oslo"), `"region":"eu"`, `"resources":{"allocatable":{"cpu":"1000"}}`, 1)
	got := c.must(http.StatusCreated, "POST", group+"/clusteradvertisements", hand)
	require.Contains(t, got.header.Get("Warning"), "spec.resources")
	require.NotContains(t, got.body, `"1000"`)
	require.Contains(t, got.body, `"phase":"Stale"`)

	x.advertise("berlin", 32)
	got = c.must(http.StatusOK, "PATCH", group+"/clusteradvertisements/berlin-adv",
		`{"spec":{"resources":{"allocatable":{"cpu":"1000"}},"largestFree":{"cpu":"999"}},"status":{"phase":"Withdrawn"}}`, "Content-Type", mergeTyp)
	require.Contains(t, got.body, `"generation":1`)
	require.Contains(t, got.body, `"cpu":"32"`)
	require.NotContains(t, got.body, "Withdrawn")

	r := c.must(http.StatusCreated, "POST", rome, strings.TrimSuffix(reservationBody("r", "rome", ""), "}")+`,"status":{"phase":"Released","fence":7}}`).reservation(t)
	require.Equal(t, broker.ReservationReserved, r.Status.Phase)
	r = c.must(http.StatusOK, "PATCH", rome+"/r", `{"status":{"phase":"Released","targetClusterID":"x"}}`, "Content-Type", mergeTyp).reservation(t)
	require.Equal(t, "berlin", r.Status.TargetClusterID)
	require.EqualValues(t, 1, r.Generation)
}

func TestAnUnknownRequesterGetsAWarningAndItsAnswer(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.advertise("berlin", 32)
	got := x.client(admin...).must(http.StatusCreated, "POST", rome, reservationBody("r", "atlantis", ""))
	require.Contains(t, got.header.Get("Warning"), "atlantis")
	require.Equal(t, broker.ReservationReserved, got.reservation(t).Status.Phase)
}

func TestDeletionNeedsNoCollectorAndReleasesAtOnce(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.advertise("berlin", 4)
	c := x.client(admin...)
	for _, policy := range []string{"Foreground", "Orphan", "Background"} {
		r := c.must(http.StatusCreated, "POST", rome, reservationBody("r", "rome", "")).reservation(t)
		require.Equal(t, broker.ReservationReserved, r.Status.Phase, policy)
		c.must(http.StatusConflict, "DELETE", group+"/clusteradvertisements/berlin-adv", "")
		c.must(http.StatusConflict, "DELETE", "/api/v1/namespaces/rome", "")
		c.must(http.StatusOK, "DELETE", rome+"/r", `{"propagationPolicy":"`+policy+`"}`)
		c.must(http.StatusNotFound, "GET", rome+"/r", "")
	}
	c.must(http.StatusOK, "DELETE", "/api/v1/namespaces/rome", "")
	c.must(http.StatusOK, "DELETE", group+"/clusteradvertisements/berlin-adv", "")
}

func TestAFinalizerOfAUserIsHonoured(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.advertise("berlin", 4)
	c := x.client(admin...)
	c.must(http.StatusCreated, "POST", rome, reservationBody("r", "rome", ""))
	c.must(http.StatusOK, "PATCH", rome+"/r", `{"metadata":{"finalizers":["example.com/wait"]}}`, "Content-Type", mergeTyp)
	c.must(http.StatusOK, "DELETE", rome+"/r", "")
	require.NotNil(t, c.must(http.StatusOK, "GET", rome+"/r", "").reservation(t).DeletionTimestamp)
	c.must(http.StatusOK, "PATCH", rome+"/r", `{"metadata":{"finalizers":null}}`, "Content-Type", mergeTyp)
	c.must(http.StatusNotFound, "GET", rome+"/r", "")
}
