package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOneNodeFoundsWritesAndComesBackFromDisk(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 1, func(c *Config) { c.GossipListen = "" })
	n := g.nodes["n1"]
	mustPut(t, n, "things/a", "1")
	require.Equal(t, "1", bodyAt(t, n, "things/a"))
	before := n.DB().State()

	g.stop("n1")
	n = g.start("n1")
	g.ready(n)
	require.Equal(t, "1", bodyAt(t, n, "things/a"))
	require.GreaterOrEqual(t, n.DB().State().Revision(), before.Revision())
	require.GreaterOrEqual(t, n.DB().State().Time(), before.Time())
}

func TestThreeNodesWriteThroughAFollowerAndSurviveTheLeader(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 3, nil)
	mustPut(t, g.follower(), "things/a", "1")
	for _, n := range g.nodes {
		require.Equal(t, "1", bodyAt(t, n, "things/a"), n.ID())
	}
	old := g.leader().ID()
	g.stop(old)
	for _, n := range g.nodes {
		mustPut(t, n, "things/"+n.ID(), "2")
	}
	back := g.start(old) // at other ports
	g.ready(back)
	for id := range g.nodes {
		if id != old {
			require.Equal(t, "2", bodyAt(t, back, "things/"+id))
		}
	}
}
