package cluster

import (
	"sync"

	"github.com/hashicorp/raft"
	"golang.org/x/sync/errgroup"
)

// transport is what Raft uses of one.
type transport interface {
	raft.Transport
	raft.WithPreVote
	raft.WithClose
}

// commitTeller is Raft's transport, and tells followers at once how far the log is committed. Raft itself
// tells with the next entries, or after CommitTimeout; a write at a follower is answered only once that
// follower has applied it.
//
// It sends what Raft sends after CommitTimeout: a message without entries, made of the newest one that the
// follower took. That the commit is what the leader of that term committed is seen by the term of the entry.
type commitTeller struct {
	transport
	group errgroup.Group

	mu          sync.Mutex
	closed      bool
	index, term uint64 // of the newest entry that Raft has handed over
	followers   map[raft.ServerID]*follower
}

// follower is what one node is known to know.
type follower struct {
	target raft.ServerAddress
	// newest is the newest message it took, as if nothing had followed the entries: it has all up to PrevLogEntry.
	newest raft.AppendEntriesRequest
	busy   bool // it is being told
}

func newCommitTeller(t transport) *commitTeller {
	return &commitTeller{transport: t, followers: map[raft.ServerID]*follower{}}
}

// AppendEntries is called by Raft, for one follower at a time on one goroutine, for heartbeats on another.
func (t *commitTeller) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	err := t.transport.AppendEntries(id, target, args, resp)
	heartbeat := args.PrevLogEntry == 0 && len(args.Entries) == 0
	if err != nil || !resp.Success || heartbeat {
		return err
	}
	newest := *args
	newest.Entries = nil
	if n := len(args.Entries); n > 0 {
		newest.PrevLogEntry, newest.PrevLogTerm = args.Entries[n-1].Index, args.Entries[n-1].Term
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.followers[id]
	if f == nil {
		f = &follower{}
		t.followers[id] = f
	}
	if newest.Term >= f.newest.Term { // else: it came late
		f.target, f.newest = target, newest
		t.tell(id, f)
	}
	return nil
}

// committed is called when Raft hands an entry over, by its FSM goroutine. It must not block.
func (t *commitTeller) committed(index, term uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.index, t.term = index, term
	for id, f := range t.followers {
		t.tell(id, f)
	}
}

// tell starts to tell a follower what it doesn't know, one message at a time. Under mu.
//
// The committed entry is of the term in which this node sent the newest message: so this node, the only
// leader of that term, wrote it, and whatever its log held before it is committed too.
func (t *commitTeller) tell(id raft.ServerID, f *follower) {
	commit := min(t.index, f.newest.PrevLogEntry)
	if t.closed || f.busy || f.newest.Term != t.term || commit <= f.newest.LeaderCommitIndex {
		return
	}
	f.busy = true
	f.newest.LeaderCommitIndex = commit // also where it gets lost: Raft tells again
	target, message := f.target, f.newest
	t.group.Go(func() error {
		_ = t.transport.AppendEntries(id, target, &message, &raft.AppendEntriesResponse{}) // as above
		t.mu.Lock()
		defer t.mu.Unlock()
		f.busy = false
		t.tell(id, f)
		return nil
	})
}

// stop tells nobody any more, and waits for who is being told.
func (t *commitTeller) stop() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	_ = t.group.Wait() // nothing there fails
}
