package main

import (
	"container/heap"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime/debug"
)

// trace is one run of the whole exchange on one goroutine: everything that happens is an event, and
// every choice comes from the seed.
type trace struct {
	plan  plan
	stats *stats

	now     int64 // milliseconds, the time that no node can see
	events  eventQueue
	number  uint64
	steps   int // events but for idle heartbeats
	digest  uint64
	task    *task // the one that runs, nil outside of tasks
	resting []*task

	// Streams of their own, so that one fault less changes as little as possible.
	netDice, diskDice, raftDice, clientDice, agentDice, faultDice *rand.Rand

	nodes      []*node
	clients    []*client
	agents     []*agent
	links      links
	history    *history
	fired      map[string]int
	faultPhase int64
	healing    bool
	broken     error // the first violation
	narrator   func(string)
	everyEvent bool
}

// plan is what one trace is made from; the same plan makes the same trace.
type plan struct {
	seed  uint64
	skip  map[int]bool // faults left out, by number
	steps int          // healing begins after so many; 0: when the time is over
}

// epoch is when a trace begins, in wall time.
const epoch = 1_700_000_000_000

func newTrace(p plan, st *stats) *trace {
	dice := func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(p.seed, stream)) }
	t := &trace{
		plan: p, stats: st, now: epoch, digest: p.seed, fired: map[string]int{}, faultPhase: shortPhase,
		netDice: dice(1), diskDice: dice(2), raftDice: dice(3), clientDice: dice(4), agentDice: dice(5), faultDice: dice(6),
	}
	t.history = newHistory(t)
	t.links = newLinks(t)
	for i := range groupSize(t) {
		t.nodes = append(t.nodes, newNode(t, i))
	}
	t.startAgents()
	t.startClients()
	return t
}

// groupSize is three as a rule.
func groupSize(t *trace) int {
	if t.raftDice.IntN(8) == 0 {
		return 5
	}
	return 3
}

// event is one thing that happens.
type event struct {
	at     int64
	number uint64
	name   string
	node   int // -1: none
	do     func()
}

type eventQueue []*event

func (q eventQueue) Len() int { return len(q) }
func (q eventQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].number < q[j].number
}
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *eventQueue) Push(x any)   { *q = append(*q, x.(*event)) }
func (q *eventQueue) Pop() any {
	last := (*q)[len(*q)-1]
	(*q)[len(*q)-1] = nil
	*q = (*q)[:len(*q)-1]
	return last
}

// after lets something happen once delay milliseconds have passed.
func (t *trace) after(delay int64, name string, node int, do func()) {
	t.number++
	heap.Push(&t.events, &event{at: t.now + max(0, delay), number: t.number, name: name, node: node, do: do})
}

// mix makes what happened part of the trace's digest.
func (t *trace) mix(values ...uint64) {
	for _, v := range values {
		t.digest = (t.digest ^ v) * 0x9E3779B97F4A7C15
		t.digest ^= t.digest >> 29
	}
}

func (t *trace) mixText(s string) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s))
	t.mix(h.Sum64())
}

// fail keeps the first violation; the trace ends with it.
func (t *trace) fail(format string, args ...any) {
	if t.broken == nil {
		t.broken = fmt.Errorf(format, args...)
		t.tell("VIOLATION: %v", t.broken)
	}
}

// tell narrates where somebody listens.
func (t *trace) tell(format string, args ...any) {
	if t.narrator != nil {
		t.narrator(fmt.Sprintf("%9.3fs step %d: ", float64(t.now-epoch)/1000, t.steps) + fmt.Sprintf(format, args...))
	}
}

// run lets the trace happen: a time with faults, then healing, then the checks at the end.
func (t *trace) run() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	defer t.abandon()
	t.scheduleFaults()
	t.until(epoch+t.faultPhase, func() bool { return t.plan.steps > 0 && t.steps >= t.plan.steps })
	if t.broken == nil {
		t.heal()
		t.until(t.now+healPhase, func() bool { return false })
	}
	if t.broken == nil {
		t.converged()
	}
	if whole := len(t.plan.skip) == 0 && t.plan.steps == 0; whole && (t.steps < leastSteps || t.faults() < leastFaults) {
		t.fail("a trace of %d steps with %d faults proves too little", t.steps, t.faults())
	}
	t.mix(uint64(t.steps))
	return t.broken
}

// until lets events happen until the time has come or enough did.
func (t *trace) until(end int64, enough func() bool) {
	for t.broken == nil && len(t.events) > 0 && t.events[0].at <= end && !enough() {
		e := heap.Pop(&t.events).(*event)
		t.now = e.at
		if e.name != quiet {
			t.steps++
			t.mixText(e.name)
			if t.steps > mostSteps {
				t.fail("no rest: step %d at %d ms is %q", t.steps, t.now-epoch, e.name)
			}
		}
		t.mix(uint64(e.at), uint64(e.node))
		if t.everyEvent {
			t.tell("%s n%d", e.name, e.node)
		}
		e.do()
	}
	t.now = max(t.now, min(end, t.now+1))
}

// abandon leaves no coroutine behind.
func (t *trace) abandon() {
	for _, n := range t.nodes {
		n.dropTasks()
	}
	for _, k := range t.resting {
		k.stop()
	}
}

// fire counts a fault.
func (t *trace) fire(kind string) {
	t.fired[kind]++
	t.stats.faults[kind]++
}

// mostSteps bounds a trace that goes round in circles.
const mostSteps = 60_000

// quiet is the name of events that are no step: heartbeats of a group at rest.
const quiet = ""

// between draws evenly from both ends.
func between(dice *rand.Rand, from, to int64) int64 { return from + dice.Int64N(to-from+1) }

// chance is true so many times in a hundred.
func chance(dice *rand.Rand, percent int) bool { return dice.IntN(100) < percent }
