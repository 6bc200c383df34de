package reservation

import (
	"errors"
	"slices"

	"github.com/hashicorp/go-hclog"

	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
)

// Outcome names what the room did with a reservation, for metrics.
type Outcome string

// The outcomes.
const (
	OutcomeGranted   Outcome = "granted"
	OutcomeWaiting   Outcome = "waiting"
	OutcomeFailed    Outcome = "failed"
	OutcomeTimedOut  Outcome = "timed_out"
	OutcomeExtended  Outcome = "extended"
	OutcomeExpired   Outcome = "expired"
	OutcomeWithdrawn Outcome = "withdrawn"
	OutcomeRemoved   Outcome = "removed"
	OutcomeRefused   Outcome = "refused" // by Apply
)

// Config of the room. The zero value is complete.
type Config struct {
	// Logger, nil: silent.
	Logger hclog.Logger
	// Observe is told of each settled outcome, on the goroutine of the term loop; it must not
	// block. Nil: nobody is told.
	Observe func(Outcome)

	// chunkItems and dissolved are maxChunkItems and maxDissolved where they are 0; tests set less.
	chunkItems, dissolved int
}

// New returns the room.
func New(cfg Config) cluster.Room {
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	if cfg.Observe == nil {
		cfg.Observe = func(Outcome) {}
	}
	if cfg.chunkItems == 0 {
		cfg.chunkItems = maxChunkItems
	}
	if cfg.dissolved == 0 {
		cfg.dissolved = maxDissolved
	}
	return &room{cfg}
}

type room struct{ cfg Config }

// Name of the room.
func (r *room) Name() string { return "reservation" }

// Takes the intents that create a reservation or a batch or change its spec, and the deletions that
// others end with: of a batch, and those of reservations that guard the ledger. Other deletions and
// changes of metadata alone need no decision: Apply releases what a deleted row holds.
func (r *room) Takes(in *cluster.Intent) bool {
	return in.Txn != nil && deciding(in.Txn) >= 0
}

// deciding returns the index of the first write that has to be decided, or -1. Where a guard says
// that the row exists and the spec stays, nothing has.
func deciding(txn *fsm.Txn) int {
	for i := range txn.Writes {
		w := &txn.Writes[i]
		ours := isReservation(w.Key) || isBatch(w.Key)
		switch {
		case ours && w.Delete && (isBatch(w.Key) || guardsLedger(txn, w.Key)):
			return i
		case !ours || w.Delete || w.Body == nil:
			continue
		}
		if w.SpecChanged || !guardedAsExisting(txn, w.Key) {
			return i
		}
	}
	return -1
}

var errSeveral = errors.New("writes: one reservation or batch for each command")

// soleDecision is deciding, of a command that may decide only one.
func soleDecision(txn *fsm.Txn) (int, error) {
	first := deciding(txn)
	rest := fsm.Txn{Guards: txn.Guards, Writes: txn.Writes[first+1:]}
	if deciding(&rest) >= 0 {
		return 0, errSeveral
	}
	return first, nil
}

func guardsLedger(txn *fsm.Txn, key string) bool {
	return slices.ContainsFunc(txn.Guards, func(g fsm.Guard) bool { return g.Key == key && g.Part == fsm.PartLedger })
}

func guardedAsExisting(txn *fsm.Txn, key string) bool {
	for i := range txn.Guards {
		g := &txn.Guards[i]
		if g.Key == key && g.Revision > 0 && (g.Part == fsm.PartRow || g.Part == fsm.PartBody || g.Part == fsm.PartSpec) {
			return true
		}
	}
	return false
}

// Begin rebuilds the queues: who waits, which leases run, which events are kept.
func (r *room) Begin(state *fsm.State, now fsm.Millis) cluster.Term {
	return newTerm(r.cfg, state, now)
}
