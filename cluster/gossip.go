package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/memberlist"
)

// gossipMeta is what a node tells the others about itself. Short keys: see maxGossipMeta.
type gossipMeta struct {
	NodeID      string `json:"i"`
	UUID        string `json:"u"`
	ClusterID   string `json:"c,omitempty"`
	RaftAddress string `json:"r"`
	APIAddress  string `json:"a,omitempty"`
	Expect      int    `json:"e,omitempty"` // bootstrap-expect
	Founded     bool   `json:"f,omitempty"` // the node is part of ClusterID's Raft group
	Started     int64  `json:"s"`           // Unix milliseconds: the newest of two processes of one id wins
}

// gossip knows who is out there. It is a source of hints: who might be dialed where, who seems
// gone. It decides nothing.
type gossip struct {
	list *memberlist.Memberlist
	// address others can join at. Asked once: memberlist changes its own node without the lock
	// that LocalNode's reader could hold.
	address string
	join    []string
	logger  hclog.Logger

	announcing sync.Mutex // UpdateNode may not run twice at once; taken before mu

	mu      sync.Mutex
	meta    gossipMeta
	members map[string]gossipMeta // by memberlist's name
	// changed is told of every change; for one reader, level-triggered.
	changed chan struct{}
	left    func(nodeID string)
}

// startGossip joins nobody yet. left is called on memberlist's goroutines when a node seems gone.
func startGossip(cfg *Config, meta gossipMeta, logger hclog.Logger, left func(string)) (*gossip, error) {
	g := &gossip{
		meta: meta, join: cfg.Join, logger: logger, left: left,
		members: map[string]gossipMeta{}, changed: make(chan struct{}, 1),
	}
	if len(g.NodeMeta(maxGossipMeta)) == 0 {
		return nil, fmt.Errorf("gossip: addresses of node %q don't fit its metadata of %d bytes", meta.NodeID, maxGossipMeta)
	}
	mc := memberlist.DefaultLANConfig()
	// A name of its own for each process: memberlist keeps the name of a dead node for its old
	// address, but our nodes may come back elsewhere. The id is in the metadata.
	mc.Name = meta.NodeID + "/" + uuid.NewString()[:8]
	mc.SecretKey = cfg.GossipKey
	mc.Delegate, mc.Events = g, g
	mc.TCPTimeout = cfg.TransportTimeout
	mc.Logger = log.New(logger.StandardWriter(&hclog.StandardLoggerOptions{InferLevels: true}), "", 0)
	var err error
	if mc.BindAddr, mc.BindPort, err = splitAddress(cfg.GossipListen); err != nil {
		return nil, fmt.Errorf("gossip-listen: %w", err)
	}
	mc.AdvertisePort = mc.BindPort
	if cfg.GossipAdvertise != "" {
		if mc.AdvertiseAddr, mc.AdvertisePort, err = splitAddress(cfg.GossipAdvertise); err != nil {
			return nil, fmt.Errorf("gossip-advertise: %w", err)
		}
	}
	if g.list, err = memberlist.Create(mc); err != nil {
		return nil, fmt.Errorf("gossip-listen: %w", err)
	}
	local := g.list.LocalNode()
	g.address = net.JoinHostPort(local.Addr.String(), strconv.Itoa(int(local.Port)))
	return g, nil
}

func splitAddress(addr string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	if host == "" {
		host = "0.0.0.0"
	}
	if net.ParseIP(host) == nil {
		resolved, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			return "", 0, err
		}
		host = resolved.IP.String()
	}
	port, err = strconv.Atoi(p)
	return host, port, err
}

// seek dials the configured nodes; harmless when they are known already. It blocks for at most a
// few TransportTimeouts.
func (g *gossip) seek() {
	if len(g.join) == 0 {
		return
	}
	if _, err := g.list.Join(g.join); err != nil && g.list.NumMembers() == 1 {
		g.logger.Debug("no node of the join list answers", "join", g.join, "error", err)
	}
}

// announce changes what this node says about itself. It doesn't wait until others have heard.
func (g *gossip) announce(clusterID string, founded bool) {
	g.announcing.Lock()
	defer g.announcing.Unlock()
	g.mu.Lock()
	same := g.meta.ClusterID == clusterID && g.meta.Founded == founded
	g.meta.ClusterID, g.meta.Founded = clusterID, founded
	g.mu.Unlock()
	if same {
		return
	}
	// Its only error is that nobody has heard yet; with no limit it waits for ever once the others died.
	_ = g.list.UpdateNode(time.Nanosecond)
}

// peers are the other nodes that seem alive, one entry for each id.
func (g *gossip) peers() map[string]gossipMeta {
	g.mu.Lock()
	defer g.mu.Unlock()
	byID := make(map[string]gossipMeta, len(g.members))
	for _, m := range g.members {
		if m.NodeID == g.meta.NodeID {
			continue
		}
		if other, ok := byID[m.NodeID]; !ok || m.Started > other.Started {
			byID[m.NodeID] = m
		}
	}
	return byID
}

func (g *gossip) peer(id string) (newest gossipMeta, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.members {
		if m.NodeID == id && (!ok || m.Started > newest.Started) {
			newest, ok = m, true
		}
	}
	return newest, ok
}

// close says farewell and waits.
func (g *gossip) close() error {
	err := g.list.Leave(leaveTimeout)
	return errors.Join(err, g.list.Shutdown())
}

// memberlist's delegates.

// NodeMeta is memberlist's.
func (g *gossip) NodeMeta(limit int) []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	b, err := json.Marshal(g.meta)
	if err != nil || len(b) > limit {
		return nil // startGossip proved that it fits
	}
	return b
}

// NotifyMsg is memberlist's; nodes send each other nothing by gossip.
func (g *gossip) NotifyMsg([]byte) {}

// GetBroadcasts is memberlist's.
func (g *gossip) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState is memberlist's.
func (g *gossip) LocalState(bool) []byte { return nil }

// MergeRemoteState is memberlist's.
func (g *gossip) MergeRemoteState([]byte, bool) {}

// NotifyJoin is memberlist's.
func (g *gossip) NotifyJoin(n *memberlist.Node) { g.NotifyUpdate(n) }

// NotifyUpdate is memberlist's.
func (g *gossip) NotifyUpdate(n *memberlist.Node) {
	var m gossipMeta
	if err := json.Unmarshal(n.Meta, &m); err != nil || m.NodeID == "" {
		g.logger.Warn("gossip of a node that is no bourse server", "name", n.Name, "error", err)
		return
	}
	g.mu.Lock()
	g.members[n.Name] = m
	g.mu.Unlock()
	g.notify()
}

// NotifyLeave is memberlist's.
func (g *gossip) NotifyLeave(n *memberlist.Node) {
	g.mu.Lock()
	m, ok := g.members[n.Name]
	delete(g.members, n.Name)
	g.mu.Unlock()
	g.notify()
	if ok && m.NodeID != g.meta.NodeID {
		g.logger.Info("node seems gone", "node", m.NodeID)
		g.left(m.NodeID)
	}
}

func (g *gossip) notify() {
	select {
	case g.changed <- struct{}{}:
	default:
	}
}
