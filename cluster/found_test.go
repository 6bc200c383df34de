package cluster

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// idle is a node with an empty directory that founds nothing by itself.
func idle(g *group, id string) *Node {
	g.t.Helper()
	cfg, f := testConfig(g.t, id)
	cfg.JoinInterval = patience
	g.cfgs[id], g.fatals[id] = cfg, f
	return g.start(id)
}

func TestADirectoryIsPledgedToOneExchangeOnly(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	n := idle(g, "n5")
	ask := func(founder, cluster string, abandoned ...string) pledge {
		p, err := n.handleOffer(context.Background(), hello{From: founder}, offer{ClusterID: cluster, Founder: founder, Abandoned: abandoned})
		require.NoError(t, err)
		return p
	}
	require.False(t, ask("n2", "c2").Refused)
	require.False(t, ask("n2", "c2").Refused, "asked again")
	require.True(t, ask("n1", "c1").Refused)
	require.Equal(t, "c2", n.disk.Identity().ClusterID)
	require.False(t, ask("n1", "c1", "c2").Refused, "its founder gave c2 up")
	require.Equal(t, "c1", n.disk.Identity().ClusterID)

	_, err := n.handleOffer(context.Background(), hello{From: "n3"}, offer{ClusterID: "c1", Founder: "n1"})
	require.ErrorIs(t, err, ErrInvalid, "in another's name")
}

func TestAFounderGivesUpForASmallerOneButNotOnceItHasFounded(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	n := idle(g, "n5")
	own, err := n.ownExchange()
	require.NoError(t, err)
	again, err := n.ownExchange()
	require.NoError(t, err)
	require.Equal(t, own, again)

	p, err := n.handleOffer(context.Background(), hello{From: "n9"}, offer{ClusterID: "c9", Founder: "n9"})
	require.NoError(t, err)
	require.True(t, p.Refused, "a greater id yields")
	p, err = n.handleOffer(context.Background(), hello{From: "n1"}, offer{ClusterID: "c1", Founder: "n1"})
	require.NoError(t, err)
	require.False(t, p.Refused)
	require.Equal(t, own, p.GaveUp)
	require.ErrorContains(t, n.bootstrap(own, []string{"n5"}), "given up")
	require.False(t, n.founded())

	lone := startGroup(t, 1, nil).nodes["n1"]
	p, err = lone.handleOffer(context.Background(), hello{From: "a1"}, offer{ClusterID: "c1", Founder: "a1"})
	require.NoError(t, err)
	require.True(t, p.Refused)
}

func TestMoreNodesThanExpectedFoundOneExchange(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	for i := range 5 {
		cfg, f := testConfig(t, fmt.Sprintf("n%d", 5-i)) // the greatest first
		cfg.BootstrapExpect = 3
		g.cfgs[cfg.NodeID], g.fatals[cfg.NodeID] = cfg, f
		g.start(cfg.NodeID)
	}
	clusters := map[string]bool{}
	for _, n := range g.nodes {
		g.ready(n)
		clusters[n.disk.Identity().ClusterID] = true
	}
	require.Len(t, clusters, 1)
	g.eventually("five voters", func() bool {
		voters := 0
		for _, m := range g.leader().Status(testContext(t)).Members {
			if m.Suffrage == "voter" {
				voters++
			}
		}
		return voters == 5
	})
}
