package main

// links are the ways between nodes and what is wrong with them.
type links struct {
	trace *trace
	cut   map[[2]int]bool // from, to

	lossPercent, duplicatePercent, slowPercent int
	sent, arrived                              map[[2]int]uint64 // per link: numbers of messages
}

func newLinks(t *trace) links {
	l := links{trace: t, cut: map[[2]int]bool{}, sent: map[[2]int]uint64{}, arrived: map[[2]int]uint64{}}
	if chance(t.netDice, 50) {
		l.lossPercent = t.netDice.IntN(4)
	}
	if chance(t.netDice, 50) {
		l.duplicatePercent = t.netDice.IntN(4)
	}
	return l
}

// send brings something from one node to another, perhaps: deliver runs there and then.
func (t *trace) send(from, to *node, name string, deliver func()) {
	way, dice := [2]int{from.id, to.id}, t.netDice
	if t.links.cut[way] {
		return
	}
	if !t.healing && chance(dice, t.links.lossPercent) {
		t.fire("message lost")
		return
	}
	copies := 1
	if !t.healing && chance(dice, t.links.duplicatePercent) {
		t.fire("message duplicated")
		copies = 2
	}
	t.links.sent[way]++
	number := t.links.sent[way]
	for range copies {
		delay := between(dice, 1, 12)
		if !t.healing && chance(dice, t.links.slowPercent) {
			delay += between(dice, 50, 3000)
			t.fire("message delayed")
		}
		t.after(delay, name, to.id, func() {
			if t.links.cut[way] || !to.up {
				return
			}
			if number < t.links.arrived[way] {
				t.fired["messages reordered"]++
				t.stats.faults["messages reordered"]++
			}
			t.links.arrived[way] = max(t.links.arrived[way], number)
			to.whenAwake(deliver)
		})
	}
}

// isolate cuts every way between the two sides; oneWay: only from the first to the second.
func (t *trace) isolate(side func(id int) bool, oneWay bool) {
	for a := range t.nodes {
		for b := range t.nodes {
			if side(a) && !side(b) {
				t.links.cut[[2]int{a, b}] = true
				if !oneWay {
					t.links.cut[[2]int{b, a}] = true
				}
			}
		}
	}
}
