package cluster

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/bourse-dev/bourse/fsm"
)

// servers of Raft's configuration as this node knows it.
func (n *Node) servers() []raft.Server {
	f := n.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return nil
	}
	return f.Configuration().Servers
}

// raftServer of a voter. Raft's configuration holds the id as the address, too, for addressBook to look
// up: a node that moves changes nothing in it, nor may it take the address another one had.
func raftServer(id string) raft.Server {
	return raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(id), Address: raft.ServerAddress(id)}
}

func findServer(servers []raft.Server, id string) (raft.Server, bool) {
	for _, s := range servers {
		if string(s.ID) == id {
			return s, true
		}
	}
	return raft.Server{}, false
}

// handleJoin lets a node into the group, or back in at another address. It is the same for a node
// that founded the exchange, that is new and that was restarted.
func (n *Node) handleJoin(ctx context.Context, peer hello, q joinRequest) (joinAnswer, error) {
	rec := q.Record
	if rec.NodeID != peer.From || rec.UUID == "" || rec.UUID != peer.UUID || rec.RaftAddress == "" ||
		len(rec.NodeID) > maxNodeID || len(rec.RaftAddress) > maxAddress || len(rec.APIAddress) > maxAddress {
		return joinAnswer{}, fmt.Errorf("%w: node %q introduces %+v", ErrInvalid, peer.From, rec)
	}
	_, _, cluster := n.self()
	if q.ClusterID != cluster {
		return joinAnswer{}, fmt.Errorf("%w: the data directory of node %s belongs to exchange %s, this one is %s",
			ErrWrongCluster, rec.NodeID, q.ClusterID, cluster)
	}
	if leader := n.Leader(); leader != n.cfg.NodeID && leader != "" {
		addr, err := n.addressOf(leader)
		return joinAnswer{Leader: leader, Address: addr}, notProposed(err)
	}
	if _, err := n.readIndexHere(ctx); err != nil {
		return joinAnswer{}, err
	}
	if have := n.db.State().Behaviour(); q.Behaviour < have {
		return joinAnswer{}, fmt.Errorf("%w: the group runs %d, node %s knows %d", ErrBehaviour, have, rec.NodeID, q.Behaviour)
	}
	n.membersMu.Lock()
	defer n.membersMu.Unlock()
	if err := n.register(ctx, rec); err != nil {
		return joinAnswer{}, err
	}
	return joinAnswer{}, n.admit(rec)
}

// register writes the node's row, unless another data directory has it.
func (n *Node) register(ctx context.Context, rec NodeRecord) error {
	body, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	key := nodeKey(rec.NodeID)
	guard := fsm.GuardAbsent(key)
	if row := n.db.State().Row(key); row != nil {
		known, err := decodeNodeRecord(row.Body)
		switch {
		case err != nil:
			return err
		case known.UUID != rec.UUID:
			n.logger.Warn("node refused: another data directory has its id", "node", rec.NodeID, "known", known.UUID, "uuid", rec.UUID)
			return &identityError{nodeID: rec.NodeID, known: known.UUID, got: rec.UUID}
		case known == rec:
			return nil
		}
		guard = fsm.GuardRow(row)
	}
	return n.enterOwn(ctx, fsm.Txn{
		ID:     n.NewRequestID(),
		Guards: []fsm.Guard{guard},
		Writes: []fsm.Write{{Key: key, Body: body}},
	})
}

// enterOwn proposes one of the group's own Txns. A refusal means that somebody else was faster.
func (n *Node) enterOwn(ctx context.Context, txn fsm.Txn) error {
	result, err := n.enter(ctx, NewIntent(&txn, nil))
	if err == nil && result.Refusal != nil {
		err = fmt.Errorf("%w: row %s changed meanwhile", ErrNotProposed, result.Refusal.Key)
	}
	return err
}

// admit brings the node into Raft's configuration, without a vote at first: the steward promotes it.
// Under membersMu.
func (n *Node) admit(rec NodeRecord) error {
	if _, known := findServer(n.servers(), rec.NodeID); known {
		return nil
	}
	n.logger.Info("node joins", "node", rec.NodeID, "address", rec.RaftAddress)
	server := raftServer(rec.NodeID)
	return notProposed(n.raft.AddNonvoter(server.ID, server.Address, 0, membershipTimeout).Error())
}

// promote gives a node that has caught up its vote, unless it was removed or moved since it was asked.
func (n *Node) promote(server raft.Server) error {
	n.membersMu.Lock()
	defer n.membersMu.Unlock()
	if present, known := findServer(n.servers(), string(server.ID)); !known || present != server {
		return nil
	}
	n.logger.Info("node has caught up: it votes now", "node", server.ID)
	return n.raft.AddVoter(server.ID, server.Address, 0, membershipTimeout).Error()
}

// nodeRequest names a node; empty where any will do.
type nodeRequest struct {
	NodeID string `json:"nodeID"`
}

// TransferLeadership hands leadership to the node, or to the most up-to-date voter where id is empty.
func (n *Node) TransferLeadership(ctx context.Context, id string) error {
	return n.administer(ctx, methodTransfer, nodeRequest{id}, n.handleTransfer)
}

// RemovePeer takes a node out of the group and forgets which data directory it had. The node stops,
// if it is up. To remove the leader hands leadership over first.
func (n *Node) RemovePeer(ctx context.Context, id string) error {
	return n.administer(ctx, methodRemovePeer, nodeRequest{id}, n.handleRemovePeer)
}

func (n *Node) administer(ctx context.Context, m method, q nodeRequest,
	handle func(context.Context, hello, nodeRequest) (nothing, error),
) error {
	ctx, cancel := n.bounded(ctx)
	defer cancel()
	return n.atLeader(ctx,
		func(ctx context.Context) error {
			_, err := handle(ctx, hello{From: n.cfg.NodeID}, q)
			return err
		},
		func(ctx context.Context, id, addr string) (bool, error) {
			_, sent, err := callJSON[nothing](ctx, n, id, addr, m, q)
			return sent, err
		})
}

func (n *Node) handleTransfer(_ context.Context, _ hello, q nodeRequest) (nothing, error) {
	if n.gate.Load() == nil {
		return nothing{}, ErrNotLeader
	}
	if q.NodeID == n.cfg.NodeID {
		return nothing{}, nil // it leads already
	}
	n.logger.Info("leadership transfer requested", "to", q.NodeID)
	if q.NodeID == "" {
		if err := n.raft.LeadershipTransfer().Error(); err != nil {
			return nothing{}, fmt.Errorf("transfer leadership: %w", err)
		}
		return nothing{}, nil
	}
	server, ok := findServer(n.servers(), q.NodeID)
	if !ok || server.Suffrage != raft.Voter {
		return nothing{}, fmt.Errorf("%w: %q is no voter of this group", ErrUnknownNode, q.NodeID)
	}
	if err := n.raft.LeadershipTransferToServer(server.ID, server.Address).Error(); err != nil {
		return nothing{}, fmt.Errorf("transfer leadership to %s: %w", q.NodeID, err)
	}
	return nothing{}, nil
}

// handleRemovePeer removes the server first: where it fails half-way the row still guards the id,
// and asking again completes it.
func (n *Node) handleRemovePeer(ctx context.Context, _ hello, q nodeRequest) (nothing, error) {
	if _, err := n.readIndexHere(ctx); err != nil {
		return nothing{}, err
	}
	n.membersMu.Lock()
	defer n.membersMu.Unlock()
	row := n.db.State().Row(nodeKey(q.NodeID))
	servers := n.servers()
	server, member := findServer(servers, q.NodeID)
	switch {
	case !member && row == nil:
		return nothing{}, fmt.Errorf("%w: %q", ErrUnknownNode, q.NodeID)
	case member && len(servers) == 1:
		return nothing{}, fmt.Errorf("%w: %q is the last node of the group", ErrInvalid, q.NodeID)
	case q.NodeID == n.cfg.NodeID:
		if err := n.raft.LeadershipTransfer().Error(); err != nil {
			return nothing{}, fmt.Errorf("%q leads and can't hand leadership over: %w", q.NodeID, err)
		}
		return nothing{}, ErrNotLeader // the caller asks the next leader
	}
	n.logger.Info("removing node", "node", q.NodeID)
	addr, addrErr := n.addressOf(q.NodeID)
	if member {
		if err := n.raft.RemoveServer(server.ID, 0, membershipTimeout).Error(); err != nil {
			return nothing{}, fmt.Errorf("remove %s: %w", q.NodeID, unknownOutcome(err))
		}
	}
	if row != nil {
		err := n.enterOwn(ctx, fsm.Txn{
			ID:     n.NewRequestID(),
			Guards: []fsm.Guard{fsm.GuardRow(row)},
			Writes: []fsm.Write{{Key: row.Key, Delete: true}},
		})
		if err != nil {
			return nothing{}, err
		}
	}
	if addrErr == nil {
		n.tellStop(ctx, q.NodeID, addr, stopRequest{ExitCode: ExitRemoved, Reason: "removed from the group by remove-peer"})
	}
	return nothing{}, nil
}

// stopRequest tells a node to end its process.
type stopRequest struct {
	ExitCode int    `json:"exitCode"`
	Reason   string `json:"reason"`
	// Index and Hash, for ExitDiverged: what the majority has.
	Index uint64 `json:"index,omitempty"`
	Hash  string `json:"hash,omitempty"`
}

// tellStop is best effort: a node that is down is judged when it comes back.
func (n *Node) tellStop(ctx context.Context, id, addr string, q stopRequest) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if _, _, err := callJSON[nothing](ctx, n, id, addr, methodStop, q); err != nil {
		n.logger.Info("node could not be told to stop", "node", id, "reason", q.Reason, "error", err)
	}
}

// handleStop is called by the leader. Of a difference this node convinces itself.
func (n *Node) handleStop(_ context.Context, peer hello, q stopRequest) (nothing, error) {
	switch q.ExitCode {
	case ExitRemoved:
		n.fatal(ExitRemoved, fmt.Errorf("%s (told by node %s)", q.Reason, peer.From))
	case ExitDiverged:
		mine := n.hashes.at(q.Index)
		if mine == "" || mine == q.Hash {
			return nothing{}, fmt.Errorf("%w: hash at index %d is %q here", ErrInvalid, q.Index, mine)
		}
		n.fatal(ExitDiverged, fmt.Errorf("after log entry %d this replica's state hashes to %s, the majority's to %s",
			q.Index, mine, q.Hash))
	default:
		return nothing{}, fmt.Errorf("%w: stop with code %d", ErrInvalid, q.ExitCode)
	}
	return nothing{}, nil
}
