package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// driver drives the slices of this cluster through their life: one goroutine that looks at what changed, has judge say
// what to do, does it, and tells the exchange. All of it is done again from what is seen, so it may end at any time.
type driver struct {
	config   *Config
	book     *sliceBook
	member   kubernetes.Interface
	exchange *exchange
	toMember *reach
	toBroker *reach
	speaks   *atomic.Bool // an agent that was replaced by a newer one does nothing
	clock    clock.Clock
	logger   hclog.Logger
	metrics  *metrics

	known        map[string]*memory
	due          map[string]time.Time
	nextAct      time.Time
	memberPace   backoff // of the member cluster's API server
	exchangePace backoff
	dark         bool // the member cluster is out of reach: nothing can be judged
}

// memory is what the driver remembers of one slice.
type memory struct {
	progress   progress
	uid        types.UID // of the Deployment, and its generation, as the last write left it
	generation int64
	fault      fault
	pace       backoff
	slot       time.Time // when the next act may be done; zero: none is waiting

	told     broker.SliceStatus // over which version of the slice, and when
	toldOver string
	toldAt   time.Time
	differs  time.Time // since when the exchange has another status
	tellPace backoff

	state broker.SliceState // as the metrics show it
	ready int32
}

func newDriver(config *Config, book *sliceBook, member kubernetes.Interface, exchange *exchange, speaks *atomic.Bool, metrics *metrics) *driver {
	return &driver{
		config: config, book: book, member: member, exchange: exchange, speaks: speaks, metrics: metrics,
		clock: config.Clock, logger: config.Logger,
		known: map[string]*memory{}, due: map[string]time.Time{},
		memberPace: backoff{jitter: rand.Float64}, exchangePace: backoff{jitter: rand.Float64},
	}
}

// run drives until ctx ends.
func (d *driver) run(ctx context.Context) {
	for ctx.Err() == nil {
		wake := d.pass(ctx)
		timer := d.clock.NewTimer(max(0, wake.Sub(d.clock.Now())))
		select {
		case <-ctx.Done():
		case <-d.book.changed:
		case <-timer.C():
		}
		timer.Stop()
	}
}

// pass looks at every slice that is due and returns when the next one is.
func (d *driver) pass(ctx context.Context) time.Time {
	for _, key := range d.book.touched() {
		d.due[key] = time.Time{}
	}
	now := d.clock.Now()
	if !d.book.ready() || !d.speaks.Load() || d.blind(now) {
		return now.Add(waitForSight)
	}
	var keys []string
	for key, at := range d.due {
		if !now.Before(at) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		if ctx.Err() != nil {
			return now
		}
		if next := d.look(ctx, key); next.IsZero() {
			delete(d.due, key)
		} else {
			d.due[key] = next
		}
	}
	d.count()
	wake := now.Add(idle)
	for _, at := range d.due {
		wake = earlier(wake, at)
	}
	return wake
}

// blind says whether the member cluster is out of reach: what was last seen of it is then no ground to judge on. Once it
// is back, every slice gets its full time again.
func (d *driver) blind(now time.Time) bool {
	lost := !d.toMember.lostSince().IsZero()
	if d.dark && !lost {
		for key, m := range d.known {
			m.progress.since = now
			d.due[key] = now
		}
	}
	d.dark = lost
	return lost
}

// look judges one slice, does what is to be done, and returns when to look again; zero: when something changes.
func (d *driver) look(ctx context.Context, key string) time.Time {
	m := d.known[key]
	if m == nil {
		m = &memory{pace: backoff{jitter: rand.Float64}, tellPace: backoff{jitter: rand.Float64}}
		d.known[key] = m
	}
	now := d.clock.Now()
	s, watched, err := d.sight(ctx, key, m)
	if err != nil {
		return d.missed(ctx, now, m, "look for the deployment of "+key, err)
	}
	if s.slice == nil && (s.workload == nil || !s.workload.ours) {
		delete(d.known, key)
		if s.workload != nil {
			d.book.wrote(key, nil) // somebody else's: of no more interest
		}
		return time.Time{}
	}
	var v verdict
	v, m.progress = judge(now, m.progress, s)
	next := v.wake
	if v.act != actNone {
		at, acted := d.attempt(ctx, key, m, v.act, s, watched)
		if acted {
			return at
		}
		next = earlier(next, at)
	} else {
		m.slot = time.Time{}
	}
	if s.slice != nil {
		d.note(m, v, s.pods.ready)
		next = earlier(next, d.tell(ctx, m, s, v))
	}
	if s.workload.unsure() || !watched && (!v.refused || s.mayBeThere()) {
		next = earlier(next, now.Add(lookAgain)) // nobody tells when it changes
	}
	return next
}

// sight puts together what is known of a slice. What isn't watched is asked for.
func (d *driver) sight(ctx context.Context, key string, m *memory) (s *sight, watched bool, err error) {
	namespace, name, _ := strings.Cut(key, "/")
	s = &sight{fault: m.fault, listed: d.toBroker.lostSince().IsZero()}
	var pods []*instance
	s.slice, s.workload, watched, pods = d.book.look(key, namespace)
	if s.slice == nil {
		return s, watched, nil
	}
	if !watched || s.workload.unsure() {
		s.workload, err = d.ask(ctx, namespace, name)
		switch {
		case apierrors.IsForbidden(err):
			s.unseen, s.fault = true, faultOf(err)
		case err != nil:
			return nil, watched, err
		case watched:
			d.book.knows(key, s.workload)
		}
	}
	s.refusal = d.config.Blueprints.refusal(s.slice.Namespace, s.slice.Spec.Image)
	s.allowed = s.workload != nil && s.workload.image == inFull(s.workload.image) &&
		d.config.Blueprints.refusal(s.slice.Namespace, s.workload.image) == ""
	w, have := d.config.Blueprints.want(s.slice, s.workload), s.workload
	s.settled = have != nil && have.ours && !have.leaving && have.written == fingerprint(w) &&
		have.uid == m.uid && have.generation == m.generation
	s.pods = countInstances(pods, fingerprint(w.Template))
	return s, watched, nil
}

// attempt does an act within the rate. Where it was tried, at is now: what came of it is to be looked at.
func (d *driver) attempt(ctx context.Context, key string, m *memory, do act, s *sight, watched bool) (at time.Time, acted bool) {
	now := d.clock.Now()
	if m.slot.IsZero() {
		m.slot = later(now, d.nextAct)
		d.nextAct = m.slot.Add(actEvery)
	}
	if at := later(m.slot, later(m.pace.notBefore, d.memberPace.notBefore)); now.Before(at) {
		return at, false
	}
	m.slot = time.Time{}
	have, err := d.do(ctx, do, key, s)
	if ctx.Err() != nil {
		return now, true
	}
	if watched && (err == nil || errors.Is(err, errForeign)) {
		d.book.wrote(key, have)
	}
	d.metrics.sliceActs.WithLabelValues(string(do), actOutcome(err)).Inc()
	if err != nil {
		d.missed(ctx, now, m, string(do)+" deployment "+key, err)
		return now, true // to tell; the next try waits for its time
	}
	d.logger.Info("deployment of a slice written", "act", do, "deployment", key)
	d.memberPace.calm()
	m.pace.calm()
	m.fault, m.uid, m.generation = fault{}, "", 0
	if have != nil {
		m.uid, m.generation = have.uid, have.generation
	}
	return now, true
}

// missed books a failure at the member cluster: one of the way there makes everything wait, one that is an answer this
// slice only, and is told. It returns when to try again.
func (d *driver) missed(ctx context.Context, now time.Time, m *memory, what string, err error) time.Time {
	if ctx.Err() != nil {
		return now
	}
	found := faultOf(err)
	if found.reason == reasonUnreachable {
		d.memberPace.failed(now)
		d.logger.Debug("member cluster does not answer: trying on", "what", what, "error", err)
		return d.memberPace.notBefore
	}
	m.pace.failed(now)
	if found.reason == reasonConflict { // somebody was quicker: what is there now is read again
		return m.pace.notBefore
	}
	if m.fault != found {
		m.fault = found
		d.logger.Warn("slice can't be carried out: trying on", "what", what, "error", err)
	}
	return m.pace.notBefore
}

// earlier returns the earlier of two times; zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// note keeps the verdict for the metrics, where each failure counts once.
func (d *driver) note(m *memory, v verdict, ready int32) {
	m.state, m.ready = v.state, ready
	if v.state == broker.SliceFailed && !m.progress.counted {
		m.progress.counted = true
		d.metrics.sliceFailures.WithLabelValues(v.reason).Inc()
	}
}

func (d *driver) count() {
	states, ready := map[broker.SliceState]float64{}, 0.0
	for _, m := range d.known {
		if m.state != "" {
			states[m.state]++
			ready += float64(m.ready)
		}
	}
	for _, state := range sliceStates {
		d.metrics.slices.WithLabelValues(string(state)).Set(states[state])
	}
	d.metrics.sliceInstances.Set(ready)
}

var sliceStates = []broker.SliceState{
	broker.SliceLoading, broker.SliceLoaded, broker.SliceActivating, broker.SliceActive,
	broker.SliceDeactivating, broker.SliceUnloading, broker.SliceFailed,
}
