package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/test/chaos/history"
)

const apiPath = "/apis/" + broker.GroupName + "/v1alpha1"

// patience of a client with one request; the exchange itself waits up to 5 s for a leader.
const patience = 7 * time.Second

// shun is how long a client leaves a node alone that did not answer, as a load balancer would.
const shun = 500 * time.Millisecond

// client is a plain HTTP client of all nodes. It tries nothing again by itself.
type client struct {
	http  *http.Client
	nodes []*endpoint
}

type endpoint struct {
	url    string
	deadAt atomic.Int64 // Unix nanoseconds; 0: never
}

func newClient(nodes []*node) *client {
	c := &client{http: &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: 128, DisableCompression: true,
		DialContext: (&net.Dialer{Timeout: time.Second}).DialContext,
	}}}
	for _, n := range nodes {
		c.nodes = append(c.nodes, &endpoint{url: n.via})
	}
	return c
}

// reach is any node, rather one that has answered.
func (c *client) reach(rng *rand.Rand) *endpoint {
	var e *endpoint
	for range 3 * len(c.nodes) {
		e = c.nodes[rng.IntN(len(c.nodes))]
		if time.Now().UnixNano()-e.deadAt.Load() > int64(shun) {
			return e
		}
	}
	return e
}

// request to the exchange.
type request struct {
	method, path string
	query        string
	contentType  string
	body         []byte
}

// answer of the exchange. What is neither certain nor an error of the client is unknown.
type answer struct {
	code   int // 0: none came
	body   []byte
	reason string
	err    error
}

func (a *answer) ok() bool { return a.code >= 200 && a.code < 300 }

// unknown says that what was asked for may have happened or may yet happen.
func (a *answer) unknown() bool {
	return a.code == 0 || a.code >= 500 && a.code != http.StatusServiceUnavailable
}

func (a *answer) String() string {
	if a.err != nil {
		return a.err.Error()
	}
	return fmt.Sprintf("%d: %.300s", a.code, a.body)
}

func (c *client) do(ctx context.Context, e *endpoint, r request) *answer {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	target := e.url + r.path
	if r.query != "" {
		target += "?" + r.query
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, bytes.NewReader(r.body))
	if err != nil {
		return &answer{err: err}
	}
	req.Header.Set("Accept", "application/json")
	if r.body != nil {
		req.Header.Set("Content-Type", r.contentType)
	}
	response, err := c.http.Do(req)
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			e.deadAt.Store(time.Now().UnixNano())
		}
		return &answer{err: err}
	}
	defer response.Body.Close() //nolint:errcheck // only read
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return &answer{err: err}
	}
	a := &answer{code: response.StatusCode, body: body}
	if !a.ok() {
		var status struct {
			Reason string `json:"reason"`
		}
		if json.Unmarshal(body, &status) == nil {
			a.reason = status.Reason
		}
	}
	return a
}

// Paths of objects.

func reservationPath(namespace, name string) string {
	path := apiPath + "/namespaces/" + namespace + "/reservations"
	if name != "" {
		path += "/" + name
	}
	return path
}

func advertisementPath(cluster string) string {
	return apiPath + "/clusteradvertisements/" + broker.AdvertisementName(cluster)
}

func version(rv string) string { return url.Values{"resourceVersion": {rv}}.Encode() }

const (
	jsonBody   = "application/json"
	mergePatch = "application/merge-patch+json"
)

func get(path, query string) request {
	return request{method: http.MethodGet, path: path, query: query}
}

// asks is a reservation to be created.
type asks struct {
	name, op         string
	amounts          history.Amounts
	duration, wait   string
	retentionSeconds int
	split            bool
}

func (a asks) body() []byte {
	body := fmt.Sprintf(`{"apiVersion":"%s/v1alpha1","kind":"Reservation","metadata":{"name":%q,"annotations":{%q:%q}},`+
		`"spec":{"requesterID":"chaos","requestedResources":{"cpu":"%dm","memory":"%d"}`,
		broker.GroupName, a.name, opAnnotation, a.op, a.amounts.CPUMilli, a.amounts.MemoryBytes)
	if a.duration != "" {
		body += fmt.Sprintf(`,"duration":%q`, a.duration)
	}
	if a.wait != "" {
		body += fmt.Sprintf(`,"waitFor":%q`, a.wait)
	}
	if a.retentionSeconds > 0 {
		body += fmt.Sprintf(`,"ttlSecondsAfterFinished":%d`, a.retentionSeconds)
	}
	if a.split {
		body += `,"split":{"maxPieces":4,"minPiece":{"cpu":"250m"}}`
	}
	return []byte(body + "}}")
}
