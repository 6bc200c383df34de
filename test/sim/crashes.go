package main

import "github.com/bourse-dev/bourse/fsm"

func (t *trace) crashNode(n *node, dice faultDice) {
	if !n.up {
		return
	}
	keep := n.disk.synced + uint64(dice.between(0, int64(n.disk.last()-min(n.disk.synced, n.disk.last()))))
	if n.disk.last() > max(keep, n.disk.synced) {
		t.fire("unsynced entries lost")
	}
	n.crash(keep)
	t.during(dice.between(200, 12_000), "crash", func() { t.restart(n) })
}

func (t *trace) restart(n *node) {
	if !n.up {
		t.tell("n%d starts", n.id)
		n.start()
		if index := n.disk.snapshot.index; index > 0 {
			t.history.restored(n, index)
		}
	}
}

// upgradeNode restarts a node of an older build as the present one.
func (t *trace) upgradeNode(dice faultDice) {
	n := t.someNode(dice)
	if !n.up || n.knows == fsm.SupportedBehaviour {
		return
	}
	t.fire("node upgraded")
	t.crashNode(n, dice)
	n.knows = fsm.SupportedBehaviour
}

func (t *trace) crashOne(dice faultDice) {
	if n := t.someNode(dice); n.up {
		t.fire("crash")
		t.crashWriting(n, dice)
	}
}

func (t *trace) crashLeader(dice faultDice) {
	if n := t.leading(); n != nil {
		t.fire("leader crashes")
		t.crashWriting(n, dice)
	}
}

// crashWriting crashes a node at once or, as often, while its disk is slow and much is on its way there.
func (t *trace) crashWriting(n *node, dice faultDice) {
	if dice.between(0, 1) == 0 {
		t.crashNode(n, dice)
		return
	}
	n.slowDiskUntil = max(n.slowDiskUntil, t.now+2000)
	t.during(dice.between(1, 2000), "crash while writing", func() { t.crashNode(n, dice) })
}

func (t *trace) crashAll(dice faultDice) {
	t.fire("all crash")
	for _, n := range t.nodes {
		t.crashNode(n, dice)
	}
}

// loseFsync lets a node lose entries that its disk said it had, as long as a majority of the others
// has them: more is beyond what any replicated log can bear.
func (t *trace) loseFsync(dice faultDice) {
	n := t.someNode(dice)
	if !n.up {
		return
	}
	keep := n.disk.synced
	for keep > n.disk.base && keep > n.disk.snapshot.index {
		have := 0
		for _, o := range t.nodes {
			if o != n && o.disk.synced >= keep && (o.disk.base >= keep || o.disk.termAt(keep) == n.disk.termAt(keep)) {
				have++
			}
		}
		if have < n.quorum() {
			break
		}
		keep--
	}
	if keep == n.disk.synced {
		return
	}
	t.fire("lost fsync")
	t.tell("n%d: its disk loses entries %d to %d", n.id, keep+1, n.disk.synced)
	n.disk.synced = keep
	n.crash(keep)
	t.during(dice.between(200, 8000), "crash", func() { t.restart(n) })
}
