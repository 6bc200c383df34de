package blueprint

import (
	"time"

	"github.com/bourse-dev/bourse/fsm"
)

// The defaults of the settings.
const (
	// DefaultResync is how often every blueprint is looked at though nothing happened.
	DefaultResync = 5 * time.Minute
	// DefaultTimeout is how long commands of a blueprint may be refused before it is Degraded.
	DefaultTimeout = 2 * time.Minute
	// DefaultBackoffMin and DefaultBackoffMax bound the pause before another try.
	DefaultBackoffMin = time.Second
	DefaultBackoffMax = time.Minute
)

// The limits of one Step.
const (
	// maxItems of one Step: at the usual 1.5 KiB for a slice they are 192 KiB.
	maxItems = 128
	// maxEntryBytes of the commands of one Step, by estimate: an entry stays under 256 KiB. A single
	// larger one (the status of a thousand placements) goes alone.
	maxEntryBytes = 192 << 10
	// itemOverheadBytes is what a command adds to its bodies: guards, ledger columns, a move.
	itemOverheadBytes = 512
	// maxReconciled blueprints of one Step: at 1 ms each it takes an eighth of a second.
	maxReconciled = 128
	// maxShares of the blueprints of one Step: a thousand of them take 20 ms. The last may go beyond.
	maxShares = 8192
)

const (
	// statusEvery bounds writes of a status that says no more than other counts: a hundred agents that
	// each report every fifth of a second what has come up make two entries a second, not five hundred.
	statusEvery = fsm.Millis(500)
	// dormantPoll is how often the room asks whether Apply knows MoveResize by now.
	dormantPoll = fsm.Millis(time.Second / time.Millisecond)
	// maxSliceName is a DNS subdomain's length, hashBytes what of it tells slices apart.
	maxSliceName = 253
	hashBytes    = 8
	// maxDoublings of a pause: from a millisecond it is twelve days.
	maxDoublings = 30
	// maxFailureBytes of what a share failed with: 128 commands of one Step add 32 KiB with it.
	maxFailureBytes = 255
	// namedMisses is how many clusters a message names that can't take an instance, or fail; the others it counts.
	namedMisses = 4
)
