package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/hashicorp/raft"
)

// Founding: of the bootstrap-expect smallest ids among the empty nodes seen, the smallest founds. It
// asks each of the others to pledge its empty directory to the new exchange, durably, and only when
// all have, it writes Raft's first entry, with all of them in it. A directory is pledged to at most
// one exchange, so nodes that see different neighbours can't found two with a node in common.

// offer asks for a pledge.
type offer struct {
	ClusterID string   `json:"clusterID"`
	Founder   string   `json:"founder"`
	Abandoned []string `json:"abandoned,omitempty"` // exchanges that their founder gave up for this one
}

// pledge is the answer. Where Refused, the directory belongs to ClusterID.
type pledge struct {
	Refused   bool   `json:"refused,omitempty"`
	ClusterID string `json:"clusterID"`
	Founder   string `json:"founder"`
	GaveUp    string `json:"gaveUp,omitempty"`
}

// found returns nil once this node has founded; an error says what it waits for.
func (n *Node) found(ctx context.Context, peers map[string]gossipMeta) error {
	ids := []string{n.cfg.NodeID}
	for id, p := range peers {
		if !p.Founded && p.Expect == n.cfg.BootstrapExpect {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	if len(ids) < n.cfg.BootstrapExpect {
		return fmt.Errorf("founding: %d of %d nodes seen: %s", len(ids), n.cfg.BootstrapExpect, strings.Join(ids, ", "))
	}
	ids = ids[:n.cfg.BootstrapExpect]
	if ids[0] != n.cfg.NodeID {
		return fmt.Errorf("founding: waiting for node %s to found", ids[0])
	}
	clusterID, err := n.ownExchange()
	if err != nil {
		return err
	}
	if err := n.collectPledges(ctx, clusterID, ids[1:], peers); err != nil {
		return err
	}
	return n.bootstrap(clusterID, ids)
}

// ownExchange names the exchange that this node founds, the same at each try.
func (n *Node) ownExchange() (string, error) {
	n.foundMu.Lock()
	defer n.foundMu.Unlock()
	id := n.disk.Identity()
	switch {
	case id.ClusterID == "":
		id.ClusterID = uuid.NewString()
		return id.ClusterID, n.setCluster(id.ClusterID, n.cfg.NodeID, "", false)
	case id.Founder == n.cfg.NodeID:
		return id.ClusterID, nil
	default:
		return "", fmt.Errorf("founding: this directory is pledged to exchange %s of node %s: start that node, "+
			"or remove this directory (it holds nothing)", id.ClusterID, id.Founder)
	}
}

func (n *Node) collectPledges(ctx context.Context, clusterID string, ids []string, peers map[string]gossipMeta) error {
	ask := offer{ClusterID: clusterID, Founder: n.cfg.NodeID}
	var refusal error
	for range 2 { // a second time for those who were pledged to an exchange given up meanwhile
		refusal = nil
		for _, id := range ids {
			ctx, cancel := n.callTimeout(ctx)
			p, _, err := callJSON[pledge](ctx, n, id, peers[id].RaftAddress, methodOffer, ask)
			cancel()
			if err != nil {
				return fmt.Errorf("founding: ask node %s: %w", id, err)
			}
			if p.GaveUp != "" {
				ask.Abandoned = append(ask.Abandoned, p.GaveUp)
			}
			if p.Refused {
				refusal = fmt.Errorf("founding: node %s is pledged to exchange %s of node %s: start that node, "+
					"or remove the directory of %s (it holds nothing)", id, p.ClusterID, p.Founder, id)
			}
		}
		if refusal == nil {
			return nil
		}
	}
	return refusal
}

// handleOffer pledges this directory, if it is empty and free.
func (n *Node) handleOffer(_ context.Context, peer hello, o offer) (pledge, error) {
	if o.ClusterID == "" || o.Founder == "" || o.Founder != peer.From {
		return pledge{}, fmt.Errorf("%w: offer of node %q by %q", ErrInvalid, o.Founder, peer.From)
	}
	n.foundMu.Lock()
	defer n.foundMu.Unlock()
	mine := n.disk.Identity()
	gaveUp := mine.GaveUp
	switch {
	case mine.ClusterID == o.ClusterID:
		return pledge{ClusterID: mine.ClusterID, Founder: mine.Founder, GaveUp: gaveUp}, nil
	case n.founded():
		return pledge{Refused: true, ClusterID: mine.ClusterID, Founder: mine.Founder}, nil
	case mine.ClusterID == "" || slices.Contains(o.Abandoned, mine.ClusterID):
	case mine.Founder == n.cfg.NodeID && o.Founder < n.cfg.NodeID:
		gaveUp = mine.ClusterID
	default:
		return pledge{Refused: true, ClusterID: mine.ClusterID, Founder: mine.Founder}, nil
	}
	if err := n.setCluster(o.ClusterID, o.Founder, gaveUp, false); err != nil {
		return pledge{}, err
	}
	n.logger.Info("pledged to a new exchange", "cluster", o.ClusterID, "founder", o.Founder)
	return pledge{ClusterID: o.ClusterID, Founder: o.Founder, GaveUp: gaveUp}, nil
}

// bootstrap writes Raft's first entry, unless the exchange was given up meanwhile.
func (n *Node) bootstrap(clusterID string, ids []string) error {
	n.foundMu.Lock()
	defer n.foundMu.Unlock()
	if id := n.disk.Identity(); id.ClusterID != clusterID {
		return fmt.Errorf("founding: given up for exchange %s of node %s", id.ClusterID, id.Founder)
	}
	var conf raft.Configuration
	for _, id := range ids {
		conf.Servers = append(conf.Servers, raftServer(id))
	}
	if err := n.raft.BootstrapCluster(conf).Error(); err != nil {
		return fmt.Errorf("founding: %w", err)
	}
	n.logger.Info("exchange founded", "cluster", clusterID, "nodes", ids)
	return nil
}
