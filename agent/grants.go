package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// role is the side of a reservation on which this cluster stands.
type role struct {
	name   string // in metrics
	field  string // of the reservation that names this cluster
	gained string // what the log says at a grant
	stands string // at a grant that was there before this process
	ended  string
}

var (
	requester = role{"requester", "spec.requesterID", "capacity granted", "capacity granted before this start", "capacity released"}
	provider  = role{"provider", "status.targetClusterID", "capacity lent", "capacity lent before this start", "lent capacity returned"}
)

// grantBook follows the reservations that concern this cluster in one role, and says once for
// each fence that capacity came or went. It is a store for one reflector: all methods are
// called by that one goroutine. It holds what it last saw; a broker outage changes nothing.
type grantBook struct {
	role    role
	started time.Time // of the process: what was granted before is no news
	clock   clock.PassiveClock
	logger  hclog.Logger
	metrics *metrics

	seen   map[string]grant
	ended  []endedFence // of deleted reservations in seen, oldest first
	listed bool
}

var _ cache.ReflectorStore = (*grantBook)(nil)

// grant is what is known of one reservation.
type grant struct {
	uid     types.UID
	fence   int64 // the newest; refuses older ones even after the reservation is gone
	live    bool  // capacity is held
	gone    bool  // the reservation was deleted
	expires string
	text    []any // for the log
}

type endedFence struct {
	key   string
	fence int64
}

func newGrantBook(role role, config *Config, metrics *metrics) *grantBook {
	return &grantBook{
		role:    role,
		started: config.Clock.Now(),
		clock:   config.Clock,
		logger:  config.Logger,
		metrics: metrics,
		seen:    map[string]grant{},
	}
}

func (b *grantBook) Add(obj any) error { return b.Update(obj) }

func (b *grantBook) Update(obj any) error {
	r, err := readReservation(obj)
	if err != nil {
		return err
	}
	b.observe(r)
	return nil
}

func (b *grantBook) Delete(obj any) error {
	r, err := readReservation(obj)
	if err != nil {
		return err
	}
	b.vanish(reservationKey(r), r.UID)
	return nil
}

func (b *grantBook) Replace(list []any, _ string) error {
	here := make(map[string]bool, len(list))
	for _, obj := range list {
		r, err := readReservation(obj)
		if err != nil {
			return err
		}
		here[reservationKey(r)] = true
		b.observe(r)
	}
	for _, key := range slices.Sorted(maps.Keys(b.seen)) {
		if g := b.seen[key]; !here[key] && !g.gone {
			b.vanish(key, g.uid)
		}
	}
	b.listed = true
	return nil
}

func (b *grantBook) Resync() error { return nil }

// observe compares a reservation with what was known of it.
func (b *grantBook) observe(r *broker.Reservation) {
	key := reservationKey(r)
	known := b.seen[key]
	// What stands for its pieces alone holds nothing, and has no fence.
	holds := r.Status.Phase == broker.ReservationReserved && r.Status.Fence > 0
	switch {
	case holds && r.Status.Fence < known.fence, holds && r.Status.Fence == known.fence && known.gone:
		b.metrics.refusedFences.WithLabelValues(b.role.name).Inc()
		b.logger.Warn("older fence refused", "reservation", key, "fence", r.Status.Fence, "newest", known.fence)
		return
	case holds && r.Status.Fence > known.fence:
		b.end(known, "replaced by a newer grant")
		b.gain(key, r)
	case holds && known.live:
		b.extended(key, known, r)
	case !holds:
		b.end(known, r.Status.Message)
		b.seen[key] = grant{uid: r.UID, fence: max(known.fence, r.Status.Fence)}
	}
}

func (b *grantBook) gain(key string, r *broker.Reservation) {
	g := grant{uid: r.UID, fence: r.Status.Fence, live: true, expires: expiry(r), text: describe(key, r)}
	b.seen[key] = g
	granted := r.Status.ReservedAt
	if !b.listed && granted != nil && granted.Time.Before(b.started) {
		b.logger.Info(b.role.stands, g.line()...)
		return
	}
	b.metrics.grants.WithLabelValues(b.role.name).Inc()
	if granted != nil && !granted.Time.Before(b.started) {
		latency := max(0, b.clock.Since(granted.Time)) // below zero: the clocks differ
		b.metrics.grantLatency.WithLabelValues(b.role.name).Observe(latency.Seconds())
	}
	b.logger.Info(b.role.gained, g.line()...)
}

func (b *grantBook) extended(key string, known grant, r *broker.Reservation) {
	if expires := expiry(r); expires != known.expires {
		known.expires = expires
		b.seen[key] = known
		b.logger.Info("lease extended", known.line()...)
	}
}

// end says that held capacity is held no more.
func (b *grantBook) end(g grant, reason string) {
	if !g.live {
		return
	}
	b.metrics.releases.WithLabelValues(b.role.name).Inc()
	b.logger.Info(b.role.ended, append(g.line(), "reason", reason)...)
}

// vanish books a reservation that was deleted, or no longer names this cluster. Its fence is
// remembered for a while.
func (b *grantBook) vanish(key string, uid types.UID) {
	g, known := b.seen[key]
	if !known || g.gone || g.uid != uid {
		return
	}
	b.end(g, "deleted")
	if g.fence == 0 {
		delete(b.seen, key)
		return
	}
	b.seen[key] = grant{uid: uid, fence: g.fence, gone: true}
	b.ended = append(b.ended, endedFence{key, g.fence})
	if len(b.ended) > maxEndedFences {
		oldest := b.ended[0]
		b.ended = b.ended[1:]
		if o := b.seen[oldest.key]; o.gone && o.fence == oldest.fence {
			delete(b.seen, oldest.key)
		}
	}
}

func (g grant) line() []any {
	return append(slices.Clone(g.text), "fence", g.fence, "expires", g.expires)
}

func describe(key string, r *broker.Reservation) []any {
	return []any{
		"reservation", key,
		"requester", r.Spec.RequesterID,
		"target", r.Status.TargetClusterID,
		"amounts", amountsText(r.Spec.RequestedResources),
		"endpoint", r.Status.TargetClusterEndpoint,
	}
}

func amountsText(list corev1.ResourceList) string {
	parts := make([]string, 0, len(list))
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q := list[name]
		parts = append(parts, fmt.Sprintf("%s=%s", name, q.String()))
	}
	return strings.Join(parts, ",")
}

func expiry(r *broker.Reservation) string {
	if r.Status.ExpiresAt == nil {
		return "never"
	}
	return r.Status.ExpiresAt.UTC().Format(metav1.RFC3339Micro)
}

func reservationKey(r *broker.Reservation) string { return r.Namespace + "/" + r.Name }

func readReservation(obj any) (*broker.Reservation, error) {
	r, ok := obj.(*broker.Reservation)
	if !ok {
		return nil, fmt.Errorf("a reservation was expected, not %T", obj)
	}
	return r, nil
}
