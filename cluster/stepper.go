package cluster

import (
	"errors"
	"fmt"

	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// Feed is the leader's own state and what changed in it; *store.DB is one.
type Feed interface {
	State() *fsm.State
	Changes(after fsm.Revision) ([]fsm.Change, error)
}

// Stepper runs one room through one leadership term, one step at a time:
//
//	batches, _ := s.Step(now, intents)   // asks the room; what to propose
//	s.Settle(batches, log.Propose(...))  // one outcome for each batch
//
// and again: at once while Busy, else when intents arrive, the state changes or Wake comes; and
// End when the term is over. It has no goroutine and no clock: the term loop drives it in
// production, a simulator on one goroutine in tests. Not safe for concurrent use.
type Stepper struct {
	room Room
	feed Feed

	term    Term
	seen    fsm.Revision // the room has seen every change up to here
	settled []Settled    // for the next step
	again   []*Intent    // to hand to the room anew, after Begin was repeated
	wake    fsm.Millis
	open    map[*Intent]*openIntent
}

// openIntent is with the room and not answered.
type openIntent struct {
	proposed bool
	begun    bool // an item was done, and more are to come
}

// Batch is one encoded entry and the items in it, in order.
type Batch struct {
	Entry []byte
	items []Item
}

// NewStepper begins the room's term.
func NewStepper(room Room, feed Feed, now fsm.Millis) *Stepper {
	s := &Stepper{room: room, feed: feed, open: map[*Intent]*openIntent{}}
	s.begin(now)
	return s
}

func (s *Stepper) begin(now fsm.Millis) {
	state := s.feed.State()
	s.term = s.room.Begin(state, now)
	s.seen = state.Revision()
	s.wake = now // the first step may have work though nothing happened
}

// Wake is when to step again though nothing happened; 0: only on input.
func (s *Stepper) Wake() fsm.Millis { return s.wake }

// Busy says that the room waits for the fate of what it proposed: step again at once.
func (s *Stepper) Busy() bool { return len(s.settled) > 0 || len(s.again) > 0 }

// Step hands the room what is new and returns what it wants proposed, to be settled before the next Step.
func (s *Stepper) Step(now fsm.Millis, intents []*Intent) ([]Batch, error) {
	in, err := s.input(now, intents)
	if err != nil {
		return nil, err
	}
	for _, intent := range in.Intents {
		s.open[intent] = &openIntent{}
	}
	out := s.term.Step(in)
	for _, a := range out.Answers {
		delete(s.open, a.Intent)
		a.Intent.end(Reply{Result: a.Result})
	}
	s.wake = out.Wake
	return s.encode(now, out.Propose), nil
}

func (s *Stepper) input(now fsm.Millis, intents []*Intent) (Input, error) {
	state := s.feed.State()
	changes, err := s.feed.Changes(s.seen)
	if errors.Is(err, store.ErrCompacted) {
		s.restart(now)
		state = s.feed.State()
		changes, err = s.feed.Changes(s.seen)
	}
	if err != nil {
		return Input{}, fmt.Errorf("room %s: changes after revision %d: %w", s.room.Name(), s.seen, err)
	}
	for len(changes) > 0 && changes[len(changes)-1].Revision > state.Revision() {
		changes = changes[:len(changes)-1] // written since State: the next step's
	}
	in := Input{
		Now: now, State: state, Changes: changes,
		Intents: append(s.again, intents...), Settled: s.settled,
	}
	s.seen, s.settled, s.again = state.Revision(), nil, nil
	return in, nil
}

// restart begins anew when the room fell out of the change history. What it had proposed is
// settled: answered here. What it had not is handed to it again.
func (s *Stepper) restart(now fsm.Millis) {
	s.endSettled()
	for intent, o := range s.open {
		delete(s.open, intent)
		if o.proposed {
			intent.end(Reply{Err: store.ErrUnknownOutcome})
		} else {
			s.again = append(s.again, intent)
		}
	}
	s.begin(now)
}

// encode turns items into entries: neighbours of one kind together, split at MaxEntryBytes.
func (s *Stepper) encode(now fsm.Millis, items []Item) []Batch {
	var batches []Batch
	for len(items) > 0 {
		n := 1
		for n < len(items) && n < fsm.MaxCommands && (items[n].Txn == nil) == (items[0].Txn == nil) {
			n++
		}
		batches = s.encodeRun(batches, now, items[:n])
		items = items[n:]
	}
	return batches
}

func (s *Stepper) encodeRun(batches []Batch, now fsm.Millis, items []Item) []Batch {
	entry := fsm.Entry{Time: now}
	for _, item := range items {
		if item.Txn != nil {
			entry.Txns = append(entry.Txns, *item.Txn)
		} else {
			entry.Reports = append(entry.Reports, *item.Report)
		}
	}
	data, err := fsm.EncodeEntry(&entry)
	if (err != nil || len(data) > MaxEntryBytes) && len(items) > 1 {
		half := len(items) / 2
		return s.encodeRun(s.encodeRun(batches, now, items[:half]), now, items[half:])
	}
	if err != nil { // a limit of fsm: it could never be applied
		s.settled = append(s.settled, Settled{Item: items[0], Result: fsm.Result{
			Revision: s.seen, Refusal: &fsm.Refusal{Kind: fsm.RefusedInvalid, Key: err.Error()},
		}})
		return batches
	}
	return append(batches, Batch{Entry: data, items: items})
}

// Settle records the fate of each batch. It returns the first error: the term should end.
func (s *Stepper) Settle(batches []Batch, outcomes []Proposed) error {
	var first error
	for i, batch := range batches {
		outcome := outcomes[i]
		if outcome.Err == nil && len(outcome.Results) != len(batch.items) {
			outcome.Err = unknownOutcome(fmt.Errorf("%d results for %d commands", len(outcome.Results), len(batch.items)))
		}
		if outcome.Err != nil && first == nil {
			first = fmt.Errorf("room %s: propose: %w", s.room.Name(), outcome.Err)
		}
		for j, item := range batch.items {
			settled := Settled{Item: item, Err: outcome.Err}
			if outcome.Err == nil {
				settled.Result = outcome.Results[j]
			}
			if o := s.open[item.Intent]; o != nil && !errors.Is(outcome.Err, ErrNotProposed) {
				o.proposed = true
				o.begun = o.begun || item.Partial && settled.Err == nil && settled.Result.Refusal == nil
			}
			s.settled = append(s.settled, settled)
		}
	}
	return first
}

// End answers what the room has not: with the result where there is one, else by what is known.
func (s *Stepper) End() {
	s.endSettled()
	for intent, o := range s.open {
		err := ErrNotLeader
		if o.proposed {
			err = store.ErrUnknownOutcome
		}
		intent.end(Reply{Err: err})
	}
	for _, intent := range s.again {
		intent.end(Reply{Err: ErrNotLeader})
	}
	s.open, s.again = nil, nil
}

// endSettled answers, in the room's place, intents whose item was done or whose outcome is unknown.
// A refusal stays open, as not proposed: the room might have decided anew.
func (s *Stepper) endSettled() {
	for _, settled := range s.settled {
		o := s.open[settled.Item.Intent]
		switch {
		case o == nil:
		case settled.Err == nil && settled.Result.Refusal != nil:
			o.proposed = o.begun
		case errors.Is(settled.Err, ErrNotProposed), settled.Item.Partial:
		default:
			delete(s.open, settled.Item.Intent)
			settled.Item.Intent.end(Reply{Result: settled.Result, Err: settled.Err})
		}
	}
	s.settled = nil
}
