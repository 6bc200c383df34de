package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/bourse-dev/bourse/server"
)

func TestRolesMayDoTheirOwnAndNothingElse(t *testing.T) {
	t.Parallel()
	x := start(t)
	for _, id := range []string{"rome", "berlin", "paris"} {
		x.advertise(id, 16)
	}
	c := x.client(admin...)
	c.must(http.StatusCreated, "POST", rome, reservationBody("held", "rome", `"targetClusterID":"berlin"`))
	c.must(http.StatusCreated, "POST", rome, reservationBody("foreign", "paris", `"targetClusterID":"berlin"`))
	const (
		requester = server.GroupRequester + "rome"
		provider  = server.GroupProvider + "berlin"
		agent     = server.GroupAgent + "rome"
		lender    = server.GroupAgent + "berlin"
		other     = server.GroupAgent + "paris"
		viewer    = server.GroupViewer

		all     = group + "/reservations"
		cadv    = group + "/clusteradvertisements"
		label   = `{"metadata":{"labels":{"a":"b"}}}`
		peered  = `{"status":{"conditions":[{"type":"Peered","status":"True","reason":"Done","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
		facts   = `{"apiVersion":"broker.fluidos.eu/v1alpha1","kind":"FactsReport","session":"3e1c0a0e-9c4f-4f0b-8a80-0d6f0a7c5a11","epoch":99}`
		reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	)
	cases := []struct {
		says, role, method, path, body string
		code                           int
	}{
		{"nobody reads nothing", "", "GET", all, "", 401},
		{"nobody is alive", "", "GET", "/livez", "", 200},
		{"a stranger reads discovery", "example:nobody", "GET", "/apis", "", 200},
		{"a stranger reads no reservations", "example:nobody", "GET", all, "", 403},
		{"system:masters means nothing here", "system:masters", "GET", all, "", 403},
		{"a viewer reads all", viewer, "GET", all, "", 200},
		{"a viewer writes nothing", viewer, "PATCH", rome + "/held", label, 403},
		{"a viewer reads metrics", viewer, "GET", "/metrics", "", 200},
		{"a viewer takes no snapshot", viewer, "GET", "/admin/v1/snapshot", "", 403},
		{"a viewer removes no peer", viewer, "DELETE", "/admin/v1/raft/peers/n2", "", 403},
		{"a viewer reads the group", viewer, "GET", "/admin/v1/raft/configuration", "", 200},

		{"a requester creates its own", requester, "POST", rome, reservationBody("mine", "rome", ""), 201},
		{"a requester asks in no other name", requester, "POST", rome, reservationBody("theirs", "paris", ""), 403},
		{"nor by server-side apply", requester, "APPLY", rome + "/theirs", reservationBody("theirs", "paris", ""), 403},
		{"nor dry", requester, "POST", rome + "?dryRun=All", reservationBody("theirs", "paris", ""), 403},
		{"a requester creates in no other namespace", requester, "POST", group + "/namespaces/paris/reservations", reservationBody("mine", "rome", ""), 403},
		{"a requester edits no other's", requester, "PATCH", rome + "/foreign", label, 403},
		{"a requester deletes no other's", requester, "DELETE", rome + "/foreign", "", 403},
		{"a requester edits its own", requester, "PATCH", rome + "/held", label, 200},
		{"a requester hands its own to no other", requester, "PATCH", rome + "/mine", `{"spec":{"requesterID":"paris"}}`, 422},
		{"a requester lists its namespace", requester, "GET", rome, "", 200},
		{"a requester explains", requester, "GET", rome + "/held/explain", "", 200},
		{"a requester lists everywhere only its own", requester, "GET", all + "?fieldSelector=spec.requesterID%3Drome", "", 200},
		{"a requester lists everywhere nothing else", requester, "GET", all, "", 403},
		{"nor another's", requester, "GET", all + "?fieldSelector=spec.requesterID%3Dparis", "", 403},
		{"nor all but another's", requester, "GET", all + "?fieldSelector=spec.requesterID%21%3Dparis", "", 403},
		{"a requester writes no status", requester, "PATCH", rome + "/held/status", peered, 403},
		{"a requester clears no namespace", requester, "DELETE", rome, "", 403},
		{"a requester reads no advertisements", requester, "GET", cadv, "", 403},
		{"a requester sees its namespace", requester, "GET", "/api/v1/namespaces/rome", "", 200},
		{"a requester sees no other namespace", requester, "GET", "/api/v1/namespaces/paris", "", 403},
		{"a requester reads its events", requester, "GET", "/api/v1/namespaces/rome/events", "", 200},
		{"a requester reads no other events", requester, "GET", "/api/v1/events", "", 403},

		{"a provider sets its prices", provider, "PATCH", cadv + "/berlin-adv", `{"spec":{"cost":{"cpu":"1"}},"metadata":{"labels":{"a":"b"}}}`, 200},
		{"a provider cordons", provider, "PATCH", cadv + "/berlin-adv", `{"spec":{"lending":{"cordoned":true}}}`, 200},
		{"a provider moves no endpoint", provider, "PATCH", cadv + "/berlin-adv", `{"spec":{"endpoint":"https://evil.example.org"}}`, 403},
		{"a provider sets no other's prices", provider, "PATCH", cadv + "/paris-adv", `{"spec":{"cost":{"cpu":"1"}}}`, 403},
		{"a provider deletes nothing", provider, "DELETE", cadv + "/berlin-adv", "", 403},
		{"a provider lists its own", provider, "GET", cadv + "?fieldSelector=spec.clusterID%3Dberlin", "", 200},
		{"a provider lists no other's", provider, "GET", cadv, "", 403},
		{"a provider reports no facts", provider, "POST", cadv + "/berlin-adv/facts", facts, 403},

		{"an agent reports its facts", agent, "POST", cadv + "/rome-adv/facts", facts, 201},
		{"an agent reports no other's facts", agent, "POST", cadv + "/berlin-adv/facts", facts, 403},
		{"an agent advertises no other", agent, "POST", cadv, advertisementBody("oslo"), 403},
		{"an agent reads its advertisement", agent, "GET", cadv + "/rome-adv", "", 200},
		{"an agent reads no other's", agent, "GET", cadv + "/berlin-adv", "", 403},
		{"an agent sets no prices", agent, "PATCH", cadv + "/rome-adv", `{"spec":{"cost":{"cpu":"9"}}}`, 403},
		{"an agent lists what it asked for", agent, "GET", all + "?fieldSelector=spec.requesterID%3Drome", "", 200},
		{"an agent lists what it provides", lender, "GET", all + "?fieldSelector=status.targetClusterID%3Dberlin", "", 200},
		{"an agent lists nothing else", agent, "GET", all, "", 403},
		{"nor for another", agent, "GET", all + "?fieldSelector=spec.requesterID%3Dparis", "", 403},
		{"an agent reads its own by name", agent, "GET", rome + "/held", "", 200},
		{"the provider's agent too", lender, "GET", rome + "/held", "", 200},
		{"a third agent does not", other, "GET", rome + "/held", "", 403},
		{"nor its status", other, "GET", rome + "/held/status", "", 403},
		{"an agent sets its condition", agent, "PATCH", rome + "/held/status", peered, 200},
		{"the provider's agent too ", lender, "PATCH", rome + "/held/status", peered, 200},
		{"a third agent does not ", other, "PATCH", rome + "/held/status", peered, 403},
		{"an agent creates no reservations", agent, "POST", rome, reservationBody("a", "rome", ""), 403},
		{"an agent edits no spec", agent, "PATCH", rome + "/held", label, 403},
		{"an agent reads no explanation", agent, "GET", rome + "/held/explain", "", 403},
		{"everyone asks about oneself", agent, "POST", reviews, `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"get","group":"broker.fluidos.eu","resource":"reservations"}}}`, 201},
	}
	clients := map[string]client{"": x.client()}
	for _, k := range cases {
		who, ok := clients[k.role]
		if !ok {
			who = x.client(k.role)
			clients[k.role] = who
		}
		method, path, contentType := k.method, k.path, "application/json"
		switch method {
		case "PATCH":
			contentType = mergeTyp
		case "APPLY":
			method, path, contentType = "PATCH", path+applied, applyTyp
		}
		got := who.do(method, path, k.body, "Content-Type", contentType)
		require.Equal(t, k.code, got.code, "%s: %s %s: %s", k.says, method, path, got.body)
	}
}

func TestAgentsNeverSeeTheDecision(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.advertise("berlin", 16)
	c := x.client(admin...)
	c.must(http.StatusCreated, "POST", rome, reservationBody("held", "rome", ""))
	require.Contains(t, c.must(http.StatusOK, "GET", rome+"/held", "").body, `"decision"`)
	agent := x.client(server.GroupAgent + "rome")
	own := group + "/reservations?fieldSelector=spec.requesterID%3Drome"
	for _, path := range []string{rome + "/held", rome + "/held/status", own, own + "&watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1"} {
		got := agent.must(http.StatusOK, "GET", path, "")
		require.Contains(t, got.body, "berlin", path)
		require.NotContains(t, got.body, `"decision"`, path)
	}
	patched := agent.must(http.StatusOK, "PATCH", rome+"/held/status",
		`{"status":{"conditions":[{"type":"Peered","status":"True","reason":"Done","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}],"phase":"Released"}}`,
		"Content-Type", mergeTyp)
	require.NotContains(t, patched.body, `"decision"`)
	for _, patch := range []string{
		`[{"op":"test","path":"/status/decision/candidates/0/clusterID","value":"berlin"}]`,
		`[{"op":"copy","from":"/status/decision/candidates/0/clusterID","path":"/status/conditions/0/message"}]`,
	} {
		agent.must(http.StatusUnprocessableEntity, "PATCH", rome+"/held/status", patch, "Content-Type", "application/json-patch+json")
	}
	r := c.must(http.StatusOK, "GET", rome+"/held", "").reservation(t)
	require.NotNil(t, r.Status.Decision, "the agent's write lost what it can't see")
	require.EqualValues(t, "Reserved", r.Status.Phase)
	types := []string{}
	for _, condition := range r.Status.Conditions {
		types = append(types, condition.Type)
	}
	require.ElementsMatch(t, []string{"Ready", "Stalled", "Peered"}, types)
}

func TestARequesterThatIsAnAgentTooSeesNoFiguresOfRivals(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.advertise("berlin", 16)
	alone, both := x.client(server.GroupRequester+"rome"), x.client(server.GroupRequester+"rome", server.GroupAgent+"rome")
	const lacks, decision = "lacks cpu", `"decision"`
	asked := []struct{ says, path, name, body string }{
		{"a batch", romeBatches, "batch", batchBody("batch", "a=64", "")},
		{"an atomic one", romeBatches, "atomic", batchBody("atomic", "a=64 b=1", `"atomic":true`)},
		{"a reservation", rome, "refused", strings.Replace(reservationBody("refused", "rome", ""), `"cpu":"4"`, `"cpu":"64"`, 1)},
		{"a granted one", rome, "granted", reservationBody("granted", "rome", "")},
	}
	for _, k := range asked {
		seen := map[string]client{"requester": alone, "both": both}
		for _, way := range []struct{ method, path, contentType string }{
			{"POST", k.path + "?" + dryRun, "application/json"},
			{"PATCH", k.path + "/" + k.name + applied + "&" + dryRun, applyTyp},
		} {
			for who, c := range seen {
				got := c.must(http.StatusCreated, way.method, way.path, k.body, "Content-Type", way.contentType)
				figures := strings.Contains(got.body, lacks) || strings.Contains(got.body, decision)
				require.Equal(t, who == "requester", figures, "%s, dry, as %s: %s", k.says, who, got.body)
			}
		}
		made := both.must(http.StatusCreated, "POST", k.path, k.body)
		got := both.must(http.StatusOK, "GET", k.path+"/"+k.name, "")
		list := both.must(http.StatusOK, "GET", k.path, "")
		labelled := both.must(http.StatusOK, "PATCH", k.path+"/"+k.name, `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", mergeTyp)
		for _, answer := range []answer{made, got, list, labelled} {
			require.NotContains(t, answer.body, lacks, k.says)
			require.NotContains(t, answer.body, decision, k.says)
		}
	}
	require.Contains(t, alone.must(http.StatusOK, "GET", romeBatches+"/batch", "").body, "0/1: berlin "+lacks)
	reduced := both.must(http.StatusOK, "GET", romeBatches+"/batch", "").batch(t)
	require.Equal(t, "0/1", reduced.Status.Message, "the figures go, the counts stay")
	alone.must(http.StatusOK, "GET", rome+"/granted/explain", "")
	both.must(http.StatusForbidden, "GET", rome+"/granted/explain", "")
	x.client(server.GroupViewer, server.GroupAgent+"rome").must(http.StatusForbidden, "GET", rome+"/granted/explain", "")
}

func TestOneAsksWhoOneIsAndWhatOneMay(t *testing.T) {
	t.Parallel()
	x := start(t)
	c := x.client(server.GroupRequester + "rome")
	who := c.must(http.StatusCreated, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
	require.Contains(t, who.body, server.GroupRequester+"rome")
	rules := c.must(http.StatusCreated, "POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
		`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview","spec":{"namespace":"rome"}}`)
	require.Contains(t, rules.body, `"reservations/explain"`)
	elsewhere := c.must(http.StatusCreated, "POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
		`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview","spec":{"namespace":"paris"}}`)
	require.NotContains(t, elsewhere.body, `"reservations/explain"`)
}

func TestNamespacesOfTheCertificateReplaceTheDefault(t *testing.T) {
	t.Parallel()
	x := start(t)
	c := x.client(server.GroupRequester+"rome", server.GroupNamespace+"kidp-system")
	c.must(http.StatusCreated, "POST", group+"/namespaces/kidp-system/reservations", reservationBody("r", "rome", ""))
	c.must(http.StatusForbidden, "POST", rome, reservationBody("r", "rome", ""))
}

func TestACertificateOfAnotherAuthorityIsNobodys(t *testing.T) {
	t.Parallel()
	x := start(t)
	good, stranger := x.client(admin...), x.as()
	good.must(http.StatusOK, "GET", rome, "")
	stranger.CertData, stranger.KeyData = newAuthority(t).issue(t, "user", admin...)
	transport, err := rest.TransportFor(stranger)
	require.NoError(t, err)
	client{t, &http.Client{Transport: transport, Timeout: patience}, good.base}.must(http.StatusUnauthorized, "GET", rome, "")
	good.must(http.StatusOK, "GET", rome, "") // from memory this time
}
