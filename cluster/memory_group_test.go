package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// memoryGroup is a Raft group without disks and sockets, for a synctest bubble: Raft itself, and of
// this package the machine, terms, owner, read index, writer and RPC. Only gossip, membership and the
// steward are missing.
type memoryGroup struct {
	t       *testing.T
	network *memoryNetwork
	ids     []string
	disks   map[string]*memoryDisk

	mu    sync.Mutex
	nodes map[string]*memoryNode // those that run
	gates map[uint64]string      // who opened its gate in which term
	opens int
	wrong []string
}

// memoryDisk is what outlives a crash.
type memoryDisk struct {
	log       *raft.InmemStore
	snapshots *raft.InmemSnapshotStore
}

type memoryNode struct {
	*Node
	port *memoryPort
	slow *slowMachine
}

func startMemoryGroup(t *testing.T, size int, rng *rand.Rand) *memoryGroup {
	g := &memoryGroup{
		t: t, network: newMemoryNetwork(rng), disks: map[string]*memoryDisk{},
		nodes: map[string]*memoryNode{}, gates: map[uint64]string{},
	}
	var members raft.Configuration
	for i := range size {
		id := fmt.Sprintf("n%d", i+1)
		g.ids = append(g.ids, id)
		members.Servers = append(members.Servers, raftServer(id))
	}
	for _, id := range g.ids {
		disk := &memoryDisk{raft.NewInmemStore(), raft.NewInmemSnapshotStore()}
		g.disks[id] = disk
		cfg := g.config(id)
		require.NoError(t, raft.BootstrapCluster(cfg.raftConfig(), disk.log, disk.log, disk.snapshots, nil, members))
		g.start(id)
	}
	return g
}

func (g *memoryGroup) config(id string) Config {
	cfg := DefaultConfig()
	cfg.NodeID = id
	cfg.Logger = hclog.NewNullLogger()
	cfg.SnapshotThreshold, cfg.SnapshotInterval, cfg.TrailingLogs = 60, 700*time.Millisecond, 20
	cfg.LeaderWait, cfg.WriteTimeout = time.Second, 2*time.Second
	cfg.Fatal = func(code int, err error) { g.violation("%s was told to stop with %d: %v", id, code, err) }
	return cfg
}

// start runs the node on its disk, as NewNode does on a real one.
func (g *memoryGroup) start(id string) {
	disk, cfg := g.disks[id], g.config(id)
	n := &Node{
		cfg: cfg, logger: cfg.Logger, clock: clock.RealClock{}, db: store.NewDB(disk.state(g.t)),
		book: &addressBook{selfID: id, selfAddr: id, record: func(id string) (NodeRecord, bool) {
			return NodeRecord{RaftAddress: id}, true
		}},
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	port := g.network.attach(id)
	heard := newHeard(port)
	n.commits = newCommitTeller(heard)
	n.machine = &machine{
		db: n.db, hashes: &n.hashes, committed: n.commits.committed, applied: n.stateChanged, fatal: n.fatal, logger: n.logger,
	}
	slow := &slowMachine{machine: n.machine, rng: rand.New(rand.NewPCG(uint64(len(id)), uint64(g.opens)))}
	r, err := raft.NewRaft(cfg.raftConfig(), slow, disk.log, disk.log, disk.snapshots, n.commits)
	require.NoError(g.t, err)
	n.raft, n.log = r, raftLog{raft.ServerID(id), r, n.machine, heard}
	n.reads = &readIndex{prove: n.proveReadIndex, kick: make(chan struct{}, 1)}

	d := &dialer{who: stranger{id, "of " + id, "x"}, open: port.open}
	n.callers = newCallers(d)
	n.listener = &listener{
		net: port, dialer: d, logger: n.logger, raftConns: make(chan net.Conn), conns: map[net.Conn]struct{}{},
		serve: (&rpcServer{handlers: n.handlers(), allow: func(hello, method) error { return nil }}).serveConn,
	}
	n.listener.ctx, n.listener.cancel = context.WithCancel(context.Background())
	n.listener.start()
	g.lead(n)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.nodes[id] = &memoryNode{n, port, slow}
}

// lead is Node.start's part of leading.
func (g *memoryGroup) lead(n *Node) {
	cfg := termConfig{
		LeadershipConfig: LeadershipConfig{
			Log: n.log, Feed: n.db, Clock: n.clock, Gate: &n.gate, TakeOverTimeout: n.cfg.TakeOverTimeout,
		},
		clock: n.clock, tickInterval: n.cfg.TickInterval,
	}
	o := &owner{log: n.log, clock: n.clock, logger: n.logger, run: func(ctx context.Context, opened func()) error {
		cfg := cfg
		cfg.opened = func(l *Leadership) {
			opened()
			g.opened(n.cfg.NodeID, l.number)
		}
		return runTerm(ctx, &cfg)
	}}
	n.group.Go(func() error { return o.loop(n.ctx) })
	n.group.Go(func() error { return n.reads.loop(n.ctx) })
}

// opened: Raft elects one leader a term, so only one node opens its gate in it. Twice it may: where it lost
// and regained leadership before its owner heard of the first, the first is of that term, too.
func (g *memoryGroup) opened(id string, term uint64) {
	g.mu.Lock()
	other, known := g.gates[term]
	g.gates[term] = id
	g.opens++
	g.mu.Unlock()
	if known && other != id {
		g.violation("the gates of %s and %s opened in term %d", other, id, term)
	}
}

// stop ends the node in the middle of whatever it does; its disk stays. To the others it is gone at
// once; then it ends in the order of Node.Shutdown. (Raft forgets to answer what its state machine had
// yet to apply when it was shut down: the term must end first.)
func (g *memoryGroup) stop(id string) {
	g.mu.Lock()
	n := g.nodes[id]
	delete(g.nodes, id)
	g.mu.Unlock()
	g.network.detach(n.port)
	n.cancel()
	n.callers.close()
	require.NoError(g.t, n.group.Wait())
	require.NoError(g.t, n.raft.Shutdown().Error())
	n.commits.stop()
	require.NoError(g.t, n.listener.close())
	if n.gate.Load() != nil {
		g.violation("the gate of %s is open though it has ended", id)
	}
}

// slowMachine takes its time now and then, so that a node may know what it has yet to apply.
type slowMachine struct {
	*machine
	rng     *rand.Rand
	stalled atomic.Int64 // the next entry takes so long
}

func (m *slowMachine) Apply(log *raft.Log) any {
	time.Sleep(time.Duration(m.stalled.Swap(0)))
	if m.rng.IntN(2) == 0 {
		time.Sleep(time.Duration(m.rng.IntN(4000)) * time.Microsecond)
	}
	return m.machine.Apply(log)
}

// state is what OpenDisk reads before Raft starts.
func (d *memoryDisk) state(t *testing.T) *fsm.State {
	list, err := d.snapshots.List()
	require.NoError(t, err)
	if len(list) == 0 {
		return fsm.New()
	}
	_, source, err := d.snapshots.Open(list[0].ID)
	require.NoError(t, err)
	state, err := fsm.ReadSnapshot(source)
	require.NoError(t, errors.Join(err, source.Close()))
	return state
}

// running lists the nodes that run, in order.
func (g *memoryGroup) running() []*memoryNode {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []*memoryNode
	for _, id := range g.ids {
		if n := g.nodes[id]; n != nil {
			list = append(list, n)
		}
	}
	return list
}

// leader waits until the one whom a majority follows lets intents in.
func (g *memoryGroup) leader() *memoryNode {
	g.t.Helper()
	for range 6000 {
		for _, n := range g.running() {
			if n.IsLeader() && n.raft.VerifyLeader().Error() == nil {
				return n
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	g.t.Fatal("violation: no leader within a minute")
	return nil
}

func (g *memoryGroup) violation(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wrong = append(g.wrong, fmt.Sprintf(format, args...))
}

// noneWrong fails at the first violation.
func (g *memoryGroup) noneWrong() {
	g.t.Helper()
	g.mu.Lock()
	wrong := slices.Clone(g.wrong)
	g.mu.Unlock()
	if len(wrong) > 0 {
		g.t.Fatalf("%d violations, the first: %s", len(wrong), wrong[0])
	}
}

// others than id.
func (g *memoryGroup) others(id string) []string {
	return slices.DeleteFunc(slices.Clone(g.ids), func(other string) bool { return other == id })
}

// deafen lets nothing reach the node; mute lets nothing it says reach anybody.
func (g *memoryGroup) deafen(id string) {
	for _, other := range g.others(id) {
		g.network.sever(other, id)
	}
}

func (g *memoryGroup) mute(id string) {
	for _, other := range g.others(id) {
		g.network.sever(id, other)
	}
}
