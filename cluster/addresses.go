package cluster

import (
	"fmt"

	"github.com/hashicorp/raft"
)

// addressBook finds nodes by id: in the gossip first (it is the first to know of a move), then in
// the state. Raft's configuration knows ids only.
type addressBook struct {
	selfID, selfAddr string

	gossip *gossip // nil: none
	record func(id string) (NodeRecord, bool)
}

// lookup returns the address of the node's Raft listener.
func (b *addressBook) lookup(id string) (string, bool) {
	if id == b.selfID {
		return b.selfAddr, true
	}
	rec, known := b.record(id)
	if b.gossip != nil {
		// An impostor with another data directory must not draw the traffic to itself.
		if p, ok := b.gossip.peer(id); ok && (!known || p.UUID == rec.UUID) {
			return p.RaftAddress, true
		}
	}
	return rec.RaftAddress, known
}

// ServerAddr is raft.ServerAddressProvider: the id goes along, so that the stream layer can prove
// that it reached the node it meant. Raft asks about this node, too, to say where it is.
func (b *addressBook) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	addr, ok := b.lookup(string(id))
	if !ok {
		return "", fmt.Errorf("%w: %q", ErrUnknownNode, id)
	}
	if string(id) == b.selfID {
		return raft.ServerAddress(addr), nil
	}
	return raft.ServerAddress(string(id) + "@" + addr), nil
}
