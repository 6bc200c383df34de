package store

import (
	"context"
	"errors"

	"github.com/bourse-dev/bourse/fsm"
)

// The two ways a write can fail to have a result. Match with errors.Is.
var (
	// ErrNoLeader: no leader is known or none answered, and surely nothing was proposed.
	ErrNoLeader = errors.New("no leader")
	// ErrUnknownOutcome: the command may have been applied or may still be.
	ErrUnknownOutcome = errors.New("unknown outcome")
)

// ErrCompacted says that the changes asked for are no longer in the history. List anew.
var ErrCompacted = errors.New("revision is older than the history")

// Writer brings commands to the leader. cluster.Node implements it. Safe for concurrent use.
//
// A command that was refused returns a Result with its Refusal and a nil error. When a method
// returns without error, the state of this node has applied the revision it returned.
type Writer interface {
	// Write proposes txn. A caller that tries again after ErrUnknownOutcome uses the same txn.ID.
	Write(ctx context.Context, txn fsm.Txn) (fsm.Result, error)
	// Report proposes what an agent reported.
	Report(ctx context.Context, report fsm.Report) (fsm.Result, error)
	// ReadIndex returns a revision that contains every write acknowledged, and every change shown by any
	// node, before the call.
	ReadIndex(ctx context.Context) (fsm.Revision, error)
}
