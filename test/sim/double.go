package main

import (
	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/reservation"
	"github.com/bourse-dev/bourse/store"
)

// doublePlanner is a second reservation room beside the first, on a state that it looks at only now
// and then: slow, stale and doubled, it may only ever be refused.
type doublePlanner struct {
	term    *term
	room    cluster.Room
	stepper *cluster.Stepper
	feed    *staleFeed
	intents []*cluster.Intent
	frozen  int64 // until when it looks at nothing new
	running bool
	over    bool
}

// staleFeed shows the state as it was.
type staleFeed struct {
	db    *store.DB
	state *fsm.State
}

func (f *staleFeed) State() *fsm.State { return f.state }

func (f *staleFeed) Changes(after fsm.Revision) ([]fsm.Change, error) {
	changes, err := f.db.Changes(after)
	for len(changes) > 0 && changes[len(changes)-1].Revision > f.state.Revision() {
		changes = changes[:len(changes)-1]
	}
	return changes, err
}

func (m *term) startDouble(duration, frozen int64) {
	n := m.node
	feed := &staleFeed{n.db, n.db.State()}
	room := reservation.New(reservation.Config{})
	m.double = &doublePlanner{term: m, room: room, feed: feed, frozen: n.trace.now + frozen, stepper: cluster.NewStepper(room, feed, m.l.Now())}
	n.trace.tell("n%d: a second planner works beside the first", n.id)
	d := m.double
	m.after(duration, "second planner ends", d.end)
	d.step()
}

// takes every other intent away from the first planner.
func (d *doublePlanner) takes(intent *cluster.Intent) bool {
	if d.over || !d.room.Takes(intent) || !chance(d.term.node.trace.faultDice, 50) {
		return false
	}
	d.intents = append(d.intents, intent)
	return true
}

func (d *doublePlanner) step() {
	m := d.term
	if d.over || m.ending {
		return
	}
	dice := m.node.trace.faultDice
	if m.node.trace.now > d.frozen && chance(dice, 30) {
		d.feed.state = m.node.db.State()
	}
	var intents, ahead []*cluster.Intent // no room is given what is made on a newer state than it sees
	for _, in := range d.intents {
		if in.Txn != nil && in.Txn.ID.Seen > d.feed.state.Revision() {
			ahead = append(ahead, in)
		} else {
			intents = append(intents, in)
		}
	}
	d.intents = ahead
	d.running = true
	m.run(func() error {
		defer func() { d.running = false }()
		batches, err := d.stepper.Step(m.l.Now(), intents)
		if err != nil || len(batches) == 0 {
			return err
		}
		entries := make([][]byte, len(batches))
		for i := range batches {
			entries[i] = batches[i].Entry
		}
		outcomes := log{m.node}.Propose(entries)
		if err := d.stepper.Settle(batches, outcomes); err != nil {
			return err
		}
		// What was settled must be in the state that the room sees next.
		d.feed.state = m.node.db.State()
		return nil
	}, func() { m.after(between(dice, 5, 300), "second planner", d.step) })
}

// end answers what the second planner has not.
func (d *doublePlanner) end() {
	if d.over {
		return
	}
	if d.running {
		d.term.after(10, "second planner ends", d.end) // a term waits for it before it ends
		return
	}
	d.over = true
	d.stepper.End()
	again := d.intents
	d.intents = nil
	for _, in := range again {
		if err := d.term.l.Submit(in); err != nil {
			d.term.node.refuse(in, err)
		}
	}
	d.term.node.deliverReplies()
	d.term.node.wakeRooms()
}

// refuse answers an intent that no room has seen.
func (n *node) refuse(in *cluster.Intent, err error) {
	for i, o := range n.open {
		if o.intent == in {
			n.open = append(n.open[:i], n.open[i+1:]...)
			o.reply(answer{err: err})
			return
		}
	}
}
