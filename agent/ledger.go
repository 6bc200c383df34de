package agent

import (
	"maps"
	"strings"
	"sync"

	"github.com/bourse-dev/bourse/allocation"
)

// ledger is what the agent remembers of its cluster: one sum for each node, one for each workload
// that has pods there, and for each pod where it counts and how much. A pod event costs the same
// in a cluster of any size.
//
// All methods may be called from any goroutine. Nodes and pods may come in any order: a pod on
// a node that isn't known yet waits there until it is.
type ledger struct {
	// changed gets a token when figures may have changed. One reader.
	changed chan struct{}
	// synced is closed once nodes and pods were both listed: before that the sums mean nothing.
	synced chan struct{}

	mu         sync.Mutex
	nodes      map[string]*nodeSum
	pods       map[string]podSum
	holds      map[string]hold   // by workload: what its pods use counts as the hold's use
	names      map[string]string // each resource name once in memory
	nodesKnown bool
	podsKnown  bool
}

// nodeSum is one node. It stays while the node or a pod on it is known.
type nodeSum struct {
	name        string
	known       bool
	usable      bool
	allocatable allocation.Amounts
	requested   tally
	inside      map[string]tally // of requested, by workload: what pods of slices request
	pods        int
}

// nodeState is what a node offers now.
type nodeState struct {
	usable      bool
	allocatable allocation.Amounts
}

// podShare is what one pod takes, and where.
type podShare struct {
	node     string
	workload string // of a slice; empty: the cluster's own
	requests allocation.Amounts
}

// hold is what a workload's pods may count as use of.
type hold struct {
	namespace, name string // of the slice
	fence           int64  // 0: holds nothing
}

// podSum is a podShare that has been added to its node's sum.
type podSum struct {
	on       *nodeSum
	workload string
	requests allocation.Amounts
}

func newLedger() *ledger {
	return &ledger{
		changed: make(chan struct{}, 1),
		synced:  make(chan struct{}),
		nodes:   map[string]*nodeSum{},
		pods:    map[string]podSum{},
		holds:   map[string]hold{},
		names:   map[string]string{},
	}
}

// setNode learns a node's present state.
func (l *ledger) setNode(name string, state nodeState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.putNode(name, state)
}

func (l *ledger) putNode(name string, state nodeState) {
	n := l.node(name)
	if n.known && n.usable == state.usable && n.allocatable.Equal(state.allocatable) {
		return
	}
	n.known, n.usable, n.allocatable = true, state.usable, l.intern(state.allocatable)
	l.wake()
}

// dropNode forgets a node. Its pods no longer count.
func (l *ledger) dropNode(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetNode(name)
}

func (l *ledger) forgetNode(name string) {
	n := l.nodes[name]
	if n == nil || !n.known {
		return
	}
	n.known, n.usable, n.allocatable = false, false, nil
	l.sweep(n)
	l.wake()
}

// replaceNodes is setNode of all there are, and dropNode of all others.
func (l *ledger) replaceNodes(all map[string]nodeState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.nodes {
		if _, still := all[name]; !still {
			l.forgetNode(name)
		}
	}
	for name, n := range all {
		l.putNode(name, n)
	}
	l.nodesKnown = true
	l.settle()
}

// setPod learns what a pod takes now.
func (l *ledger) setPod(key string, share podShare) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.putPod(key, share)
}

func (l *ledger) putPod(key string, share podShare) {
	old, known := l.pods[key]
	if known && old.on.name == share.node && old.workload == share.workload && old.requests.Equal(share.requests) {
		return
	}
	l.forgetPod(key)
	n := l.node(share.node)
	pod := podSum{on: n, workload: strings.Clone(share.workload), requests: l.intern(share.requests)}
	n.count(pod, 1)
	n.pods++
	l.pods[key] = pod
	if n.usable {
		l.wake()
	}
}

// dropPod forgets a pod that is gone or finished.
func (l *ledger) dropPod(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetPod(key)
}

func (l *ledger) forgetPod(key string) {
	pod, known := l.pods[key]
	if !known {
		return
	}
	delete(l.pods, key)
	n := pod.on
	n.count(pod, -1)
	n.pods--
	if n.usable {
		l.wake()
	}
	l.sweep(n)
}

// count adds a pod to the node's sums, or takes it off.
func (n *nodeSum) count(pod podSum, sign int64) {
	n.requested.add(pod.requests, sign)
	if pod.workload == "" {
		return
	}
	if n.inside[pod.workload] == nil {
		if n.inside == nil {
			n.inside = map[string]tally{}
		}
		n.inside[pod.workload] = tally{}
	}
	n.inside[pod.workload].add(pod.requests, sign)
	if len(n.inside[pod.workload]) == 0 {
		delete(n.inside, pod.workload)
	}
}

// setHold learns what the pods of a workload are inside of.
func (l *ledger) setHold(workload string, h hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holds[workload] != h {
		l.holds[workload] = h
		l.wake()
	}
}

// dropHold forgets it: from then on those pods are the cluster's own.
func (l *ledger) dropHold(workload string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.holds[workload]; known {
		delete(l.holds, workload)
		l.wake()
	}
}

// replacePods is setPod of all there are, and dropPod of all others.
func (l *ledger) replacePods(all map[string]podShare) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.pods {
		if _, still := all[key]; !still {
			l.forgetPod(key)
		}
	}
	for key, share := range all {
		l.putPod(key, share)
	}
	l.podsKnown = true
	l.settle()
}

// measure returns the present figures. It looks at each node once.
func (l *ledger) measure() facts {
	l.mu.Lock()
	defer l.mu.Unlock()
	allocatable, allocated, largest := tally{}, tally{}, tally{}
	use := map[hold]tally{}
	for _, n := range l.nodes {
		if !n.usable {
			continue
		}
		allocatable.add(n.allocatable, 1)
		for _, a := range n.allocatable {
			// Only what the node has: a pod whose device is gone takes no other node's.
			requested := n.requested[a.Resource]
			allocated[a.Resource] += requested
			if requested >= 0 {
				largest[a.Resource] = max(largest[a.Resource], a.Value-requested)
			}
		}
		for workload, inside := range n.inside {
			if h := l.holds[workload]; h.fence > 0 {
				if use[h] == nil {
					use[h] = tally{}
				}
				for _, a := range n.allocatable {
					use[h][a.Resource] += inside[a.Resource] // as in allocated, of which it is a part
				}
			}
		}
	}
	names := allocatable.reportable()
	return facts{allocatable.amounts(names), allocated.amounts(names), largest.amounts(names), usesOf(use, names)}
}

// size returns how many nodes count, and how many pods are known.
func (l *ledger) size() (usableNodes, pods int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := range maps.Values(l.nodes) {
		if n.usable {
			usableNodes++
		}
	}
	return usableNodes, len(l.pods)
}

func (l *ledger) node(name string) *nodeSum {
	n := l.nodes[name]
	if n == nil {
		n = &nodeSum{name: strings.Clone(name), requested: tally{}}
		l.nodes[n.name] = n
	}
	return n
}

func (l *ledger) sweep(n *nodeSum) {
	if !n.known && n.pods == 0 {
		delete(l.nodes, n.name)
	}
}

// intern lets go of the decoded object that a resource name would otherwise keep in memory.
func (l *ledger) intern(amounts allocation.Amounts) allocation.Amounts {
	out := make(allocation.Amounts, len(amounts))
	for i, a := range amounts {
		name, known := l.names[a.Resource]
		if !known {
			name = strings.Clone(a.Resource)
			l.names[name] = name
		}
		out[i] = allocation.Amount{Resource: name, Value: a.Value}
	}
	return out
}

func (l *ledger) wake() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

func (l *ledger) settle() {
	if !l.nodesKnown || !l.podsKnown {
		return
	}
	select {
	case <-l.synced:
	default:
		close(l.synced)
	}
}
