package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

const (
	memorySeeds   = 6  // times 50 with BOURSE_LONG
	memoryFaults  = 40 // for each seed
	memoryClients = 4
)

// Raft itself under faults, in a bubble of its own time. Checked all along: no two gates open in one
// term; a read point contains what was acknowledged, or shown by any node, before; a write is done once. At the end: what was
// acknowledged is there at its revision, what surely was not proposed isn't, all nodes are equal, and
// nothing runs on (the bubble waits for all goroutines).
func TestRaftInMemoryUnderFaults(t *testing.T) {
	t.Parallel()
	seen := &memoryTraffic{faults: map[string]int{}, messages: map[string]int{}}
	seeds := memorySeeds
	if os.Getenv("BOURSE_LONG") != "" {
		seeds *= 50
	}
	t.Run("seeds", func(t *testing.T) {
		for seed := range uint64(seeds) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { runMemoryGroup(t, seed, seen) })
			})
		}
	})
	t.Logf("%d terms; %d writes acknowledged, %d unknown, %d not proposed; %d read points; %d snapshots installed; %v; messages %v",
		seen.opens, seen.acknowledged, seen.unknown, seen.notProposed, seen.reads, seen.restores, seen.faults, seen.messages)
	require.Greater(t, seen.opens, seeds*memoryFaults/2, "terms")
	require.Greater(t, seen.acknowledged, seeds*memoryFaults*5, "writes")
	require.Greater(t, seen.reads, seeds*memoryFaults*5, "read points")
	require.NotZero(t, seen.unknown)
	require.NotZero(t, seen.notProposed)
	require.NotZero(t, seen.restores, "snapshots installed")
	require.Len(t, seen.faults, len(memoryFaultKinds))
	for _, what := range []string{"cut off", "lost", "sent twice", "delayed", "connection lost"} {
		require.NotZero(t, seen.messages[what], what)
	}
}

// memoryTraffic is what the seeds saw together: a run that did nothing proves nothing.
type memoryTraffic struct {
	mu                                               sync.Mutex
	opens, acknowledged, unknown, notProposed, reads int
	restores                                         uint64
	faults, messages                                 map[string]int
}

func runMemoryGroup(t *testing.T, seed uint64, seen *memoryTraffic) {
	rng := rand.New(rand.NewPCG(seed, 3))
	g := startMemoryGroup(t, 3+int(seed%2)*2, rand.New(rand.NewPCG(seed, 4)))
	h := &memoryHistory{g: g, acknowledged: map[string]fsm.Revision{}}
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer func() { // also after a violation: the bubble waits for whatever runs
		cancel()
		clients.Wait()
		for _, n := range g.running() {
			g.stop(n.ID())
		}
	}()
	g.leader()
	for c := range memoryClients {
		clients.Go(func() { h.client(ctx, c, rand.New(rand.NewPCG(seed, uint64(10+c)))) })
	}
	fired := map[string]int{}
	for range memoryFaults {
		leader := g.leader()
		kind := memoryFaultKinds[rng.IntN(len(memoryFaultKinds))]
		fired[kind.name]++
		kind.strike(g, rng, leader)
		time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
		g.network.heal()
		for _, id := range g.ids {
			if g.node(id) == nil {
				g.start(id)
			}
		}
		g.leader()
		synctest.Wait()
		g.onlyLeadersAreOpen()
		g.noneWrong()
	}
	cancel()
	clients.Wait()
	h.check(t)

	var restores uint64
	for _, n := range g.running() {
		restores += n.db.Counters().Restores
	}
	for _, n := range g.running() {
		g.stop(n.ID())
	}
	g.noneWrong()
	seen.mu.Lock()
	defer seen.mu.Unlock()
	seen.opens += g.opens
	seen.acknowledged += len(h.acknowledged)
	seen.unknown += h.unknown
	seen.notProposed += len(h.notProposed)
	seen.reads += h.reads
	seen.restores += restores
	for kind, n := range fired {
		seen.faults[kind] += n
	}
	for what, n := range g.network.events {
		seen.messages[what] += n
	}
}

// memoryFaultKinds strike the leader for the most part: nobody else decides.
var memoryFaultKinds = []struct {
	name   string
	strike func(g *memoryGroup, rng *rand.Rand, leader *memoryNode)
}{
	{"leader crashes", func(g *memoryGroup, _ *rand.Rand, leader *memoryNode) { g.stop(leader.ID()) }},
	{"leader and another crash", func(g *memoryGroup, _ *rand.Rand, leader *memoryNode) {
		g.stop(g.others(leader.ID())[0])
		g.stop(leader.ID())
	}},
	{"all crash", func(g *memoryGroup, _ *rand.Rand, _ *memoryNode) {
		for _, id := range g.ids {
			g.stop(id)
		}
	}},
	{"follower crashes", func(g *memoryGroup, _ *rand.Rand, leader *memoryNode) { g.stop(g.others(leader.ID())[1]) }},
	{"leader alone", func(g *memoryGroup, _ *rand.Rand, leader *memoryNode) {
		g.deafen(leader.ID())
		g.mute(leader.ID())
	}},
	{"leader deaf", func(g *memoryGroup, _ *rand.Rand, leader *memoryNode) { g.deafen(leader.ID()) }},
	{"leader mute", func(g *memoryGroup, _ *rand.Rand, leader *memoryNode) { g.mute(leader.ID()) }},
	{"leader hears of one only", func(g *memoryGroup, _ *rand.Rand, leader *memoryNode) {
		for _, id := range g.others(leader.ID())[1:] {
			g.network.sever(id, leader.ID())
			g.network.sever(leader.ID(), id)
		}
	}},
	{"ring cut one way", func(g *memoryGroup, _ *rand.Rand, _ *memoryNode) {
		for i, id := range g.ids {
			g.network.sever(id, g.ids[(i+1)%len(g.ids)])
		}
	}},
	{"leadership handed over", func(_ *memoryGroup, _ *rand.Rand, leader *memoryNode) { _ = leader.log.HandOver() }},
	// The one way to have a second leader while the first may still believe itself to be: a handover
	// needs no silence before it.
	{"handed over by a leader that then hears nothing", func(g *memoryGroup, _ *rand.Rand, leader *memoryNode) {
		g.network.mu.Lock()
		g.network.handedOver = g.deafen
		g.network.mu.Unlock()
		leader.raft.LeadershipTransfer()
	}},
	{"rough links", func(g *memoryGroup, rng *rand.Rand, _ *memoryNode) {
		g.network.roughen(roughness{loss: 0.4 * rng.Float64(), twice: 0.3, delay: time.Duration(rng.IntN(120)) * time.Millisecond})
	}},
}

func (g *memoryGroup) node(id string) *memoryNode {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.nodes[id]
}

// onlyLeadersAreOpen is asked while nothing moves.
func (g *memoryGroup) onlyLeadersAreOpen() {
	for _, n := range g.running() {
		if l := n.gate.Load(); l != nil && (!n.log.Leading() || n.log.Term() != l.number) {
			g.violation("the gate of %s is open for term %d, and it does not lead", n.ID(), l.number)
		}
	}
}

// memoryHistory is what the clients were told.
type memoryHistory struct {
	g *memoryGroup

	mu           sync.Mutex
	acknowledged map[string]fsm.Revision
	notProposed  []string
	newest       fsm.Revision // acknowledged to anybody
	unknown      int
	reads        int
}

func (h *memoryHistory) client(ctx context.Context, number int, rng *rand.Rand) {
	for i := 0; ctx.Err() == nil; i++ {
		nodes := h.g.running()
		if len(nodes) > 0 {
			n := nodes[rng.IntN(len(nodes))]
			if rng.IntN(2) == 0 {
				h.write(ctx, n, fmt.Sprintf("things/%d-%06d", number, i))
			} else {
				h.read(ctx, n)
			}
		}
		time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond)
	}
}

// write makes a row that nobody else does, so it is done once or not at all.
func (h *memoryHistory) write(ctx context.Context, n *memoryNode, key string) {
	result, err := n.Write(ctx, fsm.Txn{
		Guards: []fsm.Guard{fsm.GuardAbsent(key)},
		Writes: []fsm.Write{{Key: key, Body: []byte(key)}},
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case errors.Is(err, store.ErrUnknownOutcome):
		h.unknown++
	case errors.Is(err, store.ErrNoLeader):
		h.notProposed = append(h.notProposed, key)
	case err != nil:
		h.g.violation("writing %s through %s: neither done, nor not proposed, nor unknown: %v", key, n.ID(), err)
	case result.Refusal != nil:
		h.g.violation("%s was written twice: %s", key, result.Refusal)
	default:
		h.acknowledged[key] = result.Revision
		h.newest = max(h.newest, result.Revision)
	}
}

func (h *memoryHistory) read(ctx context.Context, n *memoryNode) {
	h.mu.Lock()
	newest := h.newest
	h.mu.Unlock()
	for _, shows := range h.g.running() { // a follower may have applied what the leader has yet to
		newest = max(newest, shows.db.State().Revision())
	}
	revision, err := n.ReadIndex(ctx)
	if err != nil {
		return
	}
	h.mu.Lock()
	h.reads++
	h.mu.Unlock()
	if at := n.db.State().Revision(); revision < newest || at < revision {
		h.g.violation("read point %d through %s, whose state is at %d: revision %d was acknowledged or shown before", revision, n.ID(), at, newest)
	}
}

// check compares every node with what the clients were told.
func (h *memoryHistory) check(t *testing.T) {
	leader := h.g.leader()
	result, err := leader.Write(t.Context(), fsm.Txn{Writes: []fsm.Write{{Key: "end", Body: []byte("end")}}})
	require.NoError(t, err)
	for _, n := range h.g.running() {
		state, err := n.db.WaitFor(t.Context(), result.Revision)
		require.NoError(t, err)
		require.Equal(t, leader.db.State().Hash(), state.Hash(), n.ID())
		require.Equal(t, state.FullHash(), state.Hash(), n.ID())
		for key, revision := range h.acknowledged {
			row := state.Row(key)
			require.NotNil(t, row, "%s was acknowledged at %d and %s does not have it", key, revision, n.ID())
			require.Equal(t, revision, row.BodyRev, key)
		}
		for _, key := range h.notProposed {
			require.Nil(t, state.Row(key), "%s was told to be surely not proposed, and %s has it", key, n.ID())
		}
	}
}
