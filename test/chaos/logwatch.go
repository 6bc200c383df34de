package main

import (
	"bytes"
	"sync"
)

// logWatch counts what nodes say of themselves in their logs.
type logWatch struct {
	mu      sync.Mutex
	counts  map[string]int // by node and message
	leader  string
	changes int // how often another node than before led
	terms   int
}

func newLogWatch() *logWatch { return &logWatch{counts: map[string]int{}} }

// What nodes say, as far as it is counted.
const (
	saysLeading   = "leading"
	saysInstalled = "snapshot installed"
	saysDiskFull  = "file too large"
	saysCorrupt   = "the data directory is corrupt"
	saysSkewed    = "clock skewed"
	saysRaised    = "behaviour version raised"
	// A node that is too old says one of these: by its own state, or told by another.
	saysNewer      = "behaviour version is not supported by this binary"
	saysNewerGroup = "the group runs a newer behaviour version"
	saysNewerLog   = "was written by a newer version"
	// A build that knows raft.db only says so of a log in segments.
	saysNewerFormat = "has format 2, this version knows 1"
)

// said is how each of them looks in a line; some lines are no JSON.
var said = map[string][]byte{
	saysLeading: []byte(`"@message":"leading"`), saysInstalled: []byte(saysInstalled),
	saysDiskFull: []byte(saysDiskFull), saysCorrupt: []byte(saysCorrupt), saysSkewed: []byte(saysSkewed),
	saysRaised: []byte(saysRaised), saysNewer: []byte(saysNewer), saysNewerGroup: []byte(saysNewerGroup),
	saysNewerLog: []byte(saysNewerLog), saysNewerFormat: []byte(saysNewerFormat),
}

func (w *logWatch) line(node string, line []byte) {
	for what, words := range said {
		if bytes.Contains(line, words) {
			w.heard(node, what)
		}
	}
}

func (w *logWatch) heard(node, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[node+" "+what]++
	if what != saysLeading {
		return
	}
	w.terms++
	if w.leader != node {
		if w.leader != "" {
			w.changes++
		}
		w.leader = node
	}
}

// times that a node has said so.
func (w *logWatch) times(node, what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts[node+" "+what]
}

// leaderships: how many terms were led, and how often the leader changed.
func (w *logWatch) leaderships() (terms, changes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.terms, w.changes
}
