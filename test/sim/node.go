package main

import (
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// node is one broker node: a state machine, its place in the log, and, while it leads, a term.
type node struct {
	trace *trace
	id    int
	up    bool
	life  int    // how often it started
	knows uint32 // the newest behaviour version of its build

	disk    *disk
	raft    raft
	db      *store.DB
	gate    atomic.Pointer[cluster.Leadership]
	clock   nodeClock
	term    *term
	owner   owner
	tasks   []*task
	watches []*watcher

	open    []*open       // intents that wait for their reply
	waiters []*revisionOf // for this node's state
	calls   map[int]func()

	electionWatch                                             int
	asleepUntil, slowDiskUntil, slowApplyUntil, stubbornUntil int64
}

func newNode(t *trace, id int) *node {
	n := &node{trace: t, id: id, disk: &disk{votedFor: -1}, knows: fsm.SupportedBehaviour}
	if chance(t.raftDice, 25) {
		n.knows = fsm.FirstBehaviour
	}
	n.clock = nodeClock{trace: t, offset: between(t.faultDice, -300, 300)}
	n.start()
	return n
}

// start is what a process does: from the disk, and nothing else.
func (n *node) start() {
	n.up, n.life = true, n.life+1
	state, err := n.disk.state()
	if err != nil {
		n.trace.fail("n%d can't start: %v", n.id, err)
		return
	}
	if state.Behaviour() > n.knows {
		n.trace.fail("n%d can't start: its build knows behaviour version %d, its snapshot has %d", n.id, n.knows, state.Behaviour())
	}
	n.db = store.NewDB(state)
	n.raft = raft{
		leader: -1, commit: n.disk.snapshot.index, applied: n.disk.snapshot.index,
		proposals: map[uint64]*proposal{}, lastContact: n.trace.now,
	}
	n.gate.Store(nil)
	n.term, n.owner = nil, owner{}
	n.open, n.waiters, n.calls = nil, nil, map[int]func(){}
	n.asleepUntil = 0
	n.watchElection()
	n.snapshotLater()
	n.watch()
}

// crash ends the process at once, between any two events. keep: how much of what was never synced is
// found again.
func (n *node) crash(keep uint64) {
	if !n.up {
		return
	}
	n.trace.tell("n%d crashes; log %d, synced %d, applied %d", n.id, n.disk.last(), n.disk.synced, n.raft.applied)
	n.up = false
	n.life++
	n.dropTasks()
	n.disk.crash(keep)
	n.raft.role, n.raft.leader = follower, -1
	n.term = nil
	calls := n.calls
	n.calls = nil
	for _, id := range sortedKeys(calls) {
		calls[id]() // whoever waits for an answer of this node finds the connection broken
	}
}

// stopped: a committed entry can't be applied. No fault of this simulator allows that.
func (n *node) stopped(index uint64, err error) {
	n.trace.fail("n%d stops at entry %d: %v", n.id, index, err)
}

// dead is asked by production code that runs in a task of this node.
func (n *node) dead() bool {
	return !n.up || n.trace.task != nil && n.trace.task.dead
}

// whenAwake does it now, or once the node's process goes on.
func (n *node) whenAwake(do func()) {
	if n.asleepUntil <= n.trace.now {
		do()
		return
	}
	life := n.life
	n.trace.after(n.asleepUntil-n.trace.now, "wakes", n.id, func() {
		if n.life == life {
			n.whenAwake(do)
		}
	})
}

func (n *node) snapshotLater() {
	life := n.life
	n.trace.after(between(n.trace.diskDice, 5000, 40_000), "snapshot due", n.id, func() {
		if n.life == life {
			n.whenAwake(n.takeSnapshot)
			n.snapshotLater()
		}
	})
}

// stateChanged follows each applied entry, as cluster.Node's does.
func (n *node) stateChanged() {
	if l := n.gate.Load(); l != nil {
		l.StateChanged()
	}
	n.wakeRooms()
	revision := n.db.State().Revision()
	rest := n.waiters[:0]
	var reached []*revisionOf
	for _, w := range n.waiters {
		if w.revision <= revision {
			reached = append(reached, w)
		} else {
			rest = append(rest, w)
		}
	}
	n.waiters = rest
	for _, w := range reached {
		n.trace.after(0, "reached", n.id, w.reached)
	}
	for _, w := range n.watches {
		w.read()
	}
}

// revisionOf waits until this node's state has come to a revision.
type revisionOf struct {
	revision fsm.Revision
	reached  func()
}

// whenReached calls do once this node has applied the revision.
func (n *node) whenReached(revision fsm.Revision, do func()) {
	if n.db.State().Revision() >= revision {
		do()
		return
	}
	n.waiters = append(n.waiters, &revisionOf{revision, do})
}

// nodeClock is a wall clock that may be wrong and jump, and a monotonic one that does not.
type nodeClock struct {
	trace  *trace
	offset int64
	starts map[time.Time]int64 // what Now said, and when that was
}

// Now is the wall clock.
func (c *nodeClock) Now() time.Time {
	now := time.UnixMilli(c.trace.now + c.offset)
	if c.starts == nil {
		c.starts = map[time.Time]int64{}
	}
	c.starts[now] = c.trace.now
	return now
}

// Since is the monotonic clock, whatever happened to the other.
func (c *nodeClock) Since(start time.Time) time.Duration {
	return time.Duration(c.trace.now-c.starts[start]) * time.Millisecond
}
