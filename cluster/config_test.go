package cluster

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/bourse-dev/bourse/fsm"
)

func TestValidateReportsAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	c.NodeID, c.RaftListen, c.GossipListen = "N_1", "nowhere", "0.0.0.0:7442"
	c.Join, c.BootstrapExpect = []string{"a:1"}, 1
	c.GossipKey = make([]byte, 5)
	c.LeaseTimeout = 2 * c.HeartbeatTimeout
	err := c.Validate()
	for _, want := range []string{
		`node-id "N_1"`, "data-dir", `raft-listen "nowhere"`, "gossip-advertise", "bootstrap-expect 1",
		"tls:", "gossip-key", "LeaderLeaseTimeout",
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestInsecureIsForLoopbackOnly(t *testing.T) {
	t.Parallel()
	c, _ := testConfig(t, "n1")
	c.BootstrapExpect = 1
	require.NoError(t, c.Validate())
	for _, addr := range []string{"0.0.0.0:1", "192.0.2.1:1", "example.org:1", ":1"} {
		c.RaftListen, c.RaftAdvertise = addr, "192.0.2.1:1"
		require.ErrorContains(t, c.Validate(), "loopback", addr)
	}
}

func TestTheHeartbeatAloneSetsRaftsPace(t *testing.T) {
	t.Parallel()
	for _, heartbeat := range []time.Duration{100 * time.Millisecond, time.Second} {
		c, _ := testConfig(t, "n1")
		c.HeartbeatTimeout, c.ElectionTimeout, c.LeaseTimeout = heartbeat, DefaultConfig().ElectionTimeout, DefaultConfig().LeaseTimeout
		require.NoError(t, c.Validate())
		raftConfig := c.raftConfig()
		require.Equal(t, heartbeat, raftConfig.ElectionTimeout)
		require.Equal(t, heartbeat, raftConfig.LeaderLeaseTimeout)
	}
}

func probeOf(id string, voter bool, hashes ...hashMark) probe {
	p := probe{server: raft.Server{ID: raft.ServerID(id), Suffrage: raft.Nonvoter}}
	if voter {
		p.server.Suffrage = raft.Voter
	}
	p.report.Hashes = hashes
	return p
}

func TestHashesAreJudgedAtOneEntryByTheMajorityOfAllVoters(t *testing.T) {
	t.Parallel()
	at := func(index uint64, hash string) hashMark { return hashMark{index, fsm.Revision(index), hash} }
	down := probeOf("n3", true)
	down.err = errTest
	for name, c := range map[string]struct {
		probes   []probe
		minority []string
		split    bool
	}{
		"all equal":                    {probes: []probe{probeOf("n1", true, at(1, "a")), probeOf("n2", true, at(1, "a"))}},
		"different entries":            {probes: []probe{probeOf("n1", true, at(1, "a")), probeOf("n2", true, at(2, "b"))}},
		"one of three":                 {probes: []probe{probeOf("n1", true, at(1, "a")), probeOf("n2", true, at(1, "b")), probeOf("n3", true, at(1, "a"))}, minority: []string{"n2"}},
		"one of two":                   {probes: []probe{probeOf("n1", true, at(1, "a")), probeOf("n2", true, at(1, "b"))}, split: true},
		"one of three, one is down":    {probes: []probe{probeOf("n1", true, at(1, "a")), probeOf("n2", true, at(1, "b")), down}, split: true},
		"a nonvoter's word counts not": {probes: []probe{probeOf("n1", true, at(1, "a")), probeOf("n2", false, at(1, "b"))}, minority: []string{"n2"}},
	} {
		v := judgeHashes(c.probes)
		var ids []string
		for _, p := range v.minority {
			ids = append(ids, string(p.server.ID))
		}
		require.Equal(t, c.minority, ids, name)
		require.Equal(t, c.split, v.split, name)
	}
}

func TestAClockAheadOfEveryOtherVoterMayNotLead(t *testing.T) {
	t.Parallel()
	n := &Node{cfg: Config{NodeID: "n1"}}
	ahead := func(id string, by time.Duration) probe {
		p := probeOf(id, true)
		p.ahead = by
		return p
	}
	down := ahead("n3", 0)
	down.err = errTest
	require.NoError(t, n.judgeClock([]probe{ahead("n1", 0)}), "nobody to compare with")
	require.NoError(t, n.judgeClock([]probe{ahead("n1", 0), ahead("n2", time.Hour), ahead("n3", time.Second)}))
	require.NoError(t, n.judgeClock([]probe{ahead("n2", -time.Hour)}), "behind is harmless")
	require.ErrorIs(t, n.judgeClock([]probe{ahead("n1", 0), ahead("n2", time.Hour), ahead("n3", time.Minute)}), errClockAhead)
	require.ErrorIs(t, n.judgeClock([]probe{ahead("n2", time.Hour), down}), errClockAhead)
}
