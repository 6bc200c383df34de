package cluster

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// Log is the replicated log as a leadership term needs it: Raft in production, a simulated one in
// tests. Safe for concurrent use.
type Log interface {
	// Propose enters the encoded entries in order and returns once the fate of each is known. Where
	// an entry was applied, the state of this node contains it before Propose returns. Err is
	// ErrNotProposed where surely nothing happened, else store.ErrUnknownOutcome.
	Propose(entries [][]byte) []Proposed
	// Barrier returns once everything of earlier terms is applied here.
	Barrier(timeout time.Duration) error
	// Verify proves that this node leads, as of the call, and returns once all that was committed
	// before it is applied here: others may have applied it already, and shown it.
	Verify() error
	// Term is the number of the present term as far as this node knows.
	Term() uint64
	// HandOver gives leadership to another voter, as up to date as possible. It is bounded in time,
	// and fails where there is nobody to take it.
	HandOver() error
	// Leading says whether this node leads as far as it knows.
	Leading() bool
	// LeaderCh tells of leadership gained and lost. It keeps only the newest value: true after true
	// means lost and regained.
	LeaderCh() <-chan bool
}

// Proposed is the fate of one entry: one result for each of its commands, or Err.
type Proposed struct {
	Results []fsm.Result
	Err     error
}

// raftLog is Log on Raft.
type raftLog struct {
	self    raft.ServerID
	raft    *raft.Raft
	machine *machine
	heard   *heard
}

func (l raftLog) Propose(entries [][]byte) []Proposed {
	outcomes := make([]Proposed, 0, len(entries))
	for len(entries) > 0 {
		n := min(len(entries), maxEntriesInFlight)
		futures := make([]raft.ApplyFuture, n)
		for i, entry := range entries[:n] {
			futures[i] = l.raft.Apply(entry, enqueueTimeout)
		}
		for _, f := range futures {
			outcomes = append(outcomes, outcomeOf(f))
		}
		entries = entries[n:]
	}
	return outcomes
}

func outcomeOf(f raft.ApplyFuture) Proposed {
	if err := f.Error(); err != nil {
		return Proposed{Err: raftError(err)}
	}
	switch response := f.Response().(type) {
	case []fsm.Result:
		return Proposed{Results: response}
	case error:
		return Proposed{Err: unknownOutcome(response)}
	default:
		return Proposed{Err: unknownOutcome(fmt.Errorf("apply returned %T", response))}
	}
}

// raftError says what a failed Apply means. ErrLeadershipLost and ErrRaftShutdown may come after
// the entry was appended; the others come instead.
func raftError(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return fmt.Errorf("%w (%w)", ErrNotLeader, err)
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return notProposed(err)
	default:
		return unknownOutcome(err)
	}
}

func (l raftLog) Barrier(timeout time.Duration) error {
	barrier := l.raft.Barrier(timeout)
	// The timeout above bounds only the wait for a place in the queue.
	done := make(chan error, 1)
	go func() { done <- barrier.Error() }() // ends with the leadership at the latest
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return fmt.Errorf("barrier not applied within %v", timeout)
	}
}

func (l raftLog) Verify() error {
	committed, asked := l.raft.CommitIndex(), l.heard.now()
	for proven := false; !proven; { // each round is a message to everybody, and Raft ends them with its lease
		if err := l.raft.VerifyLeader().Error(); err != nil {
			return err
		}
		group := l.raft.GetConfiguration()
		if err := group.Error(); err != nil {
			return err
		}
		proven = l.heard.majority(group.Configuration().Servers, l.self, asked, l.raft.CurrentTerm())
	}
	return l.machine.reach(committed, applyTimeout)
}

func (l raftLog) Term() uint64          { return l.raft.CurrentTerm() }
func (l raftLog) HandOver() error       { return l.raft.LeadershipTransfer().Error() }
func (l raftLog) Leading() bool         { return l.raft.State() == raft.Leader }
func (l raftLog) LeaderCh() <-chan bool { return l.raft.LeaderCh() }

var _ store.Writer = (*Node)(nil)
