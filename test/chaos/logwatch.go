package main

import (
	"bytes"
	"encoding/json"
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
)

var saidWords = [][]byte{[]byte(`"@message":"leading"`), []byte(saysInstalled), []byte(saysDiskFull)}

func (w *logWatch) line(node string, line []byte) {
	heard := -1
	for i, words := range saidWords {
		if bytes.Contains(line, words) {
			heard = i
		}
	}
	if heard < 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	what := []string{saysLeading, saysInstalled, saysDiskFull}[heard]
	w.counts[node+" "+what]++
	if what != saysLeading || !json.Valid(line) {
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
