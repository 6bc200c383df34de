package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

func webClient(kubeconfig string) (*http.Client, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	return rest.HTTPClientFor(config)
}

// testRoles checks what each role may and may not do. ml-training of rome is Reserved on berlin.
func testRoles(t *testing.T, w *world) {
	ctx := subtestContext(t)
	const facts = `{"apiVersion":"broker.fluidos.eu/v1alpha1","kind":"FactsReport","session":"6f1d0d3c-6f0a-4a3c-9d55-0c9f1f0b7a11","allocatable":{"cpu":"1"}}`
	all := "/apis/broker.fluidos.eu/v1alpha1/reservations"
	for _, c := range []struct {
		name, role, method, path, contentType, body string
		code                                        int
		words                                       []string
	}{
		{"a requester asks in another's name", "requester:rome", "POST", romeReservations, yamlContent, manifest("stolen", "paris", `{cpu: "1"}`), 403, []string{"paris"}},
		{"a requester asks in another's namespace", "requester:rome", "POST", strings.Replace(romeReservations, "/rome/", "/paris/", 1), yamlContent, manifest("stolen", "rome", `{cpu: "1"}`), 403, nil},
		{"a requester changes prices", "requester:rome", "PATCH", advertisements + "/paris-adv", mergePatch, `{"metadata":{"annotations":{"cost.cpu":"0.01"}}}`, 403, nil},
		{"a requester reads its own", "requester:rome", "GET", romeReservations, "", "", 200, []string{"ml-training"}},
		{"a requester lists everybody's", "requester:rome", "GET", all, "", "", 403, nil},
		{"an agent writes another's facts", "agent:rome", "POST", advertisements + "/paris-adv/facts", jsonContent, facts, 403, []string{"paris-adv"}},
		{"an agent lists all reservations", "agent:rome", "GET", all, "", "", 403, nil},
		{"an agent lists another's reservations", "agent:paris", "GET", query(all, "fieldSelector", "spec.requesterID=rome"), "", "", 403, nil},
		{"an agent lists its own requests", "agent:rome", "GET", query(all, "fieldSelector", "spec.requesterID=rome"), "", "", 200, []string{"ml-training"}},
		{"an agent lists what it lends", "agent:berlin", "GET", query(all, "fieldSelector", "status.targetClusterID=berlin"), "", "", 200, []string{"ml-training"}},
		{"an agent reads what it has no part in", "agent:paris", "GET", romeReservations + "/ml-training", "", "", 403, nil},
		{"an agent creates a reservation", "agent:rome", "POST", romeReservations, yamlContent, manifest("stolen", "rome", `{cpu: "1"}`), 403, nil},
		{"an agent deletes a reservation", "agent:berlin", "DELETE", romeReservations + "/ml-training", "", "", 403, nil},
		{"a viewer reads", "viewer", "GET", all, "", "", 200, []string{"ml-training"}},
		{"a viewer creates", "viewer", "POST", romeReservations, yamlContent, manifest("stolen", "rome", `{cpu: "1"}`), 403, nil},
		{"a viewer changes", "viewer", "PATCH", romeReservations + "/ml-training", mergePatch, `{"metadata":{"labels":{"a":"b"}}}`, 403, nil},
		{"a viewer deletes", "viewer", "DELETE", romeReservations + "/ml-training", "", "", 403, nil},
		{"a viewer hands leadership over", "viewer", "POST", "/admin/v1/raft/transfer-leader", jsonContent, `{}`, 403, nil},
		{"a provider changes another's offer", "provider:paris", "PATCH", advertisements + "/berlin-adv", mergePatch, `{"spec":{"lending":{"cordoned":true}}}`, 403, []string{"berlin-adv"}},
		{"a provider creates a reservation", "provider:paris", "POST", romeReservations, yamlContent, manifest("stolen", "paris", `{cpu: "1"}`), 403, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := w.exchange.nodes[1]
			before := w.revision(t, ctx)
			a, err := n.call(ctx, w.web(t, ctx, c.role, n), c.method, c.path, c.contentType, c.body)
			must(t, err)
			if a.code != c.code {
				t.Errorf("answer %d, want %d: %.300s", a.code, c.code, a.body)
			}
			contains(t, "the answer", string(a.body), c.words...)
			w.unchanged(t, ctx, before)
		})
	}
	t.Run("agents do not see rivals' prices", func(t *testing.T) { w.checkNoDecision(t, ctx) })
	t.Run("a provider may price its own offer", func(t *testing.T) {
		n := w.exchange.nodes[2]
		a, err := n.call(ctx, w.web(t, ctx, "provider:berlin", n), "PATCH", advertisements+"/berlin-adv", mergePatch, `{"spec":{"cost":{"memory":"0.10"}}}`)
		must(t, err)
		if a.code != http.StatusOK {
			t.Errorf("answer %d: %.300s", a.code, a.body)
		}
	})
	t.Run("without a certificate nothing is served", func(t *testing.T) {
		config, err := restConfig(value(w.exchange.kubeconfig(ctx, w.exchange.nodes[0], "viewer"))(t))
		must(t, err)
		stranger, err := rest.HTTPClientFor(rest.AnonymousClientConfig(config))
		must(t, err)
		a, err := w.exchange.nodes[0].call(ctx, stranger, "GET", all, "", "")
		must(t, err)
		if a.code != http.StatusUnauthorized && a.code != http.StatusForbidden {
			t.Errorf("answer %d, want 401 or 403: %.300s", a.code, a.body)
		}
	})
	t.Run("a user's certificate does not open the port between nodes", func(t *testing.T) { w.checkRaftPort(t, ctx) })
}

// checkNoDecision reads what an agent may see and looks for what it may not.
func (w *world) checkNoDecision(t *testing.T, ctx context.Context) {
	n := w.exchange.nodes[1]
	path := query("/apis/broker.fluidos.eu/v1alpha1/reservations", "fieldSelector", "spec.requesterID=rome")
	a, err := n.call(ctx, w.web(t, ctx, "agent:rome", n), "GET", path, "", "")
	must(t, err)
	var list struct{ Items []reservation }
	must(t, json.Unmarshal(a.body, &list))
	if !slices.ContainsFunc(list.Items, func(r reservation) bool { return r.Name == "ml-training" && r.Status.Phase == "Reserved" }) {
		t.Errorf("ml-training is not in what rome's agent sees: %.300s", a.body)
	}
	for _, r := range list.Items {
		if r.Status.Decision != nil {
			t.Errorf("rome's agent sees the decision on %s", r.Name)
		}
	}
}

// checkRaftPort opens the Raft port with a node's certificate and with an agent's; only the first may stay open.
func (w *world) checkRaftPort(t *testing.T, ctx context.Context) {
	n := w.exchange.nodes[0]
	ca, err := os.ReadFile(w.exchange.pki("ca.crt"))
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	agent, err := restConfig(value(w.exchange.kubeconfig(ctx, n, "agent:rome"))(t))
	must(t, err)
	own, err := tls.LoadX509KeyPair(w.exchange.pki("n2.crt"), w.exchange.pki("n2.key"))
	must(t, err)
	stranger, err := tls.X509KeyPair(agent.CertData, agent.KeyData)
	must(t, err)
	for _, c := range []struct {
		name        string
		certificate tls.Certificate
		open        bool
	}{{"n2", own, true}, {"agent:rome", stranger, false}} {
		config := &tls.Config{RootCAs: roots, ServerName: n.id, Certificates: []tls.Certificate{c.certificate}, MinVersion: tls.VersionTLS13}
		if open, seen := staysOpen(ctx, n.raft, config); open != c.open {
			t.Errorf("with the certificate of %s the Raft port stays open: %t (%v), want %t", c.name, open, seen, c.open)
		}
	}
}

// staysOpen connects and reads: a server that refuses the certificate says so or closes, another waits for words.
func staysOpen(ctx context.Context, address string, config *tls.Config) (bool, error) {
	connection, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if err != nil {
		return false, err
	}
	defer connection.Close()
	if err := connection.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return false, err
	}
	_, err = connection.Read(make([]byte, 1))
	if os.IsTimeout(err) {
		return true, nil
	}
	return false, fmt.Errorf("closed: %w", err)
}
