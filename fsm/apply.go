package fsm

import (
	"errors"
	"fmt"

	iradix "github.com/hashicorp/go-immutable-radix/v2"

	"github.com/bourse-dev/bourse/internal/planted"
)

// Outcome is what an entry did.
type Outcome struct {
	State   *State
	Results []Result // one for each Txn or Report of the entry
	Changes []Change // every row written, by revision
}

// Apply makes the next state from one log entry. It is pure: it changes neither s nor
// entry, keeps nothing of entry, and the same arguments always give equal states.
//
// An error is fatal: the entry can't be applied by this binary, and the node must stop. A
// command that is refused is a result. Apply panics with *InvariantError where an account's
// figures and its holds disagree.
func (s *State) Apply(entry []byte) (Outcome, error) {
	return s.apply(entry, SupportedBehaviour)
}

// apply is Apply of a binary that supports behaviour versions up to supported.
func (s *State) apply(entry []byte, supported uint32) (Outcome, error) {
	if s.behaviour > supported {
		return Outcome{}, fmt.Errorf("%w: state has %d, supported is %d", ErrUnsupportedBehaviour, s.behaviour, supported)
	}
	e, err := DecodeEntry(entry)
	if errors.Is(err, ErrIgnorable) {
		return Outcome{State: s}, nil
	}
	if err != nil {
		return Outcome{}, fmt.Errorf("apply after revision %d: %w", s.revision, err)
	}
	if e.Behaviour > supported {
		return Outcome{}, fmt.Errorf("%w: the log raises it to %d, supported is %d", ErrUnsupportedBehaviour, e.Behaviour, supported)
	}
	a := applier{State: *s, tree: s.rows.Txn(), drafted: map[string]*draftRow{}}
	a.time = max(a.time, e.Time)
	if planted.Bug == planted.ClockInApply {
		a.time = Millis(planted.Clock())
	}
	a.behaviour = max(a.behaviour, e.Behaviour)
	out := Outcome{}
	for i := range e.Txns {
		out.Results = append(out.Results, a.txn(&e.Txns[i]))
	}
	for i := range e.Reports {
		out.Results = append(out.Results, a.report(&e.Reports[i]))
	}
	a.rows = a.tree.Commit()
	a.assert()
	next := a.State // a copy: the applier and its buffers must not live on with the state
	out.State, out.Changes = &next, a.changes
	return out, nil
}

// applier is the state that one entry is making. Its rows lie in tree until the end.
type applier struct {
	State
	tree    *iradix.Txn[*Row]
	changes []Change
	hasher  hasher
	drafted map[string]*draftRow // reused from command to command
}

// txn applies one Txn: the whole of it, or nothing but its remembered result.
func (a *applier) txn(t *Txn) Result {
	if t.ID != (RequestID{}) {
		if old := a.results.get(t.ID); old != nil {
			return old.result
		}
		if refusal := a.refuseID(t.ID); refusal != nil {
			return Result{Revision: a.revision, Refusal: refusal}
		}
	}
	d := a.draft()
	refusal := d.run(t)
	if refusal == nil {
		d.commit()
	}
	result := Result{Revision: a.revision, Refusal: refusal}
	if t.ID != (RequestID{}) {
		a.remember(remembered{id: t.ID, result: result})
	}
	return result
}

// refuseID refuses an id whose result may have been forgotten: running it could do it twice.
// An id as new as the state can't have written anything yet, remembered or not; without this
// exception 65,536 refusals in a row, which raise no revision, would shut out every later id.
func (a *applier) refuseID(id RequestID) *Refusal {
	switch {
	case id.Seen > a.revision:
		// From a node that has applied what this log does not hold: another history.
		return &Refusal{Kind: RefusedInvalid, Key: "id.seen", Revision: a.revision}
	case id.Seen < a.results.forgotten && id.Seen < a.revision:
		return &Refusal{Kind: RefusedUnknown, Key: "id.seen", Revision: a.results.forgotten - 1}
	}
	return nil
}

func (a *applier) remember(r remembered) {
	a.results = a.results.with(r)
	a.sum = a.sum.add(a.hasher.result(&r))
	if a.results.len() > MaxResults {
		var oldest remembered
		a.results, oldest = a.results.withoutOldest()
		a.sum = a.sum.sub(a.hasher.result(&oldest))
	}
}
