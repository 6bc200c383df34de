package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bourse-dev/bourse/fsm"
)

func TestWhatARoomHasNotAnsweredIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	q := newIntentQueue(&scripted{})
	large := func() *Intent { return NewIntent(ptr(write("a/1", MaxCommandBytes)), nil) }
	var open []*Intent
	for range 3 * maxOpenBytes / MaxCommandBytes {
		intent := large()
		if err := q.add(intent); err != nil {
			require.ErrorIs(t, err, ErrOverloaded)
			require.ErrorContains(t, err, "bytes for room scripted")
			break
		}
		open = append(open, intent)
	}
	require.Len(t, open, maxOpenBytes/(MaxCommandBytes+intentOverhead))

	for taken := 0; taken < len(open); {
		step := q.take()
		require.Len(t, step, min(maxBytesPerStep/MaxCommandBytes, len(open)-taken), "a step decodes what it is given")
		taken += len(step)
	}
	require.ErrorIs(t, q.add(large()), ErrOverloaded, "the room has them still, whoever waits")
	open[0].end(Reply{})
	open[0].end(Reply{})
	require.NoError(t, q.add(large()))
	require.ErrorIs(t, q.add(large()), ErrOverloaded, "an answer counts once")
}

func TestWhatARoomHasNotAnsweredIsBoundedInNumber(t *testing.T) {
	t.Parallel()
	q := newIntentQueue(&scripted{})
	small := func() *Intent { return NewIntent(nil, &fsm.Report{}) }
	first := small()
	require.NoError(t, q.add(first))
	for range maxOpenIntents - 1 {
		require.NoError(t, q.add(small()))
	}
	require.ErrorIs(t, q.add(small()), ErrOverloaded)
	require.Len(t, q.take(), maxIntentsPerStep)
	require.ErrorIs(t, q.add(small()), ErrOverloaded, "the room has them still")
	first.end(Reply{})
	last := small()
	require.NoError(t, q.add(last))

	q.end()
	require.ErrorIs(t, (<-last.Replied()).Err, ErrNotLeader)
	require.ErrorIs(t, q.add(small()), ErrNotLeader)
	require.Equal(t, maxIntentsPerStep-1, q.open, "who was unseen is answered and counts no more")
}
