package cluster

import (
	"sync"

	"github.com/hashicorp/raft"
)

// heard is Raft's transport, and knows of each follower the newest message that it took. Raft's own proof of
// leadership (VerifyLeader) counts answers to messages that were under way when it was asked for: since they
// were taken, their takers may have elected another leader, and that one may have committed.
type heard struct {
	transport

	mu    sync.Mutex
	sent  uint64 // messages so far
	taken map[raft.ServerID]taken
}

// taken is a message: its number, and the term of the leader that sent it.
type taken struct{ number, term uint64 }

func newHeard(t transport) *heard { return &heard{transport: t, taken: map[raft.ServerID]taken{}} }

// AppendEntries is called for several followers at once, and for one follower, too.
func (h *heard) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	h.mu.Lock()
	h.sent++
	message := taken{h.sent, args.Term}
	h.mu.Unlock()
	err := h.transport.AppendEntries(id, target, args, resp)
	if err == nil && resp.Success {
		h.mu.Lock()
		defer h.mu.Unlock()
		if message.number > h.taken[id].number {
			h.taken[id] = message
		}
	}
	return err
}

// now is the number of the newest message.
func (h *heard) now() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sent
}

// majority says whether, with self, a majority of the voters took a message of the term that was sent after the given one.
func (h *heard) majority(voters []raft.Server, self raft.ServerID, after, term uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	all, took := 0, 0
	for _, s := range voters {
		if s.Suffrage != raft.Voter {
			continue
		}
		all++
		if message := h.taken[s.ID]; s.ID == self || message.number > after && message.term == term {
			took++
		}
	}
	return took > all/2
}
