package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/internal/planted"
	"github.com/bourse-dev/bourse/store"
)

// Write brings txn to the leader, again with the same id while its outcome is unknown. See store.Writer.
func (n *Node) Write(ctx context.Context, txn fsm.Txn) (fsm.Result, error) {
	if txn.ID == (fsm.RequestID{}) {
		txn.ID = n.NewRequestID()
	}
	if planted.Bug == planted.RetryWithoutID {
		txn.ID = fsm.RequestID{}
	}
	payload, err := fsm.EncodeTxn(&txn)
	if err != nil {
		return fsm.Result{}, err
	}
	result, err := n.submit(ctx, methodSubmitTxn, payload, func() *Intent { return NewIntent(&txn, nil) })
	if err == nil && result.Refusal != nil && result.Refusal.Kind == fsm.RefusedUnknown {
		return result, fmt.Errorf("%w: the request is too old to tell", store.ErrUnknownOutcome)
	}
	return result, err
}

// Report brings a report to the leader. One that was entered twice is refused as late, or, where it
// opens a session, changes nothing. See store.Writer.
func (n *Node) Report(ctx context.Context, report fsm.Report) (fsm.Result, error) {
	payload, err := fsm.EncodeReport(&report)
	if err != nil {
		return fsm.Result{}, err
	}
	return n.submit(ctx, methodSubmitReport, payload, func() *Intent { return NewIntent(nil, &report) })
}

// NewRequestID for a request that the caller may want to try again.
func (n *Node) NewRequestID() fsm.RequestID {
	return fsm.RequestID{Seen: n.db.State().Revision(), Random: rand.Uint64()}
}

func (n *Node) submit(ctx context.Context, m method, payload []byte, intent func() *Intent) (fsm.Result, error) {
	if len(payload) > MaxCommandBytes {
		return fsm.Result{}, fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, len(payload), MaxCommandBytes)
	}
	ctx, cancel := n.bounded(ctx)
	defer cancel()
	var result fsm.Result
	err := n.atLeader(ctx,
		func(ctx context.Context) (err error) {
			result, err = n.submitHere(ctx, intent())
			return err
		},
		func(ctx context.Context, id, addr string) (sent bool, err error) {
			answer, sent, err := n.callers.call(ctx, id, addr, m, payload)
			if err == nil {
				result, err = fsm.DecodeResult(answer)
			}
			return sent, err
		})
	if err != nil {
		return fsm.Result{}, err
	}
	if _, err := n.db.WaitFor(ctx, result.Revision); err != nil {
		return fsm.Result{}, unknownOutcome(fmt.Errorf("done at revision %d, not applied here in time: %w", result.Revision, err))
	}
	return result, nil
}

// ReadIndex is a linearizable read point. See store.Writer.
func (n *Node) ReadIndex(ctx context.Context) (fsm.Revision, error) {
	ctx, cancel := n.bounded(ctx)
	defer cancel()
	var revision fsm.Revision
	err := n.atLeader(ctx,
		func(ctx context.Context) (err error) {
			revision, err = n.readIndexHere(ctx)
			return err
		},
		func(ctx context.Context, id, addr string) (bool, error) {
			answer, sent, err := n.callers.call(ctx, id, addr, methodReadIndex, nil)
			if err == nil {
				revision, err = decodeRevision(answer)
			}
			return sent && isAnswer(err), err // what got lost on the way left no trace
		})
	if err != nil {
		return 0, err
	}
	if _, err := n.db.WaitFor(ctx, revision); err != nil {
		return 0, fmt.Errorf("%w: %w", store.ErrNoLeader, err)
	}
	return revision, nil
}

// bounded gives a context without deadline one, and ends it with the node.
func (n *Node) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.WriteTimeout)
	stop := context.AfterFunc(n.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// atLeader calls here or there, wherever the leader is, until it has an answer. It returns
// store.ErrNoLeader where surely nothing happened at any try, store.ErrUnknownOutcome where something
// may have; an answer that is an error ends it at once.
func (n *Node) atLeader(ctx context.Context, here func(context.Context) error,
	there func(ctx context.Context, id, addr string) (sent bool, err error),
) error {
	var unknown error // the first try whose outcome is unknown
	pause := firstRetryPause
	giveUp := n.clock.Now().Add(n.cfg.LeaderWait)
	for {
		err := n.tryLeader(ctx, here, there)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrOverloaded) && unknown == nil:
			return err // the caller should back off, not we
		case errors.Is(err, ErrNotProposed):
		case errors.Is(err, store.ErrUnknownOutcome):
			unknown = err
		case unknown != nil:
			return errors.Join(unknown, err)
		default:
			return err
		}
		late := n.clock.Now().After(giveUp) && unknown == nil
		if late || !n.pause(ctx, pause+rand.N(pause), nil) {
			if unknown != nil {
				return unknown
			}
			return fmt.Errorf("%w: %w", store.ErrNoLeader, err)
		}
		pause = min(2*pause, longestRetryPause)
	}
}

// tryLeader is one try. Its error is ErrNotProposed, store.ErrUnknownOutcome, or the leader's answer.
func (n *Node) tryLeader(ctx context.Context, here func(context.Context) error,
	there func(ctx context.Context, id, addr string) (bool, error),
) error {
	leader := n.Leader()
	switch leader {
	case n.cfg.NodeID:
		return here(ctx)
	case "":
		return fmt.Errorf("%w: no leader is known", ErrNotLeader)
	}
	addr, err := n.addressOf(leader)
	if err != nil {
		return notProposed(err)
	}
	sent, err := there(ctx, leader, addr)
	switch {
	case err == nil || sent && isAnswer(err):
		return err
	case sent:
		return unknownOutcome(err)
	default:
		return notProposed(err)
	}
}

// addressOf finds a node.
func (n *Node) addressOf(id string) (string, error) {
	if addr, ok := n.book.lookup(id); ok {
		return addr, nil
	}
	return "", fmt.Errorf("%w: %q", ErrUnknownNode, id)
}

// isAnswer tells what another node decided from what failed on the way.
func isAnswer(err error) bool {
	var remote *remoteError
	return errors.As(err, &remote)
}

// submitHere decides an intent on this node, if it leads.
func (n *Node) submitHere(ctx context.Context, intent *Intent) (fsm.Result, error) {
	if err := checkIntent(intent); err != nil {
		return fsm.Result{}, err
	}
	return n.enter(ctx, intent)
}

// enter is submitHere for the group's own intents, too. It waits until the state has come to where the
// intent's maker saw it: a follower may have applied what this node has yet to, and a room that does not know
// the row would take the edit of it for one that Apply refuses anyway.
func (n *Node) enter(ctx context.Context, intent *Intent) (fsm.Result, error) {
	if intent.Txn != nil {
		reach, cancel := context.WithTimeout(ctx, applyTimeout)
		defer cancel()
		if _, err := n.db.WaitFor(reach, intent.Txn.ID.Seen); err != nil {
			return fsm.Result{}, notProposed(err)
		}
	}
	l := n.gate.Load()
	switch {
	case l == nil || n.failed.Load():
		return fsm.Result{}, ErrNotLeader
	case n.halted.Load():
		return fsm.Result{}, ErrHalted
	}
	if err := l.Submit(intent); err != nil {
		return fsm.Result{}, err
	}
	select {
	case r := <-intent.Replied():
		return r.Result, r.Err
	case <-ctx.Done():
		return fsm.Result{}, unknownOutcome(ctx.Err())
	}
}

// readIndexHere is ReadIndex on the leader. The revision is applied here already.
func (n *Node) readIndexHere(ctx context.Context) (fsm.Revision, error) {
	if !n.IsLeader() || n.failed.Load() {
		return 0, ErrNotLeader
	}
	return n.reads.get(ctx)
}

// proveReadIndex does one round of reads.
func (n *Node) proveReadIndex() (fsm.Revision, error) {
	l := n.gate.Load()
	if l == nil {
		return 0, ErrNotLeader
	}
	return l.ReadIndex()
}

// callTimeout bounds the calls of one node to another that nobody waits for.
func (n *Node) callTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, membershipTimeout+time.Second)
}
