package blueprint

import (
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
)

// Config of the room. The zero value is complete, but for what Policy says of its own.
type Config struct {
	Policy
	// Resync is how often every blueprint is looked at though nothing happened. 0: DefaultResync.
	Resync time.Duration
	// Timeout is how long commands of a blueprint may be refused before it is Degraded. 0: DefaultTimeout.
	Timeout time.Duration
	// Logger, nil: silent.
	Logger hclog.Logger
	// Observe is told what happens, on the goroutine of the term loop; it must not block. Nil: nobody is.
	Observe func(Observation)
	// Clock measures reconciliations, for Observe alone. Nil: they take no time.
	Clock func() time.Time
}

// Event names what was observed.
type Event string

// The events.
const (
	EventBegun      Event = "begun"      // a term: what was said of blueprints before counts no more
	EventReconciled Event = "reconciled" // Took, Reason: unchanged or changed
	EventStatus     Event = "status"     // Desired, Ready
	EventGone       Event = "gone"       // the blueprint is
	EventMoved      Event = "moved"      // Count instances to a better place or off a lost one
	EventFailed     Event = "failed"     // a slice; Reason
	EventRefused    Event = "refused"    // a command, by Apply; Reason
	EventActivated  Event = "activated"  // all instances of a generation ready, Took since it was applied
)

// Observation is one event, for metrics.
type Observation struct {
	Event           Event
	Namespace, Name string // of the blueprint
	Reason          string
	Took            time.Duration
	Count           int
	Desired, Ready  int32
}

// New returns the room.
func New(cfg Config) cluster.Room {
	if cfg.Resync == 0 {
		cfg.Resync = DefaultResync
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.BackoffMin == 0 {
		cfg.BackoffMin = millis(DefaultBackoffMin)
	}
	if cfg.BackoffMax == 0 {
		cfg.BackoffMax = millis(DefaultBackoffMax)
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	if cfg.Observe == nil {
		cfg.Observe = func(Observation) {}
	}
	if cfg.Clock == nil {
		cfg.Clock = func() time.Time { return time.Time{} }
	}
	return &room{cfg}
}

type room struct{ cfg Config }

// Name of the room.
func (r *room) Name() string { return "blueprint" }

// Takes no intent: what users and agents write passes as it stands, and the room compares the state.
func (r *room) Takes(*cluster.Intent) bool { return false }

// Begin reads clusters and slices and looks at every blueprint.
func (r *room) Begin(state *fsm.State, now fsm.Millis) cluster.Term {
	return newTerm(r.cfg, state, now)
}

func millis(d time.Duration) fsm.Millis { return fsm.Millis(d / time.Millisecond) }
