package main

import (
	"bytes"
	"errors"
	"strings"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// watcher is a client that watches everything, or what lies below a prefix, through one node, and goes on
// where it was after that node restarts. It must be told each change once, in order.
type watcher struct {
	node     *node
	prefix   string
	follower *store.Follower // nil: it waits until the node has come to where it was
	last     fsm.Revision
}

// watch goes on where the node's last watches were.
func (n *node) watch() {
	before := n.watches
	n.watches = []*watcher{{node: n}, {node: n, prefix: broker.ReservationsPrefix}}
	for i, w := range before {
		n.watches[i].last = w.last
	}
}

func (w *watcher) read() {
	n := w.node
	if w.follower == nil && !w.resume() {
		return
	}
	changes, upTo, err := w.follower.Read()
	if errors.Is(err, store.ErrCompacted) {
		w.follower.Close()
		w.follower = nil
		n.trace.stats.count("watch", "ended with 410")
		return
	}
	if err != nil {
		n.trace.fail("n%d: watch: %v", n.id, err)
		return
	}
	for i := range changes {
		if !w.told(&changes[i]) {
			return
		}
	}
	n.trace.history.known = max(n.trace.history.known, w.last)
	if len(changes) < 1000 {
		w.toldAll(upTo)
	}
}

// told is given the next change: it must be the next that concerns this watch.
func (w *watcher) told(c *fsm.Change) bool {
	t := w.node.trace
	all := t.history.changes
	w.last++
	for int(w.last) < len(all) && !w.concerns(w.last) {
		w.last++
	}
	want := &all[w.last-1]
	if c.Revision != w.last || want.Key() != c.Key() || !same(want.After, c.After) {
		t.fail("n%d: a watch of %q was told of %s at revision %d; what comes next is %s at revision %d",
			w.node.id, w.prefix, c.Key(), c.Revision, want.Key(), w.last)
		return false
	}
	return true
}

// toldAll: a watch that has read up to a revision has been told all until there.
func (w *watcher) toldAll(upTo fsm.Revision) {
	for w.last < upTo {
		if w.last++; w.concerns(w.last) {
			w.node.trace.fail("n%d: a watch of %q has read up to revision %d and was not told of revision %d", w.node.id, w.prefix, upTo, w.last)
			return
		}
	}
}

func (w *watcher) concerns(revision fsm.Revision) bool {
	return strings.HasPrefix(w.node.trace.history.changes[revision-1].Key(), w.prefix)
}

func same(a, b *fsm.Row) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Revision() == b.Revision() && bytes.Equal(a.Body, b.Body) && bytes.Equal(a.Facts, b.Facts)
}

// resume goes on from the last revision, or lists anew where the history does not reach back.
func (w *watcher) resume() bool {
	n := w.node
	if n.db.State().Revision() < w.last {
		return false
	}
	follower, err := n.db.FollowFrom(w.prefix, w.last)
	if errors.Is(err, store.ErrCompacted) {
		w.last = n.db.State().Revision()
		n.trace.stats.count("watch", "listed anew")
		follower, err = n.db.FollowFrom(w.prefix, w.last)
	}
	if err != nil {
		n.trace.fail("n%d: watch from revision %d: %v", n.id, w.last, err)
		return false
	}
	w.follower = follower
	return true
}
