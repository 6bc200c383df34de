package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// The length of a trace, in milliseconds: a time with faults and clients, then one without. Most
// traces are short: a bug needs a few faults that meet, and many tries.
const (
	longPhase  = 45_000
	shortPhase = 15_000
	healPhase  = 40_000
	oneLongIn  = 4
)

// Of a trace, incidents not counted.
const (
	leastSteps  = 300
	leastFaults = 5
	mostFaults  = 13
)

// fault goes wrong once, for a while.
type fault struct {
	name string
	do   func(t *trace, dice faultDice)
}

// faultKinds are scheduled; a trace has several.
var faultKinds = []fault{
	{"crash", (*trace).crashOne},
	{"leader crashes", (*trace).crashLeader},
	{"all crash", (*trace).crashAll},
	{"lost fsync", (*trace).loseFsync},
	{"node alone", (*trace).partitionOne},
	{"leader alone", (*trace).partitionLeader},
	{"one-way partition", (*trace).partitionOneWay},
	{"slow links", (*trace).slowLinks},
	{"lossy links", (*trace).lossyLinks},
	{"clock forward", (*trace).clockForward},
	{"clock back", (*trace).clockBack},
	{"slow disk", (*trace).slowDisk},
	{"stale leader", (*trace).staleLeader},
	{"process stopped", (*trace).stopProcess},
	{"agent silent", (*trace).silenceAgent},
	{"late heartbeat", (*trace).lateHeartbeat},
	{"second agent", (*trace).secondAgent},
	{"facts shrink", (*trace).shrinkFacts},
	{"expiry races extension", (*trace).raceExpiry},
	{"two planners", (*trace).twoPlanners},
	{"leadership transferred", (*trace).transfer},
	{"node lags behind", (*trace).lagBehind},
	{"slow follower", (*trace).slowFollower},
	{"command of a newer version", (*trace).newerVersion},
	{"node upgraded", (*trace).upgradeNode},
}

// incidents follow from faults, or happen by the way.
var incidents = []string{
	"message lost", "message duplicated", "message delayed", "messages reordered",
	"slow fsync", "slow apply", "snapshot installed", "unsynced entries lost",
}

// faultDice are a fault's own.
type faultDice struct{ between func(from, to int64) int64 }

func (t *trace) scheduleFaults() {
	count := int(between(t.faultDice, 6, 12))
	if t.faultDice.IntN(oneLongIn) == 0 {
		t.faultPhase = longPhase
	}
	for i := range count {
		kind := faultKinds[t.faultDice.IntN(len(faultKinds))]
		at, seed := between(t.faultDice, 5000, t.faultPhase-2000), t.faultDice.Uint64()
		if t.plan.skip[i] {
			continue
		}
		t.after(at, kind.name, -1, func() {
			if t.healing {
				return
			}
			x := seed
			dice := faultDice{func(from, to int64) int64 {
				x = x*6364136223846793005 + 1442695040888963407
				return from + int64(x>>33)%(to-from+1)
			}}
			// Not every fault finds its victim; then another is tried.
			for before := t.faults(); t.faults() == before; kind = faultKinds[dice.between(0, int64(len(faultKinds)-1))] {
				t.tell("fault %d: %s", i, kind.name)
				kind.do(t, dice)
			}
		})
	}
}

// faults that struck.
func (t *trace) faults() (sum int) {
	for _, kind := range faultKinds {
		sum += t.fired[kind.name]
	}
	return sum
}

// during ends a fault after a while; healing ends it too.
func (t *trace) during(length int64, name string, end func()) {
	t.after(length, name+" ends", -1, func() {
		if !t.healing {
			end()
		}
	})
}

func (t *trace) someNode(dice faultDice) *node {
	return t.nodes[dice.between(0, int64(len(t.nodes)-1))]
}

func (t *trace) leading() *node {
	var newest *node
	for _, n := range t.nodes {
		if n.up && n.raft.role == leader && (newest == nil || n.disk.term > newest.disk.term) {
			newest = n
		}
	}
	return newest
}

func (t *trace) partition(dice faultDice, n *node, oneWay bool) {
	t.isolate(func(id int) bool { return id == n.id }, oneWay)
	t.during(dice.between(1000, 14_000), "partition", func() { clear(t.links.cut) })
}

func (t *trace) partitionOne(dice faultDice) {
	t.fire("node alone")
	t.partition(dice, t.someNode(dice), false)
}

func (t *trace) partitionLeader(dice faultDice) {
	if n := t.leading(); n != nil {
		t.fire("leader alone")
		t.partition(dice, n, false)
	}
}

func (t *trace) partitionOneWay(dice faultDice) {
	t.fire("one-way partition")
	n := t.someNode(dice)
	if dice.between(0, 1) == 0 {
		t.isolate(func(id int) bool { return id != n.id }, true)
		t.during(dice.between(1000, 14_000), "partition", func() { clear(t.links.cut) })
		return
	}
	t.partition(dice, n, true)
}

// staleLeader: cut off, and it goes on believing that it leads.
func (t *trace) staleLeader(dice faultDice) {
	if n := t.leading(); n != nil {
		t.fire("stale leader")
		length := dice.between(8000, 16_000)
		n.stubbornUntil = t.now + length
		t.isolate(func(id int) bool { return id == n.id }, false)
		t.during(length, "partition", func() { clear(t.links.cut) })
	}
}

func (t *trace) slowLinks(dice faultDice) {
	t.fire("slow links")
	t.links.slowPercent = int(dice.between(5, 40))
	t.during(dice.between(3000, 15_000), "slow links", func() { t.links.slowPercent = 0 })
}

func (t *trace) lossyLinks(dice faultDice) {
	t.fire("lossy links")
	before, twice := t.links.lossPercent, t.links.duplicatePercent
	t.links.lossPercent, t.links.duplicatePercent = int(dice.between(10, 50)), 20
	t.during(dice.between(3000, 12_000), "lossy links", func() { t.links.lossPercent, t.links.duplicatePercent = before, twice })
}

func (t *trace) clockForward(dice faultDice) {
	t.fire("clock forward")
	n := t.someNode(dice)
	n.clock.offset += dice.between(500, 30_000)
}

func (t *trace) clockBack(dice faultDice) {
	t.fire("clock back")
	n := t.someNode(dice)
	n.clock.offset -= dice.between(500, 30_000)
}

func (t *trace) slowDisk(dice faultDice) {
	t.fire("slow disk")
	t.someNode(dice).slowDiskUntil = t.now + dice.between(2000, 10_000)
}

func (t *trace) stopProcess(dice faultDice) {
	n := t.someNode(dice)
	if dice.between(0, 1) == 0 && t.leading() != nil {
		n = t.leading()
	}
	if n.up {
		t.fire("process stopped")
		n.asleepUntil = t.now + dice.between(500, 9000)
	}
}

func (t *trace) slowFollower(dice faultDice) {
	t.fire("slow follower")
	t.someNode(dice).slowApplyUntil = t.now + dice.between(3000, 12_000)
}

// lagBehind keeps a node away until the others have forgotten what it needs.
func (t *trace) lagBehind(dice faultDice) {
	n := t.someNode(dice)
	if !n.up || n.raft.role == leader {
		return
	}
	t.fire("node lags behind")
	t.crashNode(n, dice)
	for _, o := range t.nodes {
		t.during(dice.between(4000, 11_000), "snapshot wanted", func() {
			if o.up {
				o.whenAwake(o.takeSnapshot)
			}
		})
	}
}

func (t *trace) transfer(faultDice) {
	if n := t.leading(); n != nil && n.handOver() == nil {
		t.fire("leadership transferred")
	}
}

func (t *trace) twoPlanners(dice faultDice) {
	n := t.leading()
	if n == nil || !n.term.mayDouble() {
		return
	}
	t.fire("two planners")
	n.term.startDouble(dice.between(3000, 15_000), dice.between(0, 6000))
}

func (t *trace) someAgent(dice faultDice) *agent {
	return t.agents[dice.between(0, int64(len(clusterIDs)-1))]
}

func (t *trace) silenceAgent(dice faultDice) {
	t.fire("agent silent")
	a := t.someAgent(dice)
	a.silent = true
	t.during(dice.between(2000, 30_000), "agent silent", func() { a.silent = false })
}

// lateHeartbeat lets a report arrive long after newer ones.
func (t *trace) lateHeartbeat(dice faultDice) {
	a := t.someAgent(dice)
	if a.epochGiven == 0 {
		return
	}
	t.fire("late heartbeat")
	a.sequence++
	report := &fsm.Report{Account: a.key(), Session: a.session, Epoch: a.epochGiven, Sequence: a.sequence}
	report.Use, report.Facts = a.facts()
	report.Facts.Allocatable = amounts("cpu=7,memory=30Gi", false)
	t.during(dice.between(500, 20_000), "late heartbeat", func() {
		if n := a.node(); n != nil {
			n.write(&write{report: report, ended: func(verdict, fsm.Result) {}})
		}
	})
}

func (t *trace) secondAgent(dice faultDice) {
	t.fire("second agent")
	a := t.startAgent(clusterIDs[dice.between(0, int64(len(clusterIDs)-1))], true)
	a.allocated = "cpu=1"
	t.during(dice.between(5000, 25_000), "second agent", func() { a.silent = true })
}

func (t *trace) shrinkFacts(dice faultDice) {
	t.fire("facts shrink")
	a := t.someAgent(dice)
	a.allocated = []string{"cpu=3", "cpu=7,memory=20Gi", "cpu=8"}[dice.between(0, 2)]
	t.during(dice.between(3000, 20_000), "facts shrink", func() { a.allocated = "" })
}

// raceExpiry extends a lease in the very moment in which it ends.
func (t *trace) raceExpiry(dice faultDice) {
	n := t.leading()
	if n == nil || n.term == nil || !n.term.opened {
		return
	}
	state := n.db.State()
	for row := range state.Scan(broker.ReservationsPrefix) {
		if l := row.Ledger; l != nil && l.Phase == store.PhaseReserved && l.ExpiresAt > state.Time() {
			t.fire("expiry races extension")
			key := bytes.Clone([]byte(row.Key))
			wait := int64(l.ExpiresAt - n.term.l.Now())
			if n.term.mayDouble() && dice.between(0, 1) == 0 {
				n.term.startDouble(wait+1000, wait+100) // one that knows of no extension and will end the lease
			}
			for _, c := range t.clients {
				t.during(wait+dice.between(-100, 20), "expiry races extension", func() {
					if m := c.pick(); m != nil && c.idle {
						c.extendKey(m, string(key))
					}
				})
			}
			return
		}
	}
}

// newerVersion lets a build beyond the present one lead for a moment: it enters a command that this one
// does not know and may pass over. One that may not be passed over must stop a node.
func (t *trace) newerVersion(faultDice) {
	n := t.leading()
	if n == nil {
		return
	}
	t.fire("command of a newer version")
	n.place(newerCommand(true))
	for _, o := range t.nodes {
		if outcome, err := o.db.State().Apply(newerCommand(false)); !errors.Is(err, fsm.ErrUnknownCommand) {
			t.fail("n%d: a command of a newer version gave %v, %v", o.id, outcome.Results, err)
		}
	}
}

// newerCommand is an entry of a type beyond this version's, sealed as fsm seals its own.
func newerCommand(ignorable bool) []byte {
	b := []byte{1, 77, 0}
	if ignorable {
		b[2] = 1
	}
	sum := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	return binary.LittleEndian.AppendUint32(b, sum)
}
