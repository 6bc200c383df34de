package main

import (
	"bytes"

	"github.com/bourse-dev/bourse/fsm"
)

func (n *node) commitTo(index uint64) {
	if index <= n.raft.commit {
		return
	}
	n.raft.commit = index
	n.applyLater()
}

// applyLater applies one entry at a time, each node at its own pace.
func (n *node) applyLater() {
	if n.raft.applying || n.raft.applied >= n.raft.commit {
		return
	}
	n.raft.applying = true
	t, life := n.trace, n.life
	delay := between(t.raftDice, 0, 2)
	if t.now < n.slowApplyUntil {
		delay = between(t.raftDice, 20, 800)
		t.fire("slow apply")
	}
	t.after(delay, "apply", n.id, func() {
		if n.life != life {
			return
		}
		n.whenAwake(func() {
			n.raft.applying = false
			if n.raft.applied < n.raft.commit {
				n.applyNext()
				n.applyLater()
			}
		})
	})
}

func (n *node) applyNext() {
	index := n.raft.applied + 1
	e := n.disk.at(index)
	var results []fsm.Result
	if e.data != nil {
		err := n.tooNew(e.data)
		if err == nil {
			results, err = n.db.Apply(e.data)
		}
		if err != nil {
			n.stopped(index, err)
			return
		}
	}
	n.raft.applied = index
	n.trace.history.applied(n, index, e, results)
	if p := n.raft.proposals[index]; p != nil {
		delete(n.raft.proposals, index)
		p.results, p.lost = results, p.term != e.term
		p.finish(n)
	}
	for _, w := range n.raft.behind {
		w.finish(n)
	}
	n.raft.behind = nil
	n.stateChanged()
}

// takeSnapshot writes the applied state as production does, and forgets the log before it.
func (n *node) takeSnapshot() {
	index := n.raft.applied
	if index <= n.disk.snapshot.index {
		return
	}
	state := n.db.State()
	if kept, anew := state.Hash(), state.FullHash(); kept != anew {
		n.trace.fail("n%d: the state at revision %d hashes to %s, kept is %s", n.id, state.Revision(), anew, kept)
		return
	}
	var data bytes.Buffer
	if err := fsm.WriteSnapshot(&data, state); err != nil {
		n.trace.fail("n%d: %v", n.id, err)
		return
	}
	n.trace.stats.count("snapshot", "taken")
	n.trace.tell("n%d takes a snapshot at entry %d", n.id, index)
	n.disk.snapshot = snapshot{index, n.disk.termAt(index), data.Bytes()}
	n.disk.compact(uint64(n.trace.diskDice.IntN(trailingEntries + 1)))
	n.disk.synced = max(n.disk.synced, n.disk.base)
}

func (n *node) sendSnapshot(to *node) {
	s, m := n.disk.snapshot, message{from: n, term: n.disk.term, round: n.raft.round, commit: n.raft.commit}
	n.raft.next[to.id] = s.index + 1 // not again with every heartbeat; a refused append sets it back
	n.trace.send(n, to, "snapshot", func() { to.installSnapshot(m, s) })
}

func (n *node) installSnapshot(m message, s snapshot) {
	if !n.hear(m.term) {
		return
	}
	n.raft.role, n.raft.leader, n.raft.lastContact = follower, m.from.id, n.trace.now
	if s.index > n.raft.applied {
		state, err := fsm.ReadSnapshot(bytes.NewReader(s.data))
		if err != nil {
			n.trace.fail("n%d: install snapshot of entry %d: %v", n.id, s.index, err)
			return
		}
		if state.Behaviour() > n.knows {
			n.trace.fail("n%d knows behaviour version %d, and is sent a snapshot of %d", n.id, n.knows, state.Behaviour())
			return
		}
		n.db.Restore(state)
		n.disk.install(s)
		for _, f := range n.raft.syncs {
			f.upTo = min(f.upTo, n.disk.last())
		}
		for index := n.raft.applied + 1; index <= s.index; index++ {
			if p := n.raft.proposals[index]; p != nil {
				delete(n.raft.proposals, index)
				p.lost = true
				p.finish(n)
			}
		}
		n.raft.applied, n.raft.commit = s.index, max(n.raft.commit, s.index)
		n.raft.commit = min(n.raft.commit, n.disk.last())
		n.trace.fire("snapshot installed")
		n.trace.tell("n%d installs the snapshot of entry %d", n.id, s.index)
		n.trace.history.restored(n, s.index)
		n.stateChanged()
	}
	n.answer(m, s.index, true)
}
