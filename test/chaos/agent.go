package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// agent reports the facts of one cluster, as the real one talks: it opens a session, counts its
// reports, opens another where it is not known, and falls silent where a newer one speaks.
type agent struct {
	*run
	cluster  string
	rng      *rand.Rand
	session  string
	epoch    int64
	sequence int64
	silent   atomic.Int64 // Unix nanoseconds until which it says nothing: a fault
	shrink   atomic.Bool  // its cluster loses most of what it has: a fault

	capacity, used int64 // thousandths of a core
	consented      bool
}

func newAgent(r *run, cluster string, rng *rand.Rand) *agent {
	return &agent{run: r, cluster: cluster, rng: rng, session: uuid.NewString(), capacity: 16_000, used: 1000}
}

// report until ctx ends.
func (a *agent) report(ctx context.Context) {
	for ctx.Err() == nil {
		a.gate.RLock()
		wait := a.step(ctx)
		a.gate.RUnlock()
		select {
		case <-ctx.Done():
		case <-time.After(wait/2 + rand.N(wait)):
		}
	}
}

// agentPace is the mean time between two reports.
const agentPace = 600 * time.Millisecond

// step says one thing and how long to wait then.
func (a *agent) step(ctx context.Context) time.Duration {
	if ctx.Err() != nil || time.Now().UnixNano() < a.silent.Load() {
		return agentPace
	}
	if a.epoch > 0 {
		a.sequence++
		a.drift()
		if consents(a.cluster) {
			if !a.consented {
				a.consent(ctx)
			}
			a.drive(ctx)
		}
	}
	body := fmt.Appendf(nil, `{"apiVersion":"%s/v1alpha1","kind":"FactsReport","session":%q,"epoch":%d,"sequence":%d,`+
		`"allocatable":{"cpu":"%dm","memory":"%d"},"allocated":{"cpu":"%dm","memory":"0"}}`,
		broker.GroupName, a.session, a.epoch, a.sequence, a.capacity, a.capacity<<22, a.used)
	got := a.client.do(ctx, a.client.reach(a.rng), request{
		method: http.MethodPost, path: advertisementPath(a.cluster) + "/facts", contentType: jsonBody, body: body,
	})
	a.ops.add("report")
	if got.code == http.StatusNotFound {
		a.consented = false
		a.advertise(ctx)
		return agentPace / 4
	}
	var answer broker.FactsReport
	if !got.ok() || json.Unmarshal(got.body, &answer) != nil {
		a.failures.add(fmt.Sprintf("report: %d %s", got.code, got.reason))
		return agentPace
	}
	a.tell(uint64(answer.Status.Revision))
	switch answer.Status.Outcome {
	case broker.FactsAccepted:
		if a.epoch > answer.Status.Epoch {
			a.check(fmt.Errorf("%w: epoch %d of %s was answered with epoch %d", errViolated, a.epoch, a.cluster, answer.Status.Epoch))
		}
		a.epoch = answer.Status.Epoch
	case broker.FactsSuperseded:
		a.ops.add("report superseded")
		a.session, a.epoch, a.sequence = uuid.NewString(), 0, 0
		return 8 * agentPace
	default:
		a.ops.add("report of an unknown session")
		a.session, a.epoch, a.sequence = uuid.NewString(), 0, 0
	}
	return agentPace
}

// drift changes the facts, every other time.
func (a *agent) drift() {
	if a.shrink.Swap(false) {
		a.capacity = 500
		return
	}
	switch a.rng.IntN(20) {
	case 1, 2, 3:
		a.capacity = 12_000 + a.rng.Int64N(12_000)
	case 4, 5, 6, 7, 8:
		a.used = a.rng.Int64N(4_000)
	}
}

func (a *agent) advertise(ctx context.Context) {
	body := fmt.Appendf(nil, `{"apiVersion":"%s/v1alpha1","kind":"ClusterAdvertisement","metadata":{"name":%q},"spec":{"clusterID":%q}}`,
		broker.GroupName, broker.AdvertisementName(a.cluster), a.cluster)
	got := a.client.do(ctx, a.client.reach(a.rng), request{
		method: http.MethodPost, path: apiPath + "/clusteradvertisements", contentType: jsonBody, body: body,
	})
	a.ops.add("advertise")
	if !got.ok() {
		a.failures.add(fmt.Sprintf("advertise: %d %s", got.code, got.reason))
	}
}
