package cluster

import "github.com/bourse-dev/bourse/fsm"

// Room is a leader-only domain: admission, expiry, liveness, blueprints. It has no goroutine and
// no clock of its own. Rooms never call each other; they meet in the state.
// Adding a domain means writing a Room and naming it in the list that cmd hands to the node.
type Room interface {
	// Name for logs and metrics.
	Name() string
	// Takes says whether this room decides the intent. An intent that no room takes is
	// proposed as it stands. Called on any goroutine, at any time.
	Takes(*Intent) bool
	// Begin rebuilds the room's queues from the state at the start of a leadership term,
	// after the barrier. Nothing of an earlier term survives but what is in the state.
	Begin(state *fsm.State, now fsm.Millis) Term
}

// Term is a room's work during one leadership term, stepped by one goroutine: the term loop
// in production, the simulator in tests.
type Term interface {
	// Step looks at what is new and says what to do. It is called again when any input
	// arrives or Wake comes. It must not block.
	Step(Input) Output
}

// Input is what is new since the last Step.
type Input struct {
	Now     fsm.Millis   // the leader's state time: monotonic within the term
	State   *fsm.State   // as applied on the leader; Changes and Settled are contained in it
	Changes []fsm.Change // every row written since the last Step, in order
	Intents []*Intent    // newly arrived, that this room takes
	Settled []Settled    // what became of everything the last Step proposed
}

// Output is what a Step wants done.
type Output struct {
	// Propose is entered at time Input.Now. The next Step comes only after all of it is settled.
	Propose []Item
	// Answers end intents without a proposal (dry decisions, heartbeats with nothing new).
	Answers []Answer
	// Wake is when to step again though nothing happened; 0: only on input.
	Wake fsm.Millis
}

// Item is one command of a room: exactly one of Txn and Report.
type Item struct {
	Txn    *fsm.Txn
	Report *fsm.Report
	// Intent is answered by the room later (after Settled); nil for the room's own work.
	Intent *Intent
	// Partial: the intent is not done with this item. Where the term ends meanwhile, its outcome is
	// unknown, and the node that brought it asks again.
	Partial bool
}

// Settled is the fate of an Item. Err is set where it was not proposed or its outcome is unknown; the
// term is about to end either way.
type Settled struct {
	Item   Item
	Result fsm.Result
	Err    error
}

// Answer ends an intent.
type Answer struct {
	Intent *Intent
	Result fsm.Result
}

// Intent is one request that reached the leader, from any node: exactly one of Txn and Report.
// A Txn in an intent carries no ledger part and no moves: the leader refuses one that does.
// Make it with NewIntent where somebody waits for what becomes of it.
type Intent struct {
	Txn    *fsm.Txn
	Report *fsm.Report

	reply    chan Reply // room for one; nil where nobody waits
	answered func()     // told of the reply; nil where no queue has let it in
}

// Reply is the end of an intent. Err is ErrNotProposed, store.ErrUnknownOutcome or another of this
// package's errors; a refusal is a Result.
type Reply struct {
	Result fsm.Result
	Err    error
}

// NewIntent makes an intent of exactly one of txn and report.
func NewIntent(txn *fsm.Txn, report *fsm.Report) *Intent {
	return &Intent{Txn: txn, Report: report, reply: make(chan Reply, 1)}
}

// Replied delivers what became of the intent, once.
func (i *Intent) Replied() <-chan Reply { return i.reply }

// end is called by the term loop. Only the first call counts.
func (i *Intent) end(r Reply) {
	select {
	case i.reply <- r:
		if i.answered != nil {
			i.answered()
		}
	default:
	}
}
