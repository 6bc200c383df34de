package fsm

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"

	iradix "github.com/hashicorp/go-immutable-radix/v2"
)

// State is everything that is replicated, at one moment. It is immutable: any number of
// goroutines may read it while the next ones are made from it.
type State struct {
	rows      *iradix.Tree[*Row]
	results   results
	revision  Revision
	time      Millis
	behaviour uint32
	sum       sum // of all rows, holds and results
}

// New returns the empty state that every group begins with.
func New() *State {
	return &State{rows: iradix.New[*Row](), behaviour: FirstBehaviour}
}

// Revision is that of the newest row written, or where a Jump went.
func (s *State) Revision() Revision { return s.revision }

// Time is the newest time any entry brought.
func (s *State) Time() Millis { return s.time }

// Behaviour is the version that Apply follows.
func (s *State) Behaviour() uint32 { return s.behaviour }

// Row returns the row of that key, or nil.
func (s *State) Row(key string) *Row {
	row, _ := s.rows.Get([]byte(key))
	return row
}

// GuardsHold says whether Apply would find the guards true on this state: a planner asks as Apply does.
func (s *State) GuardsHold(guards []Guard) bool {
	for i := range guards {
		if guards[i].check(s.Row(guards[i].Key), s) != nil {
			return false
		}
	}
	return true
}

// Scan yields the rows whose keys begin with prefix, in key order.
func (s *State) Scan(prefix string) iter.Seq[*Row] {
	return func(yield func(*Row) bool) {
		s.rows.Root().WalkPrefix([]byte(prefix), func(_ []byte, row *Row) bool { return !yield(row) })
	}
}

// Len counts the rows whose keys begin with prefix. It walks them, but for the empty prefix.
func (s *State) Len(prefix string) int {
	if prefix == "" {
		return s.rows.Len()
	}
	n := 0
	for range s.Scan(prefix) {
		n++
	}
	return n
}

// Remembers says whether a command of that id was applied, done or refused, and its result is kept.
func (s *State) Remembers(id RequestID) bool { return s.results.get(id) != nil }

// Results is how many results are remembered for retries.
func (s *State) Results() int { return s.results.len() }

// Hash identifies the state. It is kept as rows change and costs nothing to read.
func (s *State) Hash() Hash { return s.mix(s.sum) }

// FullHash is Hash computed anew from every row; the two differ only where memory or this
// package is broken. It takes about a microsecond a row.
func (s *State) FullHash() Hash {
	var total sum
	var h hasher
	for row := range s.Scan("") {
		total = total.add(h.row(row))
		if row.Account != nil {
			for hold := range row.Account.holds.all() {
				total = total.add(h.hold(row.Key, hold))
			}
		}
	}
	for r := range s.results.all() {
		total = total.add(h.result(r))
	}
	return s.mix(total)
}

// mix adds the scalars.
func (s *State) mix(total sum) Hash {
	var b []byte
	for _, v := range total {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	for _, v := range []uint64{uint64(s.revision), uint64(s.time), uint64(s.behaviour), uint64(s.results.forgotten)} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return sha256.Sum256(b)
}

// Jump returns the same state at a later revision. A restore from backup jumps far ahead, so
// that no client can resume a watch of the history that was lost into the new one.
func (s *State) Jump(to Revision) (*State, error) {
	if to < s.revision {
		return nil, fmt.Errorf("%w: jump back from revision %d to %d", ErrInvalid, s.revision, to)
	}
	next := *s
	next.revision = to
	return &next, nil
}
