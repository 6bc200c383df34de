package reservation

import (
	"time"

	"github.com/bourse-dev/bourse/fsm"
)

// The limits of one Step and of what the room keeps. An entry stays under 256 KiB, because Raft's
// heartbeats share its stream.
const (
	// maxEntryBytes of the commands of one Step, by the estimate of itemBytes. A single command
	// may be larger (an object of the API's greatest size); it then goes alone.
	maxEntryBytes = 192 << 10
	// maxItems of one Step: at the usual 3 KiB for an object, its decision and its event they
	// are 192 KiB.
	maxItems = 64
	// maxEndings of one Step, of maxItems: so that a thousand leases that end together delay no
	// request for longer than half an entry.
	maxEndings = maxItems / 2
	// maxEventRemovals of one Step, beside maxItems: 128 keys of 200 bytes are 25 KiB.
	maxEventRemovals = 128
	// itemOverheadBytes is what a command adds to its bodies: guards, ledger columns, a move of
	// a few resources, a decision of at most 1 KiB.
	itemOverheadBytes = 2 << 10

	// maxChunkItems of one chunk of a batch: with its own row, namespace and event under the 256
	// writes of one command. By bytes, 1.2 KiB each, it is about 150.
	maxChunkItems = 192
	// maxDissolved rows of one command that deletes a batch: under its 256 guards and writes.
	maxDissolved = 200
	// partOverheadBytes is what a part adds to its body, decision and message: its key in a guard
	// and a move, the ledger's columns, an endpoint.
	partOverheadBytes = 512
	// partBytes of one part before it is made: body, decision and overhead as a rule.
	partBytes = 2 << 10
	// resultBytes of one result as a rule: phase, cluster.
	resultBytes = 48
	// refreshDelay is how far a batch's row may lag behind its items: what becomes of a thousand of
	// them within a second is one write.
	refreshDelay = fsm.Millis(time.Second / time.Millisecond)
	// maxRefreshed items looked at by one Step: 1,000 at 4 µs each are 4 ms.
	maxRefreshed = 1_000

	// maxDecisions of one Step: at 10,000 clusters and 50 µs each they take 25 ms.
	maxDecisions = 512
	// maxImproved is how many clusters that became better are looked at one by one before a
	// full decision for each waiter is cheaper.
	maxImproved = 64
	// maxRefusals of one request by Apply before it is answered, or waits for a change: a view
	// is stale once when an agent reports in the same entry; eight times in a row it is wrong.
	maxRefusals = 8
	// maxDryRunWaiters that a dry-run places before its own request.
	maxDryRunWaiters = 1_000

	// maxEventsPerObject is what kubectl describe shows of one reservation.
	maxEventsPerObject = 8
	// maxEvents overall: at 700 bytes each 7 MB of state.
	maxEvents = 10_000
	// eventTTL is how long an event is kept, as in Kubernetes.
	eventTTL = fsm.Millis(time.Hour / time.Millisecond)
	// eventSweep is how often old events are looked for: a TTL need not be exact, and one entry
	// for many is cheaper than one each.
	eventSweep = fsm.Millis(time.Minute / time.Millisecond)
)
