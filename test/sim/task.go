package main

import (
	"iter"
	"slices"
)

// task is a piece of production code that blocks in its Log, run as a coroutine: it goes on only when
// the trace resumes it. A coroutine that is done is kept for the next piece: its stack has grown already.
type task struct {
	body  func() // nil: done
	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool
	dead  bool // its node crashed: whatever it waits for ends at once
}

func newTask() *task {
	k := &task{}
	k.next, k.stop = iter.Pull(func(yield func(struct{}) bool) {
		for k.yield = yield; ; {
			k.body()
			if k.body = nil; !yield(struct{}{}) {
				return
			}
		}
	})
	return k
}

// spawn runs body until it first waits.
func (n *node) spawn(body func()) {
	t := n.trace
	var k *task
	if last := len(t.resting) - 1; last >= 0 {
		k, t.resting = t.resting[last], t.resting[:last]
	} else {
		k = newTask()
	}
	k.body = body
	n.tasks = append(n.tasks, k)
	n.resume(k)
}

func (n *node) resume(k *task) {
	t := n.trace
	before := t.task
	t.task = k
	k.next()
	t.task = before
	if k.body == nil {
		n.tasks = slices.DeleteFunc(n.tasks, func(o *task) bool { return o == k })
		t.resting = append(t.resting, k)
	}
	n.deliverReplies()
}

// wait suspends the running task until wakeable is woken; false: its node crashed meanwhile.
func (n *node) wait(w *waiting) bool {
	k := n.trace.task
	for !w.done {
		w.task = k
		if k.dead || !k.yield(struct{}{}) {
			k.dead = true
			return false
		}
	}
	return true
}

// waiting is something a task may wait for.
type waiting struct {
	done bool
	task *task
}

// finish wakes who waits, as an event of its own.
func (w *waiting) finish(n *node) {
	if w.done {
		return
	}
	w.done = true
	if k := w.task; k != nil {
		n.trace.after(0, "resume", n.id, func() {
			if !k.dead {
				n.resume(k)
			}
		})
	}
}

// dropTasks ends every coroutine of the node: what they do from here on reaches nobody.
func (n *node) dropTasks() {
	tasks := n.tasks
	n.tasks = nil
	for _, k := range tasks {
		k.dead = true
		before := n.trace.task
		n.trace.task = k
		k.stop()
		n.trace.task = before
	}
}
