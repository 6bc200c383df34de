package cluster

import (
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/bourse-dev/bourse/fsm"
)

// In the bubble's time, where only applying takes any, and Raft's timers.
func TestAWriteAtAFollowerWaitsForNoTimer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := startMemoryGroup(t, 3, rand.New(rand.NewPCG(1, 2)))
		defer func() {
			for _, n := range g.running() {
				g.stop(n.ID())
			}
		}()
		leader := g.leader()
		for _, n := range g.running() {
			if n.ID() == leader.ID() {
				continue
			}
			for range 20 {
				started := time.Now()
				_, err := n.Write(t.Context(), fsm.Txn{Writes: []fsm.Write{{Key: "a/b", Body: []byte("x")}}})
				require.NoError(t, err)
				require.Less(t, time.Since(started), n.cfg.CommitTimeout)
			}
		}
	})
}

// messages records what is sent; each is answered by the test.
type messages struct {
	transport
	sent   []*raft.AppendEntriesRequest
	answer func(*raft.AppendEntriesResponse) error
}

func (m *messages) AppendEntries(_ raft.ServerID, _ raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	sent := *args
	m.sent = append(m.sent, &sent)
	return m.answer(resp)
}

func TestAFollowerIsToldOnlyWhatItHasAndDoesNotKnow(t *testing.T) {
	t.Parallel()
	took := func(r *raft.AppendEntriesResponse) error { r.Success = true; return nil }
	refused := func(*raft.AppendEntriesResponse) error { return nil }
	lost := func(*raft.AppendEntriesResponse) error { return errors.New("lost") }
	entries := func(term, commit uint64) raft.AppendEntriesRequest {
		return raft.AppendEntriesRequest{
			Term: term, PrevLogEntry: 7, PrevLogTerm: 2, LeaderCommitIndex: commit,
			Entries: []*raft.Log{{Index: 8, Term: term}, {Index: 9, Term: term}},
		}
	}
	for name, c := range map[string]struct {
		message     raft.AppendEntriesRequest
		answer      func(*raft.AppendEntriesResponse) error
		index, term uint64 // committed
		want        uint64 // what is told; 0: nothing
	}{
		"a commit of what it has":              {entries(3, 7), took, 9, 3, 9},
		"a commit in the middle":               {entries(3, 7), took, 8, 3, 8},
		"a commit of more than it has":         {entries(3, 7), took, 12, 3, 9},
		"Raft has told it":                     {entries(3, 9), took, 9, 3, 0},
		"the commit is of an earlier term":     {entries(3, 7), took, 9, 2, 0},
		"the message is of an earlier term":    {entries(3, 7), took, 9, 4, 0},
		"it refused the entries":               {entries(3, 7), refused, 9, 3, 0},
		"nobody knows whether it has them":     {entries(3, 7), lost, 9, 3, 0},
		"a heartbeat says nothing of its log":  {raft.AppendEntriesRequest{Term: 3}, took, 9, 3, 0},
		"it took no entries but has the older": {raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 9, PrevLogTerm: 3}, took, 9, 3, 9},
	} {
		for order, first := range map[string]bool{"before": true, "after": false} {
			t.Run(name+"/committed "+order, func(t *testing.T) {
				t.Parallel()
				m := &messages{answer: c.answer}
				teller := newCommitTeller(m)
				if first {
					teller.committed(c.index, c.term)
				}
				_ = teller.AppendEntries("n2", "", &c.message, &raft.AppendEntriesResponse{}) // it may be lost
				if !first {
					teller.committed(c.index, c.term)
				}
				teller.stop()
				if c.want == 0 {
					require.Len(t, m.sent, 1)
					return
				}
				require.Len(t, m.sent, 2)
				require.Equal(t, &raft.AppendEntriesRequest{
					Term: 3, PrevLogEntry: 9, PrevLogTerm: 3, LeaderCommitIndex: c.want,
				}, m.sent[1])
			})
		}
	}
}
