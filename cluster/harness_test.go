package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/bourse-dev/bourse/fsm"
)

// patience bounds every wait of these tests; reaching it is a failure.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	// memberlist doesn't wait for its last probe, which ends by its own timeout.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

// fatals records what a node told its process.
type fatals struct {
	mu    sync.Mutex
	codes []int
	errs  []error
	came  chan struct{}
}

func newFatals() *fatals { return &fatals{came: make(chan struct{}, 8)} }

func (f *fatals) add(code int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.codes, f.errs = append(f.codes, code), append(f.errs, err)
	f.came <- struct{}{}
}

func (f *fatals) wait(t *testing.T) (int, error) {
	t.Helper()
	select {
	case <-f.came:
	case <-time.After(patience):
		t.Fatal("the node was not told to stop")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.codes[0], f.errs[0]
}

func testLogger(name string) hclog.Logger {
	level := hclog.Off
	if os.Getenv("BOURSE_TEST_LOG") != "" {
		level = hclog.LevelFromString(os.Getenv("BOURSE_TEST_LOG"))
	}
	return hclog.New(&hclog.LoggerOptions{Name: name, Level: level, Output: os.Stderr})
}

// testConfig is a node on loopback with ports of its own.
func testConfig(t *testing.T, id string) (Config, *fatals) {
	t.Helper()
	f := newFatals()
	cfg := DefaultConfig()
	cfg.NodeID, cfg.DataDir = id, t.TempDir()
	cfg.RaftListen, cfg.GossipListen = "127.0.0.1:0", "127.0.0.1:0"
	cfg.Insecure = true
	cfg.JoinInterval = 20 * time.Millisecond
	cfg.StewardInterval = 50 * time.Millisecond
	// Three nodes of a race-checked test on a busy machine.
	cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaseTimeout = 500*time.Millisecond, 500*time.Millisecond, 400*time.Millisecond
	cfg.LeaderWait = patience
	cfg.Logger = testLogger(id)
	cfg.Fatal = f.add
	return cfg, f
}

// group is several nodes of one exchange in this process.
type group struct {
	t      *testing.T
	cfgs   map[string]Config
	fatals map[string]*fatals
	nodes  map[string]*Node
	rooms  func() []Room
}

func newGroup(t *testing.T) *group {
	return &group{t: t, cfgs: map[string]Config{}, fatals: map[string]*fatals{}, nodes: map[string]*Node{}}
}

// startGroup founds an exchange of n1..nN and waits until all are ready.
func startGroup(t *testing.T, size int, change func(*Config)) *group {
	t.Helper()
	g := newGroup(t)
	for i := range size {
		cfg, f := testConfig(t, fmt.Sprintf("n%d", i+1))
		cfg.BootstrapExpect = size
		if change != nil {
			change(&cfg)
		}
		g.cfgs[cfg.NodeID], g.fatals[cfg.NodeID] = cfg, f
		g.start(cfg.NodeID)
	}
	for _, n := range g.nodes {
		g.ready(n)
	}
	return g
}

// start opens the node on its directory, at new ports.
func (g *group) start(id string) *Node {
	g.t.Helper()
	cfg := g.cfgs[id]
	cfg.Join = nil
	for _, other := range g.nodes {
		cfg.Join = append(cfg.Join, other.GossipAddress())
	}
	var rooms []Room
	if g.rooms != nil {
		rooms = g.rooms()
	}
	n, err := NewNode(cfg, rooms...)
	require.NoError(g.t, err)
	g.nodes[id] = n
	g.t.Cleanup(func() { require.NoError(g.t, n.Shutdown()) })
	return n
}

func (g *group) stop(id string) {
	g.t.Helper()
	require.NoError(g.t, g.nodes[id].Shutdown())
	delete(g.nodes, id)
}

func (g *group) ready(n *Node) {
	g.t.Helper()
	select {
	case <-n.Ready():
	case <-time.After(patience):
		g.t.Fatalf("node %s is not ready: %+v", n.ID(), n.Status(context.Background()))
	}
}

// leader waits until one node leads and lets intents in.
func (g *group) leader() *Node {
	g.t.Helper()
	var leader *Node
	g.eventually("a leader", func() bool {
		for _, n := range g.nodes {
			if n.IsLeader() {
				leader = n
				return true
			}
		}
		return false
	})
	return leader
}

func (g *group) follower() *Node {
	g.t.Helper()
	leader := g.leader()
	for _, n := range g.nodes {
		if n != leader {
			return n
		}
	}
	g.t.Fatal("no follower")
	return nil
}

func (g *group) eventually(what string, ok func() bool) {
	g.t.Helper()
	require.Eventually(g.t, ok, patience, 5*time.Millisecond, what)
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// put writes a row through the node.
func put(ctx context.Context, n *Node, key, body string) (fsm.Result, error) {
	return n.Write(ctx, fsm.Txn{ID: n.NewRequestID(), Writes: []fsm.Write{{Key: key, Body: []byte(body)}}})
}

func mustPut(t *testing.T, n *Node, key, body string) fsm.Result {
	t.Helper()
	result, err := put(testContext(t), n, key, body)
	require.NoError(t, err)
	require.Nil(t, result.Refusal)
	row := n.DB().State().Row(key)
	require.NotNil(t, row, "the node that wrote must have it applied")
	return result
}

// bodyAt reads a row linearizably.
func bodyAt(t *testing.T, n *Node, key string) string {
	t.Helper()
	_, err := n.ReadIndex(testContext(t))
	require.NoError(t, err)
	row := n.DB().State().Row(key)
	if row == nil {
		return ""
	}
	return string(row.Body)
}

var errTest = errors.New("as the test wants it")
