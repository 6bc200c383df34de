package advertisement

import (
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
)

// Config of the room. The zero value is complete.
type Config struct {
	// StaleAfter is how long an agent may be silent before its cluster is offered no more.
	// 0: DefaultStaleAfter.
	StaleAfter time.Duration
	// Logger, nil: silent.
	Logger hclog.Logger
}

// New returns the room.
func New(cfg Config) cluster.Room {
	if cfg.StaleAfter == 0 {
		cfg.StaleAfter = DefaultStaleAfter
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	return &room{cfg}
}

type room struct{ cfg Config }

// Name of the room.
func (r *room) Name() string { return "advertisement" }

// Takes every report, and the creation of advertisements: one is Stale until its agent is heard.
func (r *room) Takes(in *cluster.Intent) bool {
	return in.Report != nil || in.Txn != nil && creation(in.Txn) >= 0
}

// creation returns the index of the write that may create an advertisement, or -1.
func creation(txn *fsm.Txn) int {
	for i := range txn.Writes {
		w := &txn.Writes[i]
		if w.Body != nil && !w.Delete && strings.HasPrefix(w.Key, broker.AdvertisementsPrefix) && !guardedAsExisting(txn, w.Key) {
			return i
		}
	}
	return -1
}

func guardedAsExisting(txn *fsm.Txn, key string) bool {
	for i := range txn.Guards {
		if g := &txn.Guards[i]; g.Key == key && g.Revision > 0 {
			return true
		}
	}
	return false
}

// Begin gives every Active cluster a full interval of grace: a new leader has heard nobody yet.
func (r *room) Begin(state *fsm.State, now fsm.Millis) cluster.Term {
	return newTerm(r.cfg, state, now)
}
