package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// add gives the group one more, empty node that joins.
func (g *group) add(id string) *Node {
	g.t.Helper()
	cfg, f := testConfig(g.t, id)
	g.cfgs[id], g.fatals[id] = cfg, f
	return g.start(id)
}

func (g *group) suffrage(id string) string {
	for _, m := range g.leader().Status(testContext(g.t)).Members {
		if m.ID == id {
			return m.Suffrage
		}
	}
	return ""
}

func TestANewNodeJoinsBySnapshotAndGetsItsVote(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 1, func(c *Config) { c.TrailingLogs = 1 })
	n1 := g.nodes["n1"]
	for i := range 100 {
		mustPut(t, n1, fmt.Sprintf("things/%d", i), "x")
	}
	require.NoError(t, n1.raft.Snapshot().Error())
	n2 := g.add("n2")
	g.ready(n2)
	require.Equal(t, "x", bodyAt(t, n2, "things/99"))
	require.NotZero(t, n2.DB().Counters().Restores, "it must have come by snapshot")
	g.eventually("n2 votes", func() bool { return g.suffrage("n2") == "voter" })

	// It comes back from its snapshot, at another address.
	mustPut(t, n2, "things/more", "y")
	g.stop("n2")
	n2 = g.start("n2")
	g.ready(n2)
	require.Equal(t, "y", bodyAt(t, n2, "things/more"))
}

func TestANewNodeFindsAnExchangeWhoseFounderIsGone(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 1, nil)
	n2 := g.add("n2")
	g.ready(n2)
	g.eventually("n2 votes", func() bool { return g.suffrage("n2") == "voter" })
	require.NoError(t, n2.RemovePeer(testContext(t), "n1"))
	g.fatals["n1"].wait(t)
	g.stop("n1")

	// Everybody who is left joined, too, and has not been started again since.
	g.ready(g.add("n3"))
}

func TestAnIDWithAnotherDirectoryIsRefusedUntilRemovePeer(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 3, nil)
	mustPut(t, g.leader(), "things/a", "1")
	victim := g.follower().ID()
	g.stop(victim)

	cfg, f := testConfig(t, victim) // the same id, an empty directory
	g.cfgs[victim], g.fatals[victim] = cfg, f
	impostor := g.start(victim)
	code, err := f.wait(t)
	require.Equal(t, ExitRefused, code)
	require.ErrorIs(t, err, store.ErrIdentity)
	require.ErrorContains(t, err, "remove-peer "+victim)
	select {
	case <-impostor.Ready():
		t.Fatal("a refused node must not be ready")
	default:
	}
	g.stop(victim)

	require.ErrorIs(t, g.leader().RemovePeer(testContext(t), "n99"), ErrUnknownNode)
	require.NoError(t, g.follower().RemovePeer(testContext(t), victim))
	require.Nil(t, g.leader().DB().State().Row(nodeKey(victim)))
	require.Empty(t, g.suffrage(victim))
	g.ready(g.start(victim))
	require.Equal(t, "1", bodyAt(t, g.nodes[victim], "things/a"))
}

func TestANodeFollowsALeaderThatWasReplacedSinceItsSnapshot(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 3, nil)
	leader := g.leader()
	var behind, replaced string
	for id, n := range g.nodes {
		switch {
		case n == leader:
		case behind == "":
			behind = id
		default:
			replaced = id
		}
	}
	require.NoError(t, g.nodes[behind].raft.Snapshot().Error(), "it knows the old directory")
	g.stop(replaced)
	require.NoError(t, leader.RemovePeer(testContext(t), replaced))
	g.ready(g.add(replaced))
	g.eventually("the new one votes", func() bool { return g.suffrage(replaced) == "voter" })
	require.NoError(t, leader.TransferLeadership(testContext(t), replaced))
	g.eventually("the new one leads", g.nodes[replaced].IsLeader)

	// It begins with its snapshot: what came since is in its log, but only a leader can say that it counts.
	g.stop(behind)
	g.stop(leader.ID())
	g.ready(g.start(behind))
}

func TestAnEmptyDirectoryGetsNoSayBeforeALeaderLetItIn(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 3, nil)
	lagging, lost := g.follower().ID(), g.leader().ID()
	g.stop(lagging)
	mustPut(t, g.leader(), "things/a", "1") // on the disks of the two others
	for id := range g.nodes {
		g.stop(id)
	}
	// One of them comes back with an empty disk, the other not yet. The one that lags has taken no
	// snapshot: it does not know whose directory is whose.
	candidate := g.start(lagging)
	empty := g.add(lost)
	g.eventually("it has found the exchange", func() bool { return empty.disk.Identity().ClusterID != "" })
	g.eventually("they know each other", func() bool { _, ok := candidate.book.lookup(lost); return ok })
	var vote raft.RequestVoteResponse
	err := candidate.trans.RequestVote(raft.ServerID(lost), "", &raft.RequestVoteRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(lagging), Addr: []byte(lagging)},
		Term:      99, LastLogIndex: candidate.raft.LastIndex(), LastLogTerm: 1,
	}, &vote)
	require.False(t, vote.Granted, "with that vote it leads, and what was acknowledged is gone")
	require.ErrorIs(t, err, ErrForbidden)
}

func TestRemovingTheLeaderHandsOverFirstAndStopsIt(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 3, nil)
	leader := g.leader().ID()
	require.NoError(t, g.follower().RemovePeer(testContext(t), leader))
	code, _ := g.fatals[leader].wait(t)
	require.Equal(t, ExitRemoved, code)
	g.stop(leader)
	mustPut(t, g.follower(), "things/a", "1")
	require.Len(t, g.leader().Status(testContext(t)).Members, 2)
}

// The steward asked it before it was removed: its answer must not bring it back, with a vote at that.
func TestANodeRemovedSinceItWasAskedGetsNoVote(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 1, nil)
	n1 := g.nodes["n1"]
	require.NoError(t, n1.promote(raft.Server{Suffrage: raft.Nonvoter, ID: "n9", Address: "127.0.0.1:1"}))
	require.Len(t, n1.servers(), 1)
	mustPut(t, n1, "things/a", "still a group of one")
}

// Lost and regained before the owner heard of it: the gate is still that of the earlier term, and
// what another leader wrote in between may not be applied here yet.
func TestNoReadPointThroughTheGateOfAnEarlierTerm(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 1, nil)
	n1 := g.leader()
	present := n1.gate.Load()
	_, err := n1.readIndexHere(testContext(t))
	require.NoError(t, err)
	n1.gate.Store(&Leadership{cfg: present.cfg, rooms: present.rooms, number: present.number - 1})
	_, err = n1.readIndexHere(testContext(t))
	require.ErrorIs(t, err, ErrNotLeader)
}

func TestADirectoryOfAnotherExchangeIsRefused(t *testing.T) {
	t.Parallel()
	a := startGroup(t, 1, nil)
	b := startGroup(t, 3, nil)
	for id := range b.cfgs {
		b.stop(id)
	}
	b.nodes["elsewhere"] = a.nodes["n1"] // start joins whoever is listed
	b.start("n2")
	code, err := b.fatals["n2"].wait(t)
	require.Equal(t, ExitRefused, code)
	require.ErrorIs(t, err, ErrWrongCluster)
}

func TestTransferStatusHashesAndSnapshotWorkOnEveryNode(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 3, nil)
	mustPut(t, g.leader(), "things/a", "1")
	old := g.leader()
	to := g.follower()
	require.NoError(t, to.TransferLeadership(testContext(t), to.ID()))
	g.eventually("leadership moved", func() bool { return to.IsLeader() && !old.IsLeader() })
	err := old.TransferLeadership(testContext(t), "n99")
	require.ErrorIs(t, err, ErrUnknownNode)

	for _, n := range g.nodes {
		_, err := n.ReadIndex(testContext(t))
		require.NoError(t, err)
	}
	for _, n := range g.nodes {
		s := n.Status(testContext(t))
		require.Equal(t, ViewLeader, s.View)
		require.Equal(t, to.ID(), s.Leader)
		require.Len(t, s.Members, 3)
		for _, m := range s.Members {
			require.True(t, m.Reachable, m.Error)
			require.Equal(t, m.ID == to.ID(), m.Leader)
			require.Positive(t, m.LogBytes)
		}
		g.eventually("equal hashes", func() bool {
			h := n.StateHashes(context.Background())
			return h.Equal && h.Index > 0 && len(h.Members) == 3
		})
		var b bytes.Buffer
		revision, err := n.Snapshot(testContext(t), &b)
		require.NoError(t, err)
		state, err := fsm.ReadSnapshot(&b)
		require.NoError(t, err)
		require.Equal(t, revision, state.Revision())
		require.NotNil(t, state.Row("things/a"))
	}
}

// A follower whose disk was full for a moment would never get another entry; see startRaft.
func TestReplicationIsNotPipelined(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 3, nil)
	to := g.follower()
	_, err := g.leader().trans.AppendEntriesPipeline(raft.ServerID(to.ID()), raft.ServerAddress(to.ID()))
	require.ErrorIs(t, err, raft.ErrPipelineReplicationNotSupported)
}

func TestWithoutAMajoritySurelyNothingOrUnknown(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 3, func(c *Config) { c.LeaderWait = 1 })
	f := g.follower()
	g.eventually("the follower has applied it", func() bool { return f.DB().State().Row(nodeKey("n1")) != nil })
	for id := range g.cfgs {
		if id != f.ID() {
			g.stop(id)
		}
	}
	g.eventually("the follower knows of no leader", func() bool { return f.Leader() == "" })
	_, err := put(testContext(t), f, "things/a", "1")
	require.ErrorIs(t, err, store.ErrNoLeader)
	require.NotErrorIs(t, err, store.ErrUnknownOutcome)
	_, err = f.ReadIndex(testContext(t))
	require.ErrorIs(t, err, store.ErrNoLeader)
	require.NotNil(t, f.DB().State().Row(nodeKey("n1")), "stale reads go on")
}

func TestIntentsMayNotWriteWhatBelongsToRoomsAndTheGroup(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 1, func(c *Config) { c.GossipListen = "" })
	n := g.nodes["n1"]
	for name, txn := range map[string]fsm.Txn{
		"ledger": {Writes: []fsm.Write{{Key: "things/a", Ledger: &fsm.Ledger{}}}},
		"moves":  {Moves: []fsm.Move{{Op: fsm.MoveRelease, Account: "a", Holder: "b"}}},
		"nodes":  {Writes: []fsm.Write{{Key: "nodes/n1", Delete: true}}},
	} {
		_, err := n.Write(testContext(t), txn)
		require.ErrorIs(t, err, ErrInvalid, name)
	}
	_, err := n.Write(testContext(t), fsm.Txn{Writes: []fsm.Write{{Key: "things/a", Body: make([]byte, MaxCommandBytes)}}})
	require.ErrorIs(t, err, ErrTooLarge)
}

func TestARetryWithTheSameIDIsDoneOnce(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 1, func(c *Config) { c.GossipListen = "" })
	n := g.nodes["n1"]
	txn := fsm.Txn{
		ID:     n.NewRequestID(),
		Guards: []fsm.Guard{{Key: "things/a", Part: fsm.PartRow}},
		Writes: []fsm.Write{{Key: "things/a", Body: []byte("1")}},
	}
	first, err := n.Write(testContext(t), txn)
	require.NoError(t, err)
	second, err := n.Write(testContext(t), txn)
	require.NoError(t, err)
	require.Equal(t, first, second)
}

func TestAnUnknownCommandStopsTheNode(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 1, func(c *Config) { c.GossipListen = "" })
	n := g.nodes["n1"]
	before := n.DB().State()
	f := n.raft.Apply([]byte("\x07 from a newer version"), patience)
	require.NoError(t, f.Error())
	require.Error(t, f.Response().(error))
	code, err := g.fatals["n1"].wait(t)
	require.Equal(t, ExitUnknownCommand, code)
	require.ErrorIs(t, err, fsm.ErrUnknownCommand)
	require.True(t, n.Failed())
	// It applies nothing more, and accepts nothing more.
	_, err = n.submitHere(testContext(t), NewIntent(&fsm.Txn{Writes: []fsm.Write{{Key: "a/b"}}}, nil))
	require.ErrorIs(t, err, ErrNotLeader)
	require.Equal(t, before.Revision(), n.DB().State().Revision())
}

func TestADifferentMinorityIsFoundAndStopsItself(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 3, nil)
	mustPut(t, g.leader(), "things/a", "1")
	bad := g.follower()
	// As if memory had flipped: this replica remembers another state after the next entries.
	bad.machine.hashes.mu.Lock()
	for i := range bad.machine.hashes.recent {
		bad.machine.hashes.recent[i].hash[0] ^= 1
	}
	bad.machine.hashes.mu.Unlock()
	code, err := g.fatals[bad.ID()].wait(t)
	require.Equal(t, ExitDiverged, code)
	require.ErrorContains(t, err, "majority")
	for id, f := range g.fatals {
		if id != bad.ID() {
			require.Empty(t, f.came, id)
		}
	}
	require.True(t, errors.Is(ErrHalted, ErrNotProposed))
}
