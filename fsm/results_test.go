package fsm

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func withID(id RequestID, key string) Txn {
	return Txn{ID: id, Guards: []Guard{GuardAbsent(key)}, Writes: []Write{{Key: key, Body: []byte("x")}}}
}

func TestARetryGetsTheFirstResult(t *testing.T) {
	t.Parallel()
	b := newBench(t, cores(1))
	id := RequestID{Seen: b.state.Revision(), Random: 7}
	first := b.must(withID(id, "namespaces/rome"))
	b.must(Txn{Writes: []Write{{Key: "namespaces/paris", Body: []byte("x")}}})
	require.Equal(t, first, b.txn(withID(id, "namespaces/rome")))
	// Also within one entry, and also a refusal.
	id.Random++
	out := b.entry(&Entry{Txns: []Txn{withID(id, "namespaces/rome"), withID(id, "namespaces/rome")}})
	require.Equal(t, RefusedExists, out.Results[0].Refusal.Kind)
	require.Equal(t, out.Results[0], out.Results[1])
	require.Equal(t, 2, b.state.Results())
}

// fill remembers n more results, each refused, so that no revision is used up.
func (b *bench) fill(n int, random *uint64) {
	for n > 0 {
		e := &Entry{Time: b.now}
		for range min(n, MaxCommands) {
			*random++
			e.Txns = append(e.Txns, Txn{ID: RequestID{Seen: b.state.Revision(), Random: *random}, Guards: []Guard{{Key: "x", Part: PartBody, Revision: 1}}})
		}
		n -= len(e.Txns)
		data, err := EncodeEntry(e)
		require.NoError(b.t, err)
		b.state = mustApply(b.t, b.state, data).State
	}
}

func TestForgottenIdsAreNeverRunAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, cores(1))
	old := RequestID{Seen: b.state.Revision(), Random: 1 << 60}
	b.must(withID(old, "namespaces/rome"))
	b.must(Txn{Writes: []Write{{Key: "namespaces/rome", Delete: true}}})
	random := uint64(0)
	b.fill(MaxResults, &random)
	require.Equal(t, MaxResults, b.state.Results())
	require.Equal(t, RefusedUnknown, b.txn(withID(old, "namespaces/rome")).Refusal.Kind)
	require.Nil(t, b.state.Row("namespaces/rome"))
	require.Equal(t, b.state.FullHash(), b.state.Hash())

	// The newest are all there, in order, also after a snapshot.
	restored, err := ReadSnapshot(bytes.NewReader(snapshotOf(t, b.state)))
	require.NoError(t, err)
	require.Equal(t, b.state.Hash(), restored.Hash())
	next := uint64(1)
	for r := range restored.results.all() {
		require.Equal(t, next, r.id.Random)
		next++
	}
	require.Equal(t, uint64(MaxResults+1), next)
	require.Equal(t, RefusedUnknown, restoredTxn(t, restored, withID(old, "namespaces/rome")).Refusal.Kind)
}

func restoredTxn(t *testing.T, s *State, txn Txn) Result {
	data, err := EncodeEntry(&Entry{Txns: []Txn{txn}})
	require.NoError(t, err)
	return mustApply(t, s, data).Results[0]
}

func TestRefusalsAloneDoNotShutOutLaterRequests(t *testing.T) {
	t.Parallel()
	b := newBench(t, cores(1))
	random := uint64(0)
	b.fill(MaxResults+10, &random)
	// Nothing was written since: an id of the present revision is surely new enough.
	b.must(withID(RequestID{Seen: b.state.Revision(), Random: random + 1}, "namespaces/rome"))
	require.Equal(t, RefusedUnknown, b.txn(withID(RequestID{Seen: 1, Random: 1 << 60}, "namespaces/paris")).Refusal.Kind)
}

func TestTwoStatesMadeFromOneDoNotMix(t *testing.T) {
	t.Parallel()
	b := newBench(t, cores(1))
	random := uint64(0)
	b.fill(100, &random)
	left, right := *b, *b
	one, two := uint64(1000), uint64(2000)
	left.fill(200, &one)
	right.fill(200, &two)
	require.Equal(t, left.state.FullHash(), left.state.Hash())
	require.Equal(t, right.state.FullHash(), right.state.Hash())
	require.NotEqual(t, left.state.Hash(), right.state.Hash())
}
