package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// belong brings this node into its exchange: it founds one together with others, or finds one; it
// introduces itself to the leader; and once it has caught up it is ready. On the way it ends the
// process where the exchange refuses it.
func (n *Node) belong(ctx context.Context) {
	var last string
	for {
		err := n.tryToBelong(ctx)
		switch {
		case err == nil:
			close(n.ready)
			n.logger.Info("ready", "node", n.cfg.NodeID, "revision", n.db.State().Revision())
			return
		case ctx.Err() != nil:
			return
		case refused(err):
			n.fatal(ExitRefused, fmt.Errorf("%s, which says whose data directory this is: %w",
				filepath.Join(n.cfg.DataDir, store.IdentityFile), err))
			return
		case err.Error() != last:
			last = err.Error()
			n.logger.Info("not ready yet", "reason", err)
		}
		var wake <-chan struct{}
		if n.gossip != nil {
			wake = n.gossip.changed
		}
		if !n.pause(ctx, n.cfg.JoinInterval, wake) {
			return
		}
	}
}

// refused: no later try can succeed.
func refused(err error) bool {
	return errors.Is(err, store.ErrIdentity) || errors.Is(err, ErrWrongCluster) || errors.Is(err, ErrBehaviour)
}

func (n *Node) tryToBelong(ctx context.Context) error {
	if !n.founded() {
		if err := n.findExchange(ctx); err != nil {
			return err
		}
	}
	n.announce()
	if err := n.introduce(ctx); err != nil {
		return err
	}
	if err := n.joined(); err != nil {
		return err
	}
	ctx, cancel := n.callTimeout(ctx)
	defer cancel()
	if _, err := n.ReadIndex(ctx); err != nil {
		return err
	}
	n.announce() // part of the exchange by now: whoever is new asks those who say so
	return nil
}

// founded: this node is, or was, part of a Raft group.
func (n *Node) founded() bool { return n.raft.LastIndex() > 0 }

func (n *Node) announce() {
	if n.gossip != nil {
		n.gossip.announce(n.disk.Identity().ClusterID, n.founded())
	}
}

// seekPeers keeps the gossip together: a node that was alone, or came back elsewhere, is found again.
func (n *Node) seekPeers(ctx context.Context) {
	for {
		n.gossip.seek()
		interval := n.cfg.JoinInterval
		if len(n.gossip.peers()) > 0 {
			interval = max(interval, n.cfg.TickInterval)
		}
		if !n.pause(ctx, interval, nil) {
			return
		}
	}
}

// findExchange returns nil once this empty directory belongs to an exchange that exists.
func (n *Node) findExchange(ctx context.Context) error {
	if n.gossip == nil {
		return n.found(ctx, nil)
	}
	peers := n.gossip.peers()
	mine := n.disk.Identity()
	for _, p := range peers {
		if !p.Founded || p.ClusterID == "" {
			continue
		}
		if mine.ClusterID == p.ClusterID {
			return nil
		}
		if n.free(mine, peers) {
			return n.adopt(mine, p)
		}
	}
	if n.cfg.BootstrapExpect == 0 {
		return fmt.Errorf("looking for an exchange to join: %d other nodes seen, none is part of one", len(peers))
	}
	return n.found(ctx, peers)
}

// free: this empty directory is pledged to nobody else, or its founder went to another exchange
// before it founded. (Were that wrong, the founder's exchange would only lack one empty voter.)
func (n *Node) free(mine store.Identity, peers map[string]gossipMeta) bool {
	if mine.ClusterID == "" || mine.Founder == n.cfg.NodeID {
		return true
	}
	founder, ok := peers[mine.Founder]
	return ok && founder.ClusterID != "" && founder.ClusterID != mine.ClusterID
}

// adopt binds this empty directory to the exchange of a node seen.
func (n *Node) adopt(mine store.Identity, seen gossipMeta) error {
	n.foundMu.Lock()
	defer n.foundMu.Unlock()
	if n.founded() || n.disk.Identity() != mine {
		return fmt.Errorf("this directory was pledged to exchange %s meanwhile", n.disk.Identity().ClusterID)
	}
	n.logger.Info("joining exchange", "cluster", seen.ClusterID, "seen", seen.NodeID)
	return n.setCluster(seen.ClusterID, seen.NodeID, cmp.Or(mine.ClusterID, mine.GaveUp), true)
}

// joined is called once the leader has let this node in.
func (n *Node) joined() error {
	n.foundMu.Lock()
	defer n.foundMu.Unlock()
	id := n.disk.Identity()
	if !id.Joining {
		return nil
	}
	return n.setCluster(id.ClusterID, id.Founder, id.GaveUp, false)
}

// setCluster under foundMu. Connections were opened in the name of the old exchange.
func (n *Node) setCluster(clusterID, founder, gaveUp string, joining bool) error {
	if err := n.disk.SetCluster(clusterID, founder, gaveUp, joining); err != nil {
		return err
	}
	n.callers.dropAll()
	n.announce()
	return nil
}

// joinRequest introduces a node to the leader.
type joinRequest struct {
	Record    NodeRecord `json:"record"`
	ClusterID string     `json:"clusterID"`
	Behaviour uint32     `json:"behaviour"`
}

// joinAnswer: where Leader is set, ask there.
type joinAnswer struct {
	Leader  string `json:"leader,omitempty"`
	Address string `json:"address,omitempty"`
}

// introduce tells the leader who and where this node is, and is told whether that is accepted.
func (n *Node) introduce(ctx context.Context) error {
	ctx, cancel := n.callTimeout(ctx)
	defer cancel()
	id := n.disk.Identity()
	request := joinRequest{
		Record: NodeRecord{
			NodeID: id.NodeID, UUID: id.UUID, RaftAddress: n.address, APIAddress: n.cfg.APIAddress,
		},
		ClusterID: id.ClusterID, Behaviour: fsm.SupportedBehaviour,
	}
	targets := n.whomToAsk(id.ClusterID)
	err := fmt.Errorf("%w: no other node of the exchange is known yet", ErrNotLeader)
	for range 2 * maxBootstrapExpect { // follows redirections, but not for ever
		if len(targets) == 0 {
			return err
		}
		target := targets[0]
		targets = targets[1:]
		var answer joinAnswer
		if target.id == n.cfg.NodeID {
			answer, err = n.handleJoin(ctx, hello{From: id.NodeID, UUID: id.UUID, ClusterID: id.ClusterID}, request)
		} else {
			answer, _, err = callJSON[joinAnswer](ctx, n, target.id, target.addr, methodJoin, request)
		}
		if err == nil && answer.Leader == "" {
			return nil
		}
		if refused(err) {
			return err
		}
		if err == nil {
			err = fmt.Errorf("%w: node %s says %s leads", ErrNotLeader, target.id, answer.Leader)
			targets = append([]nodeTarget{{answer.Leader, answer.Address}}, targets...)
		}
	}
	return err
}

type nodeTarget struct{ id, addr string }

// whomToAsk about joining: the leader where known, else whoever seems to be part of the exchange.
func (n *Node) whomToAsk(clusterID string) []nodeTarget {
	if leader := n.Leader(); leader != "" {
		if leader == n.cfg.NodeID {
			return []nodeTarget{{id: leader}}
		}
		if addr, err := n.addressOf(leader); err == nil {
			return []nodeTarget{{leader, addr}}
		}
	}
	if n.gossip == nil {
		return nil
	}
	var own, others []nodeTarget
	for _, p := range n.gossip.peers() {
		switch {
		case !p.Founded:
		case p.ClusterID == clusterID:
			own = append(own, nodeTarget{p.NodeID, p.RaftAddress})
		default:
			others = append(others, nodeTarget{p.NodeID, p.RaftAddress})
		}
	}
	if len(own) == 0 {
		return others // they will say that this directory is of another exchange
	}
	return own
}
