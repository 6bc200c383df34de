package cluster

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bourse-dev/bourse/fsm"
)

// A leader has committed, and a follower has applied and shown, what the leader has yet to apply: a
// linearizable read waits for it.
func TestAReadWaitsForWhatAFollowerMayHaveShown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := startMemoryGroup(t, 3, rand.New(rand.NewPCG(1, 2)))
		defer func() {
			for _, n := range g.running() {
				g.stop(n.ID())
			}
		}()
		leader := g.leader()
		follower := g.node(g.others(leader.ID())[0])
		leader.slow.stalled.Store(int64(time.Second))
		written := make(chan error, 1)
		go func() {
			_, err := leader.Write(t.Context(), fsm.Txn{Writes: []fsm.Write{{Key: "a/b", Body: []byte("x")}}})
			written <- err
		}()
		time.Sleep(500 * time.Millisecond) // in the bubble: long enough for followers to hear of it
		shown := follower.db.State()
		require.NotNil(t, shown.Row("a/b"))
		require.Nil(t, leader.db.State().Row("a/b"))
		revision, err := leader.ReadIndex(t.Context())
		require.NoError(t, err)
		require.GreaterOrEqual(t, revision, shown.Revision())
		require.NoError(t, <-written)
	})
}

// Its maker's node would have to be ahead of this one for ever.
func TestAnIntentFromAStateThatNeverComesIsNotProposed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := startMemoryGroup(t, 1, rand.New(rand.NewPCG(1, 2)))
		defer func() { g.stop("n1") }()
		leader := g.leader()
		ahead := leader.db.State().Revision() + 1
		_, err := leader.enter(t.Context(), NewIntent(&fsm.Txn{
			ID: fsm.RequestID{Seen: ahead, Random: 1}, Writes: []fsm.Write{{Key: "a/b", Body: []byte("x")}},
		}, nil))
		require.ErrorIs(t, err, ErrNotProposed)
		require.Nil(t, leader.db.State().Row("a/b"))
	})
}

func TestReachGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &machine{}
		m.reached(3)
		require.NoError(t, m.reach(3, time.Second))
		require.ErrorContains(t, m.reach(4, time.Second), "log entry 4 not applied")
	})
}
