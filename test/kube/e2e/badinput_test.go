package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

const (
	mergePatch  = "application/merge-patch+json"
	yamlContent = "application/yaml"
	jsonContent = "application/json"

	romeReservations = "/apis/broker.fluidos.eu/v1alpha1/namespaces/rome/reservations"
	advertisements   = "/apis/broker.fluidos.eu/v1alpha1/clusteradvertisements"
)

// badInput is one request that must be refused with a 4xx that says all of words, and change nothing.
type badInput struct {
	name                            string
	role                            string // who sends it; empty: admin
	method, path, contentType, body string
	code                            int // the only right one; 0: any 4xx
	words                           []string
}

// badManifests are refused however they are created: by HTTP and by kubectl apply in both ways.
var badManifests = []struct {
	name, manifest string
	words          []string
}{
	{"an unknown field", manifest("bad", "rome", `{cpu: "1"}`, "requestedResource: {cpu: 1}"), []string{"spec.requestedResource"}},
	{"a cpu in words", manifest("bad", "rome", `{cpu: four}`), []string{"requestedResources", "four"}},
	{"a negative cpu", manifest("bad", "rome", `{cpu: "-1"}`), []string{"spec.requestedResources", "cpu", "-1"}},
	{"no cpu at all", manifest("bad", "rome", `{cpu: "0"}`), []string{"spec.requestedResources", "cpu", "0"}},
	{"an unknown unit", manifest("bad", "rome", `{memory: 8Q}`), []string{"requestedResources", "8Q"}},
	{"no resources", manifest("bad", "rome", `{}`), []string{"spec.requestedResources"}},
	{"an empty requester", manifest("bad", "", `{cpu: "1"}`), []string{"spec.requesterID"}},
	{"a requester that is no DNS label", manifest("bad", "Rome_1", `{cpu: "1"}`), []string{"spec.requesterID", "Rome_1"}},
	{"a duration in words", manifest("bad", "rome", `{cpu: "1"}`, `duration: "2 hours"`), []string{"spec.duration", "2 hours"}},
	{"a negative duration", manifest("bad", "rome", `{cpu: "1"}`, `duration: "-2h"`), []string{"spec.duration", "-2h"}},
	{"a duration over a year", manifest("bad", "rome", `{cpu: "1"}`, `duration: "8761h"`), []string{"spec.duration", "8761h"}},
	{"a bad waitFor", manifest("bad", "rome", `{cpu: "1"}`, `waitFor: "soon"`), []string{"spec.waitFor", "soon"}},
	{"a priority too high", manifest("bad", "rome", `{cpu: "1"}`, "priority: 1001"), []string{"spec.priority", "1001"}},
	{"a priority too low", manifest("bad", "rome", `{cpu: "1"}`, "priority: -1001"), []string{"spec.priority", "-1001"}},
	{"a price limit in words", manifest("bad", "rome", `{cpu: "1"}`, "maxCostPerHour: cheap"), []string{"spec.maxCostPerHour", "cheap"}},
	{"a selector that selects nothing known", manifest("bad", "rome", `{cpu: "1"}`, "clusterSelector: {matchExpressions: [{key: a, operator: Near}]}"), []string{"spec.clusterSelector", "Near"}},
	{"a name too long", manifest(strings.Repeat("x", 254), "rome", `{cpu: "1"}`), []string{"metadata.name", "xxx"}},
	{
		"an advertisement named otherwise", "apiVersion: broker.fluidos.eu/v1alpha1\nkind: ClusterAdvertisement\nmetadata: {name: wrong}\nspec: {clusterID: tokyo}\n",
		[]string{"wrong", "tokyo-adv"},
	},
	{
		"a cost in words", "apiVersion: broker.fluidos.eu/v1alpha1\nkind: ClusterAdvertisement\nmetadata: {name: tokyo-adv}\nspec: {clusterID: tokyo, cost: {cpu: cheap}}\n",
		[]string{"spec.cost", "cpu", "cheap"},
	},
	{
		"another currency", "apiVersion: broker.fluidos.eu/v1alpha1\nkind: ClusterAdvertisement\nmetadata: {name: tokyo-adv}\nspec: {clusterID: tokyo, cost: {cpu: \"1\", currency: YEN}}\n",
		[]string{"currency"},
	},
}

// badRequests are refused on their way in, whatever tool sends them. ml-training is Reserved.
func badRequests() []badInput {
	reserved := romeReservations + "/ml-training"
	report := func(figures string) string {
		return `{"apiVersion":"broker.fluidos.eu/v1alpha1","kind":"FactsReport","session":"6f1d0d3c-6f0a-4a3c-9d55-0c9f1f0b7a11",` + figures + `}`
	}
	return []badInput{
		{name: "a changed size of a Reserved one", method: http.MethodPatch, path: reserved, contentType: mergePatch, body: `{"spec":{"requestedResources":{"cpu":"5"}}}`, code: 422, words: []string{"spec", "requestedResources", "Reserved"}},
		{name: "a shorter duration of a Reserved one", method: http.MethodPatch, path: reserved, contentType: mergePatch, body: `{"spec":{"duration":"1h"}}`, code: 422, words: []string{"spec.duration", "1h"}},
		{name: "a malformed cost annotation", method: http.MethodPatch, path: advertisements + "/paris-adv", contentType: mergePatch, body: `{"metadata":{"annotations":{"cost.cpu":"cheap"}}}`, code: 422, words: []string{"cost.cpu", "cheap"}},
		{name: "a negative cost annotation", method: http.MethodPatch, path: advertisements + "/paris-adv", contentType: mergePatch, body: `{"metadata":{"annotations":{"cost.memory":"-0.5"}}}`, code: 422, words: []string{"cost.memory", "-0.5"}},
		{name: "a stale resourceVersion", method: http.MethodPatch, path: reserved, contentType: mergePatch, body: `{"metadata":{"resourceVersion":"1","labels":{"a":"b"}}}`, code: 409, words: []string{"ml-training", "modified"}},
		{name: "a body over the limit", method: http.MethodPost, path: romeReservations, contentType: jsonContent, body: `{"metadata":{"annotations":{"a":"` + strings.Repeat("x", 5<<20) + `"}}}`, code: 413},
		{name: "a watch from the future", method: http.MethodGet, path: romeReservations + "?watch=true&timeoutSeconds=10&resourceVersion=999999999999", words: []string{"999999999999"}},
		{name: "a watch from nowhere", method: http.MethodGet, path: romeReservations + "?watch=true&timeoutSeconds=10&resourceVersion=new", words: []string{"new"}},
		{name: "a body that is no JSON", method: http.MethodPost, path: romeReservations, contentType: jsonContent, body: `{"spec":`, code: 400},
		{name: "negative facts", role: "agent:paris", method: http.MethodPost, path: advertisements + "/paris-adv/facts", contentType: jsonContent, body: report(`"allocatable":{"cpu":"-1"}`), words: []string{"allocatable", "cpu", "-1"}},
		{name: "absurd facts", role: "agent:paris", method: http.MethodPost, path: advertisements + "/paris-adv/facts", contentType: jsonContent, body: report(`"allocatable":{"memory":"9e18"}`), words: []string{"allocatable", "memory"}},
		{name: "facts from no session", role: "agent:paris", method: http.MethodPost, path: advertisements + "/paris-adv/facts", contentType: jsonContent, body: strings.Replace(report(`"allocatable":{"cpu":"1"}`), "6f1d0d3c-6f0a-4a3c-9d55-0c9f1f0b7a11", "nobody", 1), words: []string{"session", "nobody"}},
	}
}

func testBadInput(t *testing.T, w *world) {
	ctx := subtestContext(t)
	for _, bad := range badManifests {
		path := romeReservations
		if strings.Contains(bad.manifest, "kind: ClusterAdvertisement") {
			path = advertisements
		}
		w.refused(t, ctx, badInput{
			name: bad.name, method: http.MethodPost, path: path + "?fieldValidation=Strict", contentType: yamlContent, body: bad.manifest, words: bad.words,
		})
		for _, way := range [][]string{{"apply"}, {"apply", "--server-side"}} {
			t.Run(bad.name+", by kubectl "+strings.Join(way, " "), func(t *testing.T) {
				admin := w.as(t, ctx, "admin", 1)
				admin.namespace = "rome"
				before := w.revision(t, ctx)
				s := admin.try(t, ctx, bad.manifest, append(way, "-f", "-")...)
				if s.code == 0 {
					t.Errorf("it was accepted: %s", s)
				}
				contains(t, "the error", s.errOut, bad.words...)
				w.unchanged(t, ctx, before)
			})
		}
	}
	for _, bad := range badRequests() {
		w.refused(t, ctx, bad)
	}
	t.Run("an unknown requester is warned", func(t *testing.T) {
		admin := w.as(t, ctx, "admin", 1)
		s := admin.try(t, ctx, manifest("unknown-requester", "atlantis", `{cpu: 10m}`), "apply", "-f", "-")
		if s.code != 0 || !strings.Contains(s.errOut, "Warning") || !strings.Contains(s.errOut, "atlantis") {
			t.Errorf("want success and a warning that names atlantis: %s", s)
		}
		admin.run(t, ctx, "delete", "rsv", "unknown-requester")
	})
	t.Run("resource facts by hand are dropped with a warning", func(t *testing.T) {
		admin := w.as(t, ctx, "admin", 1)
		s := admin.try(t, ctx, "apiVersion: broker.fluidos.eu/v1alpha1\nkind: ClusterAdvertisement\nmetadata: {name: tokyo-adv}\n"+
			"spec: {clusterID: tokyo, resources: {allocatable: {cpu: 100, memory: 100Gi}}}\n", "apply", "-f", "-")
		if s.code != 0 || !strings.Contains(s.errOut, "Warning") || !strings.Contains(s.errOut, "resources") {
			t.Errorf("want success and a warning that names resources: %s", s)
		}
		adv, err := getAdvertisement(ctx, w.at(2), "tokyo")
		must(t, err)
		if adv.Status.Phase != "Stale" || len(adv.Spec.Resources.Allocatable) != 0 {
			t.Errorf("tokyo is %s with allocatable %v, want Stale with none", adv.Status.Phase, adv.Spec.Resources.Allocatable)
		}
		admin.run(t, ctx, "delete", "cadv", "tokyo-adv")
	})
}

// refused sends one bad request and checks the answer and that nothing changed.
func (w *world) refused(t *testing.T, ctx context.Context, bad badInput) {
	t.Run(bad.name, func(t *testing.T) {
		n := w.exchange.nodes[0]
		web := n.web
		if bad.role != "" {
			web = w.web(t, ctx, bad.role, n)
		}
		before := w.revision(t, ctx)
		a, err := n.call(ctx, web, bad.method, bad.path, bad.contentType, bad.body)
		must(t, err)
		if a.code < 400 || a.code > 499 || bad.code != 0 && a.code != bad.code {
			t.Errorf("answer %d, want %s: %.300s", a.code, map[bool]string{true: "a 4xx", false: fmt.Sprint(bad.code)}[bad.code == 0], a.body)
		}
		var status struct{ Message string }
		if err := json.Unmarshal(a.body, &status); err != nil && bad.code != http.StatusRequestEntityTooLarge {
			t.Errorf("the answer is no Status: %.300s", a.body)
		}
		contains(t, "the message", status.Message, bad.words...)
		w.unchanged(t, ctx, before)
	})
}

// revision counts every row that the exchange ever wrote: where it stays, nothing changed.
func (w *world) revision(t *testing.T, ctx context.Context) uint64 {
	t.Helper()
	leader, err := w.exchange.leader(ctx)
	must(t, err)
	body, err := leader.get(ctx, "/admin/v1/state-hash")
	must(t, err)
	var state struct{ Revision uint64 }
	must(t, json.Unmarshal(body, &state))
	if state.Revision == 0 {
		t.Fatalf("no revision: %s", body)
	}
	return state.Revision
}

func (w *world) unchanged(t *testing.T, ctx context.Context, before uint64) {
	t.Helper()
	if after := w.revision(t, ctx); after != before {
		t.Errorf("the state changed: revision %d, before %d", after, before)
	}
}

// web is an HTTP client with a role's certificate.
func (w *world) web(t *testing.T, ctx context.Context, role string, n *node) *http.Client {
	t.Helper()
	path, err := w.exchange.kubeconfig(ctx, n, role)
	must(t, err)
	client, err := webClient(path)
	must(t, err)
	return client
}

func query(path string, pairs ...string) string {
	values := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		values.Set(pairs[i], pairs[i+1])
	}
	return path + "?" + values.Encode()
}
