package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// Node is this process's member of the group. All methods are safe for concurrent use.
type Node struct {
	cfg    Config
	logger hclog.Logger
	clock  clock.Clock

	disk     *store.Disk
	db       *store.DB
	machine  *machine
	hashes   hashLog
	raft     *raft.Raft
	log      Log
	trans    *raft.NetworkTransport
	commits  *commitTeller // over trans
	listener *listener
	callers  *callers
	gossip   *gossip // nil: none
	book     *addressBook
	reads    *readIndex
	address  string // of the Raft listener, as others dial it

	gate   atomic.Pointer[Leadership] // nil: it is closed
	halted atomic.Bool                // the replicas differ and no majority agrees
	failed atomic.Bool                // Fatal was called
	// running is raft, for those who may ask before it is set.
	running atomic.Pointer[raft.Raft]
	ready   chan struct{} // closed once Ready

	foundMu sync.Mutex // founding and pledging: one at a time
	// membersMu: one change of the group at a time, from reading Raft's configuration to changing it.
	// Raft's own guard, an index, can't be used: GetConfiguration always tells 0, which is none.
	membersMu sync.Mutex

	ctx       context.Context // ends with Shutdown
	cancel    context.CancelFunc
	group     errgroup.Group
	closeOnce sync.Once
	closeErr  error
}

// NewNode opens the data directory, proves it, and starts the node: it listens, gossips, and finds,
// founds or joins its exchange in the background (see Ready). It refuses, changing nothing, what
// store.OpenDisk refuses. rooms are stepped while this node leads, and asked in order whether they
// take an intent. Call Shutdown in the end.
func NewNode(cfg Config, rooms ...Room) (node *Node, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	n := &Node{cfg: cfg, logger: cfg.Logger.Named("cluster"), clock: cfg.Clock, ready: make(chan struct{})}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Shutdown())
		}
	}()
	if err := n.openDisk(); err != nil {
		return nil, err
	}
	if err := n.openNetwork(); err != nil {
		return nil, err
	}
	if err := n.startRaft(); err != nil {
		return nil, err
	}
	n.start(rooms)
	return n, nil
}

func (n *Node) openDisk() error {
	disk, err := store.OpenDisk(store.DiskOptions{
		Dir: n.cfg.DataDir, NodeID: n.cfg.NodeID,
		RetainSnapshots: n.cfg.RetainSnapshots, Logger: n.cfg.Logger.Named("disk"),
	})
	if err != nil {
		return err
	}
	n.disk = disk
	state, index := disk.State()
	if state.Behaviour() > fsm.SupportedBehaviour {
		return fmt.Errorf("%w: the data directory has %d, this version knows %d",
			ErrBehaviour, state.Behaviour(), fsm.SupportedBehaviour)
	}
	n.db = store.NewDB(state)
	if index > 0 {
		n.logger.Info("state read from snapshot", "revision", state.Revision(), "index", index)
	}
	return nil
}

// openNetwork binds the addresses; nothing is accepted yet.
func (n *Node) openNetwork() error {
	d := &dialer{who: n}
	if !n.cfg.Insecure {
		creds, err := loadCredentials(n.cfg.TLS, n.cfg.NodeID)
		if err != nil {
			return err
		}
		d.creds = creds
	}
	var err error
	if n.listener, err = newListener(n.cfg.RaftListen, d, n.logger); err != nil {
		return err
	}
	n.callers = newCallers(d)
	n.address = n.cfg.RaftAdvertise
	if n.address == "" {
		n.address = n.listener.net.Addr().String()
	}
	id := n.disk.Identity()
	founded, err := n.disk.HasRaftState()
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if n.cfg.GossipListen != "" {
		n.gossip, err = startGossip(&n.cfg, gossipMeta{
			NodeID: id.NodeID, UUID: id.UUID, ClusterID: id.ClusterID, Founded: founded,
			RaftAddress: n.address, APIAddress: n.cfg.APIAddress,
			Expect: n.cfg.BootstrapExpect, Started: n.clock.Now().UnixMilli(),
		}, n.cfg.Logger.Named("gossip"), n.callers.drop)
		if err != nil {
			return err
		}
	}
	n.book = &addressBook{selfID: n.cfg.NodeID, selfAddr: n.address, gossip: n.gossip, record: n.record}
	return nil
}

func (n *Node) startRaft() error {
	n.trans = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider: n.book,
		Logger:                n.cfg.Logger.Named("raft-net"),
		Stream:                &raftStreams{l: n.listener, advertise: raftAddr(n.address)},
		MaxPool:               3,
		Timeout:               n.cfg.TransportTimeout,
		// No pipelining: in raft 1.7.3 its two halves wait for each other for ever once a follower has
		// failed to append (hashicorp/raft#612), and heartbeats go on, so nobody notices.
		MaxRPCsInFlight: 1,
	})
	heard := newHeard(n.trans)
	n.commits = newCommitTeller(heard)
	n.machine = &machine{
		db: n.db, hashes: &n.hashes, committed: n.commits.committed, applied: n.stateChanged, fatal: n.fatal, logger: n.logger,
	}
	rc := n.cfg.raftConfig()
	rc.Logger = n.cfg.Logger.Named("raft")
	r, err := raft.NewRaft(rc, n.machine, n.disk.Logs(), n.disk.Stable(), n.disk.Snapshots(), n.commits)
	if err != nil {
		return fmt.Errorf("start Raft: %w", err)
	}
	n.raft, n.log = r, raftLog{rc.LocalID, r, n.machine, heard}
	n.running.Store(r)
	n.reads = &readIndex{prove: n.proveReadIndex, kick: make(chan struct{}, 1)}
	return nil
}

// start begins to accept, to lead and to belong.
func (n *Node) start(rooms []Room) {
	server := &rpcServer{handlers: n.handlers(), allow: n.allow}
	n.listener.serve = server.serveConn
	n.listener.start()
	cfg := termConfig{
		LeadershipConfig: LeadershipConfig{
			Log: n.log, Feed: n.db, Rooms: rooms, Clock: n.clock, Gate: &n.gate,
			TakeOverTimeout: n.cfg.TakeOverTimeout, Check: n.checkClock,
		},
		clock: n.clock, tickInterval: n.cfg.TickInterval, steward: n.steward,
	}
	o := &owner{log: n.log, clock: n.clock, logger: n.logger, run: func(ctx context.Context, opened func()) error {
		cfg := cfg
		cfg.opened = func(*Leadership) {
			opened()
			n.logger.Info("leading", "term", n.raft.CurrentTerm(), "revision", n.db.State().Revision())
		}
		return runTerm(ctx, &cfg)
	}}
	n.group.Go(func() error { return o.loop(n.ctx) })
	n.group.Go(func() error { return n.reads.loop(n.ctx) })
	n.group.Go(func() error { n.belong(n.ctx); return nil })
	if n.gossip != nil {
		n.group.Go(func() error { n.seekPeers(n.ctx); return nil })
	}
}

// Shutdown leaves nothing running and closes the data directory. It may be called twice.
func (n *Node) Shutdown() error {
	n.closeOnce.Do(func() { n.closeErr = n.shutdown() })
	return n.closeErr
}

func (n *Node) shutdown() error {
	n.cancel()
	var errs []error
	if n.callers != nil {
		n.callers.close() // ends forwards that are under way
	}
	errs = append(errs, n.group.Wait())
	if n.raft != nil {
		errs = append(errs, n.raft.Shutdown().Error())
		n.commits.stop()
		n.trans.CloseStreams()
	}
	if n.trans != nil {
		errs = append(errs, n.trans.Close())
	}
	if n.gossip != nil {
		if err := n.gossip.close(); err != nil {
			n.logger.Warn("gossip did not end well", "error", err)
		}
	}
	if n.listener != nil {
		errs = append(errs, n.listener.close())
	}
	if n.disk != nil {
		errs = append(errs, n.disk.Close())
	}
	return errors.Join(errs...)
}

// fatal tells the process to end, once. It doesn't wait: it may be called by Raft.
func (n *Node) fatal(exitCode int, err error) {
	if !n.failed.CompareAndSwap(false, true) {
		return
	}
	n.logger.Error("this node must stop", "exitCode", exitCode, "error", err)
	if n.cfg.Fatal != nil {
		n.cfg.Fatal(exitCode, err)
	}
}

// DB is this node's copy of the state.
func (n *Node) DB() *store.DB { return n.db }

// ID is the node's id.
func (n *Node) ID() string { return n.cfg.NodeID }

// RaftAddress is where other nodes reach this one; GossipAddress is what they can join.
func (n *Node) RaftAddress() string { return n.address }

// GossipAddress is empty where there is no gossip.
func (n *Node) GossipAddress() string {
	if n.gossip == nil {
		return ""
	}
	return n.gossip.address
}

// Ready is closed once this node may serve: it belongs to the exchange, and has applied what was
// committed when it first heard a leader. Before that its state is an old snapshot, or empty.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// Failed says that Config.Fatal was called; the node must not be believed any more.
func (n *Node) Failed() bool { return n.failed.Load() }

// IsLeader says whether this node leads and lets intents in.
func (n *Node) IsLeader() bool { return n.gate.Load() != nil }

// Leader is the id of the leader as far as this node knows; "" where it knows none.
func (n *Node) Leader() string {
	_, id := n.raft.LeaderWithID()
	return string(id)
}

// stateChanged is called after each applied entry.
func (n *Node) stateChanged() {
	if l := n.gate.Load(); l != nil {
		l.StateChanged()
	}
}

// self is identityCheck's.
func (n *Node) self() (nodeID, uuid, clusterID string) {
	id := n.disk.Identity()
	return id.NodeID, id.UUID, id.ClusterID
}

// joining is identityCheck's.
func (n *Node) joining() bool { return n.disk.Identity().Joining }

// logEnd is identityCheck's.
func (n *Node) logEnd() uint64 {
	if r := n.running.Load(); r != nil {
		return r.LastIndex()
	}
	return 0
}

// knownUUID is identityCheck's.
func (n *Node) knownUUID(nodeID string, end uint64) string {
	applied := uint64(0)
	if r := n.running.Load(); r != nil {
		applied = r.AppliedIndex()
	}
	if applied < end {
		return ""
	}
	rec, _ := n.record(nodeID)
	return rec.UUID
}

// record is what the state knows of a node. Asked at every Raft message, so decoded as seldom as fsm.Memo can.
func (n *Node) record(nodeID string) (NodeRecord, bool) {
	row := n.db.State().Row(nodeKey(nodeID))
	if row == nil {
		return NodeRecord{}, false
	}
	rec := fsm.Memo(row, func() *decodedRecord {
		rec, err := decodeNodeRecord(row.Body)
		if err != nil {
			n.logger.Error("node record can't be read", "key", row.Key, "error", err)
		}
		return &decodedRecord{rec, err == nil}
	})
	return rec.NodeRecord, rec.readable
}

type decodedRecord struct {
	NodeRecord
	readable bool
}

// pause waits, or until something happens (wake may be nil); false: ctx is done.
func (n *Node) pause(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := n.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
		return true
	case <-timer.C():
		return true
	}
}
