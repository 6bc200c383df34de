package main

import (
	"github.com/bourse-dev/bourse/cluster"
)

// read is linearizable, as cluster.Node.ReadIndex does it: nothing that any client was told before
// may be missing.
func (c *client) read(n *node) {
	t := c.trace
	floor, life := t.history.known, n.life
	leads := n.raft.leader
	if leads < 0 {
		t.stats.count("read", "no leader")
		return
	}
	over := false
	end := func(how string) {
		if !over {
			over, c.idle = true, true
			t.stats.count("read", how)
		}
	}
	c.idle = false
	t.after(writeTimeout, quiet, -1, func() { end("gave up") })
	n.ask(t.nodes[leads], "read index", (*node).readIndex, func(a answer, _ bool) {
		if a.err != nil {
			end("refused")
			return
		}
		n.whenReached(a.revision, func() {
			if n.life != life {
				return
			}
			end("linearizable")
			t.mix(uint64(a.revision))
			if a.revision < floor {
				t.fail("a linearizable read at n%d saw revision %d; clients knew %d when it began", n.id, a.revision, floor)
			}
			t.history.known = max(t.history.known, a.revision)
		})
	})
}

// readIndex proves leadership and answers.
func (n *node) readIndex(reply func(answer)) {
	l := n.gate.Load()
	if l == nil {
		reply(answer{err: cluster.ErrNotLeader})
		return
	}
	n.spawn(func() {
		revision, err := l.ReadIndex()
		if !n.dead() {
			reply(answer{revision: revision, err: err})
		}
	})
}

// readStale is local: any state that was ever committed will do, but none that was not.
func (c *client) readStale(n *node) {
	state := n.db.State()
	c.trace.stats.count("read", "stale")
	if state.Revision() > c.trace.history.revision() {
		c.trace.fail("n%d shows revision %d, %d is the newest committed", n.id, state.Revision(), c.trace.history.revision())
	}
	c.trace.history.known = max(c.trace.history.known, state.Revision())
}
