package fsm

import (
	"bytes"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestRandomSequences runs random command lists of at least 50 entries and asks of each:
// does a second run give the same results, hash and snapshot bytes; does a snapshot in the
// middle plus the rest; does another process; does a binary that knows a newer behaviour
// version; and do all accounts agree with a model that was written apart.
func TestRandomSequences(t *testing.T) {
	t.Parallel()
	var seen traffic
	t.Run("shards", func(t *testing.T) {
		for i := range shards {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				child := startChild(t)
				rapid.Check(t, func(t *rapid.T) {
					draws := rapid.SliceOfN(rapid.Uint64(), 50, 70).Draw(t, "draws")
					checkSequence(t, draws, child, &seen)
				})
			})
		}
	})
	seen.require(t)
}

func checkSequence(t *rapid.T, draws []uint64, child *child, seen *traffic) {
	seen.sequences.Add(1)
	w, m := newWorld(), newModel()
	var outcomes []Outcome
	done := map[RequestID]Result{}
	for _, draw := range draws {
		entry := w.next(draw)
		before := w.state
		out, err := w.propose(entry)
		if err != nil {
			t.Fatalf("propose: %v", err)
		}
		outcomes = append(outcomes, out)
		m = follow(t, m, entry, before, out, done, seen)
		if diff := m.differs(w.state); diff != "" {
			t.Fatalf("state and model differ: %s", diff)
		}
	}
	if w.state.Hash() != w.state.FullHash() {
		t.Fatalf("kept hash %s, computed anew %s", w.state.Hash(), w.state.FullHash())
	}
	checkSnapshots(t, w, checkReplay(t, w, outcomes))
	if got, want := child.replay(t, w.entries), fingerprint(w.state); got != want {
		t.Fatalf("another process: %s, here: %s", got, want)
	}
}

// follow applies the entry to the model, and checks that the state decided alike, that
// refusals changed nothing, and that revisions count the rows written.
func follow(t *rapid.T, m *model, e *Entry, before *State, out Outcome, done map[RequestID]Result, seen *traffic) *model {
	if out.State.Time() != max(before.Time(), e.Time) {
		t.Fatalf("time %d after %d and an entry of %d", out.State.Time(), before.Time(), e.Time)
	}
	for i, c := range out.Changes {
		if c.Revision != before.Revision()+Revision(i)+1 || c.After != nil && c.After.Revision() != c.Revision {
			t.Fatalf("change %d of %s has revision %d after %d", i, c.Key(), c.Revision, before.Revision())
		}
	}
	if out.State.Revision() != before.Revision()+Revision(len(out.Changes)) {
		t.Fatalf("revision %d after %d and %d changes", out.State.Revision(), before.Revision(), len(out.Changes))
	}
	at := before.Revision()
	for i := range e.Txns {
		txn, result := &e.Txns[i], out.Results[i]
		if first, ok := done[txn.ID]; ok {
			if !reflect.DeepEqual(first, result) {
				t.Fatalf("retry gave %+v, first was %+v", result, first)
			}
			seen.retries.Add(1)
			continue
		}
		if txn.ID != (RequestID{}) && (result.Refusal == nil || result.Refusal.Key != "id.seen") {
			done[txn.ID] = result
		}
		var next *model
		if m.guards(txn.Guards, out.State.Time()) {
			next = m.txn(txn)
		}
		switch {
		case result.Refusal == nil && next == nil:
			t.Fatalf("done, and the model refuses: %+v", txn)
		case result.Refusal == nil:
			seen.count(m, next)
			m = next
		case next != nil && result.Refusal.Key != "id.seen":
			t.Fatalf("refused, and the model agrees to %+v: %s", txn, result.Refusal)
		}
		if result.Refusal != nil {
			seen.refused[result.Refusal.Kind].Add(1)
			if result.Revision != at {
				t.Fatalf("refused at revision %d, was %d", result.Revision, at)
			}
		}
		m.stores(out.Changes[at-before.Revision() : result.Revision-before.Revision()])
		at = result.Revision
	}
	m.stores(out.Changes[at-before.Revision():])
	for i := range e.Reports {
		if refusal := out.Results[i].Refusal; refusal != nil {
			seen.refused[refusal.Kind].Add(1)
			continue
		}
		// Reports write no fence: those before the entry still count.
		fences := map[string]Revision{}
		for h := range before.Row(e.Reports[i].Account).Account.Holds() {
			fences[h.Holder] = h.Fence
		}
		m.report(&e.Reports[i], fences)
		seen.reports.Add(1)
	}
	return m
}

// checkReplay applies the entries anew, as a binary that knows a newer behaviour version, and
// returns the state half way.
func checkReplay(t *rapid.T, w *world, outcomes []Outcome) (half *State) {
	again := New()
	for i, data := range w.entries {
		if i == len(w.entries)/2 {
			half = again
		}
		out, err := again.apply(data, SupportedBehaviour+1)
		if err != nil {
			t.Fatalf("replay: %v", err)
		}
		if out.State.Hash() != outcomes[i].State.Hash() || !reflect.DeepEqual(out.Results, outcomes[i].Results) {
			t.Fatalf("entry %d has another outcome the second time", i)
		}
		again = out.State
	}
	return half
}

func checkSnapshots(t *rapid.T, w *world, half *State) {
	restored, err := ReadSnapshot(bytes.NewReader(snapshotOf(t, half)))
	if err != nil {
		t.Fatalf("%v", err)
	}
	for _, data := range w.entries[len(w.entries)/2:] {
		restored = mustApply(t, restored, data).State
	}
	if restored.Hash() != w.state.Hash() || !bytes.Equal(snapshotOf(t, restored), snapshotOf(t, w.state)) {
		t.Fatalf("snapshot and suffix give another state")
	}
}

type fataler interface{ Fatalf(string, ...any) }

func mustApply(t fataler, s *State, data []byte) Outcome {
	out, err := s.Apply(data)
	if err != nil {
		t.Fatalf("apply: %v", err)
	}
	return out
}

func snapshotOf(t fataler, s *State) []byte {
	var b bytes.Buffer
	if err := WriteSnapshot(&b, s); err != nil {
		t.Fatalf("%v", err)
	}
	return b.Bytes()
}

// traffic counts what the sequences did: a run that did nothing proves nothing.
type traffic struct {
	sequences, holds, ends, retries, reports atomic.Int64
	refused                                  [RefusedInvalid + 1]atomic.Int64
}

func (s *traffic) count(before, after *model) {
	holds := func(m *model) (n int64) {
		for _, b := range m.books {
			n += int64(len(b.holds))
		}
		return n
	}
	s.holds.Add(max(0, holds(after)-holds(before)))
	s.ends.Add(max(0, holds(before)-holds(after)))
}

func (s *traffic) require(t *testing.T) {
	n := s.sequences.Load()
	t.Logf("%d sequences: %d holds, %d ends, %d retries, %d reports", n, s.holds.Load(), s.ends.Load(), s.retries.Load(), s.reports.Load())
	require.Greater(t, s.holds.Load(), 5*n)
	require.Greater(t, s.ends.Load(), 3*n)
	require.Greater(t, s.retries.Load(), 2*n)
	require.Greater(t, s.reports.Load(), 4*n)
	for kind := RefusedGuard; kind <= RefusedInvalid; kind++ {
		if kind != RefusedUnknown { // needs 65,536 results; has a test of its own
			require.Positive(t, s.refused[kind].Load(), "refusals of kind %s", kind)
		}
	}
}
