package main

import (
	"errors"

	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// verdict is how a request ends for its client.
type verdict uint8

const (
	done    verdict = iota // acknowledged
	refused                // a result of the exchange
	nothing                // surely nothing was proposed
	unknown                // it may have been done, or may still be
	severed                // the node that it was sent to went down
)

// write is one command and what becomes of it: tried until its fate is known, with the same id.
type write struct {
	txn      *fsm.Txn
	report   *fsm.Report
	node     *node
	life     int
	call     int
	maybe    bool // some try may have done it
	deadline int64
	over     bool
	ended    func(verdict, fsm.Result)
}

const (
	tryTimeout   = 3000
	writeTimeout = 12_000
)

// write brings a command to the leader as cluster.Node.Write does.
func (n *node) write(w *write) {
	t := n.trace
	w.node, w.life, w.deadline, w.over = n, n.life, t.now+writeTimeout, false
	t.number++
	w.call = int(t.number)
	n.calls[w.call] = func() { w.end(severed, fsm.Result{}) }
	w.try()
}

func (w *write) end(v verdict, r fsm.Result) {
	if w.over {
		return
	}
	w.over = true
	if w.node.life == w.life {
		delete(w.node.calls, w.call)
	}
	w.ended(v, r)
}

func (w *write) alive() bool { return !w.over && w.node.life == w.life }

func (w *write) try() {
	n := w.node
	if n.trace.now > w.deadline {
		if w.maybe {
			w.end(unknown, fsm.Result{})
		} else {
			w.end(nothing, fsm.Result{})
		}
		return
	}
	leads := n.raft.leader
	if leads < 0 {
		w.again()
		return
	}
	before := w.maybe
	w.maybe = true // until an answer says more
	n.ask(n.trace.nodes[leads], "intent", func(to *node, reply func(answer)) {
		to.enter(cluster.NewIntent(w.txn, w.report), reply)
	}, func(a answer, sent bool) {
		if w.alive() {
			w.maybe = before
			w.answered(a, sent)
		}
	})
}

func (w *write) answered(a answer, sent bool) {
	switch {
	case a.err == nil:
		w.maybe = true // until this node has applied it, its client has no answer
		w.node.whenReached(a.result.Revision, func() {
			if !w.alive() {
				return
			}
			if a.result.Refusal != nil {
				w.end(refused, a.result)
			} else {
				w.end(done, a.result)
			}
		})
	case !sent || errors.Is(a.err, cluster.ErrNotProposed):
		w.again()
	case errors.Is(a.err, store.ErrUnknownOutcome):
		w.maybe = true
		w.again()
	default:
		w.node.trace.fail("n%d: an intent ended with %v", w.node.id, a.err)
	}
}

func (w *write) again() {
	n := w.node
	n.trace.after(between(n.trace.netDice, 20, 400), "try again", n.id, func() {
		if w.alive() {
			n.whenAwake(func() {
				if w.alive() {
					w.try()
				}
			})
		}
	})
}

// answer is a node's to another's question.
type answer struct {
	result   fsm.Result
	revision fsm.Revision
	err      error
}

var errNoAnswer = store.ErrUnknownOutcome

// ask lets another node do something and brings its answer back, or errNoAnswer when none came in time.
func (n *node) ask(to *node, name string, do func(to *node, reply func(answer)), got func(a answer, sent bool)) {
	t, life, over := n.trace, n.life, false
	settle := func(a answer, sent bool) {
		if !over && n.life == life {
			over = true
			n.whenAwake(func() { got(a, sent) })
		}
	}
	t.after(tryTimeout, quiet, n.id, func() { settle(answer{err: errNoAnswer}, true) })
	if to == n {
		do(n, func(a answer) { settle(a, true) })
		return
	}
	copies := 0
	t.send(n, to, name, func() {
		copies++
		answers := copies == 1 // a copy on the way reaches the exchange, but a connection brings one answer: the first one's
		do(to, func(a answer) {
			if answers {
				t.send(to, n, name+" answered", func() { settle(a, true) })
			}
		})
	})
}

// open is an intent that waits for its reply.
type open struct {
	intent *cluster.Intent
	reply  func(answer)
}

// enter hands an intent to the term of this node, if it leads, once the state is where its maker saw it.
func (n *node) enter(intent *cluster.Intent, reply func(answer)) {
	if intent.Txn != nil && n.db.State().Revision() < intent.Txn.ID.Seen {
		n.trace.stats.count("intent", "ahead of the leader's state")
		life := n.life
		n.whenReached(intent.Txn.ID.Seen, func() {
			if n.life == life {
				n.enter(intent, reply)
			}
		})
		return
	}
	l := n.gate.Load()
	if l == nil {
		reply(answer{err: cluster.ErrNotLeader})
		return
	}
	if n.term != nil && n.term.double != nil && n.term.double.takes(intent) {
		n.open = append(n.open, &open{intent, reply})
		return
	}
	if err := l.Submit(intent); err != nil {
		reply(answer{err: err})
		return
	}
	n.open = append(n.open, &open{intent, reply})
	n.wakeRooms()
}

// deliverReplies looks who was answered.
func (n *node) deliverReplies() {
	var replied []func()
	rest := n.open[:0]
	for _, o := range n.open {
		select {
		case r := <-o.intent.Replied():
			n.trace.stats.answered(r)
			replied = append(replied, func() { o.reply(answer{result: r.Result, err: r.Err}) })
		default:
			rest = append(rest, o)
		}
	}
	clear(n.open[len(rest):])
	n.open = rest
	for _, reply := range replied {
		reply()
	}
}
