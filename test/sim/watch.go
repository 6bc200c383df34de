package main

import (
	"errors"

	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// watcher is a client that watches everything through one node, and goes on where it was after that
// node restarts. It must be told each change once, in order.
type watcher struct {
	node     *node
	follower *store.Follower // nil: it waits until the node has come to where it was
	last     fsm.Revision
}

// newWatcher goes on where the node's last one was.
func newWatcher(n *node) *watcher {
	w := &watcher{node: n}
	if n.watch != nil {
		w.last = n.watch.last
	}
	return w
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
		w.last++
		c := &changes[i]
		if c.Revision != w.last {
			n.trace.fail("n%d: a watch was told of revision %d after %d", n.id, c.Revision, w.last-1)
			return
		}
		if want := &n.trace.history.changes[w.last-1]; want.Key() != c.Key() || (want.After == nil) != (c.After == nil) {
			n.trace.fail("n%d: a watch was told that revision %d is %s, it is %s", n.id, w.last, c.Key(), want.Key())
			return
		}
	}
	n.trace.history.known = max(n.trace.history.known, w.last)
	if len(changes) < 1000 && upTo != w.last {
		n.trace.fail("n%d: a watch of everything has read up to revision %d and was told up to %d", n.id, upTo, w.last)
	}
}

// resume goes on from the last revision, or lists anew where the history does not reach back.
func (w *watcher) resume() bool {
	n := w.node
	if n.db.State().Revision() < w.last {
		return false
	}
	follower, err := n.db.FollowFrom("", w.last)
	if errors.Is(err, store.ErrCompacted) {
		w.last = n.db.State().Revision()
		n.trace.stats.count("watch", "listed anew")
		follower, err = n.db.FollowFrom("", w.last)
	}
	if err != nil {
		n.trace.fail("n%d: watch from revision %d: %v", n.id, w.last, err)
		return false
	}
	w.follower = follower
	return true
}
