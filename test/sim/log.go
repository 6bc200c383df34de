package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// log is cluster.Log on the simulated Raft of one node. What waits runs in a task.
type log struct{ node *node }

var (
	errLost = fmt.Errorf("%w: leadership lost while committing", store.ErrUnknownOutcome)
	errDown = fmt.Errorf("%w: the node went down", store.ErrUnknownOutcome)

	_ cluster.Log = log{}
)

func (l log) Propose(entries [][]byte) []cluster.Proposed {
	n := l.node
	out := make([]cluster.Proposed, len(entries))
	proposals := make([]*proposal, len(entries))
	for i, data := range entries {
		if n.dead() {
			out[i].Err = errDown
			continue
		}
		if n.raft.role != leader {
			out[i].Err = cluster.ErrNotLeader
			continue
		}
		proposals[i] = n.propose(data)
	}
	for i, p := range proposals {
		switch {
		case p == nil:
		case !n.wait(&p.waiting):
			out[i].Err = errDown
		case p.lost:
			out[i].Err = errLost
		default:
			out[i].Results, _ = p.results.([]fsm.Result)
		}
	}
	return out
}

func (n *node) propose(data []byte) *proposal {
	p := &proposal{term: n.disk.term}
	index := n.place(data)
	n.raft.proposals[index] = p
	return p
}

func (l log) Barrier(time.Duration) error {
	n := l.node
	if n.dead() || n.raft.role != leader {
		return cluster.ErrNotLeader
	}
	p := n.propose(nil)
	if !n.wait(&p.waiting) {
		return errDown
	}
	if p.lost {
		return errLost
	}
	return nil
}

// Verify is confirmed by a majority that answers heartbeats sent since; then it waits for what was
// committed.
func (l log) Verify() error {
	n := l.node
	if n.dead() || n.raft.role != leader {
		return cluster.ErrNotLeader
	}
	committed := n.raft.commit
	v := &verification{round: n.raft.round + 1}
	n.raft.verifying = append(n.raft.verifying, v)
	n.replicate()
	if !n.wait(&v.waiting) {
		return errDown
	}
	if v.lost {
		return errors.New("leadership lost while verifying")
	}
	for n.raft.applied < committed {
		w := &waiting{}
		n.raft.behind = append(n.raft.behind, w)
		if !n.wait(w) {
			return errDown
		}
	}
	return nil
}

func (n *node) checkVerified() {
	rest := n.raft.verifying[:0]
	for _, v := range n.raft.verifying {
		confirmed := 1
		for i, round := range n.raft.acked {
			if i != n.id && round >= v.round {
				confirmed++
			}
		}
		if confirmed >= n.quorum() {
			v.finish(n)
		} else {
			rest = append(rest, v)
		}
	}
	n.raft.verifying = rest
}

func (l log) Term() uint64          { return l.node.disk.term }
func (l log) Leading() bool         { return l.node.raft.role == leader }
func (l log) LeaderCh() <-chan bool { panic("the simulator's owner is told by an event") }
func (l log) HandOver() error       { return l.node.handOver() }

var errNobody = errors.New("nobody takes leadership over")

// handOver asks the follower that has most to call an election at once.
func (n *node) handOver() error {
	if n.raft.role != leader {
		return cluster.ErrNotLeader
	}
	best := -1
	for i, match := range n.raft.match {
		if i != n.id && (best < 0 || match > n.raft.match[best]) {
			best = i
		}
	}
	if best < 0 {
		return errNobody
	}
	to, term := n.trace.nodes[best], n.disk.term
	n.trace.send(n, to, "transfer", func() {
		if to.hear(term) && to.raft.role == follower {
			to.raft.lastContact = n.trace.now
			to.campaign(true)
		}
	})
	return nil
}
