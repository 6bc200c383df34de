package main

import "iter"

// task is a piece of production code that blocks in its Log, run as a coroutine: it goes on only when
// the trace resumes it.
type task struct {
	node  *node
	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool
	dead  bool // its node crashed: whatever it waits for ends at once
}

// spawn runs body until it first waits.
func (n *node) spawn(body func()) {
	k := &task{node: n}
	k.next, k.stop = iter.Pull(func(yield func(struct{}) bool) {
		k.yield = yield
		body()
	})
	n.tasks = append(n.tasks, k)
	n.resume(k)
}

func (n *node) resume(k *task) {
	t := n.trace
	before := t.task
	t.task = k
	_, waits := k.next()
	t.task = before
	if !waits {
		for i := range n.tasks {
			if n.tasks[i] == k {
				n.tasks = append(n.tasks[:i], n.tasks[i+1:]...)
				break
			}
		}
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
