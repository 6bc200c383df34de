package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/bourse-dev/bourse/advertisement"
	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/reservation"
)

// What production has on other scales: agents that are heard every few seconds make short traces.
const (
	staleAfter = 12_000
	tickEvery  = 5_000
)

// owner is cluster's: at most one term, an ended one is waited for.
type owner struct {
	newest   *bool // of leadership, not acted upon yet; nil: nothing new
	failures int64
}

// term drives a cluster.Leadership as cluster's term loop does, with a task for whatever blocks.
type term struct {
	node   *node
	l      *cluster.Leadership
	cancel context.CancelFunc
	rooms  []roomState
	tasks  int // under way
	opened bool
	ending bool
	err    error
	ended  func()
	double *doublePlanner
}

type roomState struct {
	running, again bool
	wakes          int // generation of its timer
}

// leadershipChanged is LeaderCh: only the newest value is kept, and the owner looks a little later.
func (n *node) leadershipChanged(leads bool) {
	pending := n.owner.newest != nil
	n.owner.newest = &leads
	if pending {
		return
	}
	life := n.life
	n.trace.after(between(n.trace.raftDice, 0, 30), "owner", n.id, func() {
		if n.life == life {
			n.whenAwake(n.ownLeadership)
		}
	})
}

func (n *node) ownLeadership() {
	if n.owner.newest == nil {
		return
	}
	leads := *n.owner.newest
	n.owner.newest = nil
	if n.term == nil {
		if leads {
			n.beginTerm()
		}
		return
	}
	n.term.ended = func() {
		if n.owner.newest == nil && leads {
			n.beginTerm()
		}
	}
	n.term.end(nil)
}

func (n *node) beginTerm() {
	ctx, cancel := context.WithCancel(context.Background())
	l := cluster.NewLeadership(cluster.LeadershipConfig{
		Log: log{n}, Feed: n.db, Clock: &n.clock, TakeOverTimeout: time.Minute, Gate: &n.gate,
		Rooms: n.trace.leaderRooms(), Check: func(context.Context) error { return n.checkClock() },
	})
	m := &term{node: n, l: l, cancel: cancel}
	n.term = m
	m.run(func() error {
		err := l.TakeOver(ctx)
		if err == nil && m.ending && !n.dead() {
			l.Close() // ended while it took over
		}
		return err
	}, m.open)
}

// leaderRooms as cmd names them, and the simulator's own.
func (t *trace) leaderRooms() []cluster.Room {
	return []cluster.Room{
		reservation.New(reservation.Config{Observe: func(o reservation.Outcome) { t.stats.count("reservation", string(o)) }}),
		advertisement.New(advertisement.Config{StaleAfter: staleAfter * time.Millisecond}),
		blueprintRoom(t),
		barter{},
	}
}

var errClock = errors.New("this node's clock is ahead of every other's")

// checkClock is cluster.Node's, without the questions: who answers is who can be reached.
func (n *node) checkClock() error {
	least, asked := int64(0), false
	for _, o := range n.trace.nodes {
		if o == n || !o.up || n.trace.links.cut[[2]int{n.id, o.id}] || n.trace.links.cut[[2]int{o.id, n.id}] {
			continue
		}
		if ahead := n.clock.offset - o.clock.offset; !asked || ahead < least {
			least, asked = ahead, true
		}
	}
	if asked && least > 10_000 {
		return errClock
	}
	return nil
}

// run does something that blocks; then follows unless the term failed by it.
func (m *term) run(do func() error, then func()) {
	n := m.node
	m.tasks++
	n.spawn(func() {
		err := do()
		m.tasks--
		if n.dead() {
			return
		}
		switch {
		case err != nil:
			m.end(err)
		case then != nil && !m.ending:
			then()
		}
		m.finish()
	})
}

func (m *term) open() {
	n := m.node
	n.trace.tell("n%d lets intents in at revision %d", n.id, n.db.State().Revision())
	n.trace.stats.terms++
	m.opened = true
	n.owner.failures = 0
	m.rooms = make([]roomState, m.l.Rooms())
	for i := range m.rooms {
		m.turn(i)
	}
	m.after(tickEvery, "tick", m.tick)
	m.after(1500, "steward", m.steward)
}

// after does something later in this term, if it is still going on.
func (m *term) after(delay int64, name string, do func()) {
	n := m.node
	n.trace.after(delay, name, n.id, func() {
		if n.term == m && !m.ending {
			n.whenAwake(func() {
				if n.term == m && !m.ending {
					do()
				}
			})
		}
	})
}

func (m *term) tick() {
	m.run(m.l.Tick, func() { m.after(tickEvery, "tick", m.tick) })
}

// steward looks after clocks and the behaviour version, as production's does.
func (m *term) steward() {
	n := m.node
	if err := n.checkClock(); err != nil {
		m.end(err)
		m.finish()
		return
	}
	if known := n.trace.knownToAll(); known > n.db.State().Behaviour() {
		n.trace.tell("n%d raises the behaviour version to %d", n.id, known)
		n.trace.stats.count("command", "behaviour")
		m.run(func() error { return m.l.RaiseBehaviour(known) }, nil)
	}
	m.after(6000, "steward", m.steward)
}

// turn lets room i take its next turn, or remember that it wants one.
func (m *term) turn(i int) {
	r := &m.rooms[i]
	if m.ending {
		return
	}
	if r.running {
		r.again = true
		return
	}
	r.running, r.again = true, false
	r.wakes++
	m.run(func() error {
		err := m.l.Turn(i)
		r.running = false
		if err != nil && m.opened && strings.HasPrefix(err.Error(), "panic:") {
			m.node.trace.fail("n%d: room %d: %v", m.node.id, i, err)
		}
		return err
	}, func() {
		switch wake := m.l.Wake(i); {
		case r.again || m.l.Busy(i):
			m.after(0, "turn", func() { m.turn(i) })
		case wake > 0:
			generation := r.wakes
			m.after(int64(wake-m.l.Now()), quiet, func() {
				if r.wakes == generation {
					m.turn(i)
				}
			})
		}
	})
}

// wakeRooms gives each room that was woken its turn, a little later: what comes meanwhile shares it.
func (n *node) wakeRooms() {
	m := n.term
	if m == nil || !m.opened || m.ending {
		return
	}
	for i := range m.rooms {
		select {
		case <-m.l.Woken(i):
			m.after(between(n.trace.raftDice, 0, 6), "turn", func() { m.turn(i) })
		default:
		}
	}
}

// end closes the gate first, then cancels, then waits for what is under way.
func (m *term) end(err error) {
	if m.ending {
		return
	}
	m.ending, m.err = true, err
	m.node.trace.tell("n%d ends its term: %v", m.node.id, err)
	if m.opened {
		m.l.Close()
	}
	m.cancel()
	m.finish()
}

// finish is called whenever something of an ending term is done.
func (m *term) finish() {
	n := m.node
	if !m.ending || m.tasks > 0 || n.term != m {
		return
	}
	n.term = nil
	for i := range m.l.Rooms() {
		m.l.EndRoom(i)
	}
	if m.double != nil {
		m.double.end()
	}
	n.deliverReplies()
	n.nothingLeft()
	switch {
	case m.ended != nil:
		m.ended()
	case m.err != nil && n.raft.role == leader:
		n.giveUp()
	}
}

// nothingLeft: after a term no request may find a gate, and none waits for an answer that can't come.
func (n *node) nothingLeft() {
	if n.gate.Load() != nil {
		n.trace.fail("n%d: the gate is open and no term goes on", n.id)
	}
	if len(n.open) > 0 {
		n.trace.fail("n%d: %d intents that a term took in are not answered at its end", n.id, len(n.open))
	}
}

// giveUp hands leadership over and tries again later, as cluster's owner does.
func (n *node) giveUp() {
	n.owner.failures++
	n.trace.stats.count("owner", "gave up")
	_ = n.handOver() // nobody takes it: try again below
	life := n.life
	n.trace.after(min(int64(30_000), int64(500)<<min(n.owner.failures-1, 6)), "owner tries again", n.id, func() {
		if n.life == life && n.term == nil && n.owner.newest == nil && n.raft.role == leader {
			n.beginTerm()
		}
	})
}

// mayDouble says whether a second planner may begin.
func (m *term) mayDouble() bool {
	return m != nil && m.opened && !m.ending && (m.double == nil || m.double.over)
}
