package reservation

import (
	"container/heap"

	"github.com/bourse-dev/bourse/fsm"
)

// deadline is a moment at which a row must be looked at. It is a hint: what is due is asked of
// the row as it is then, so an outdated deadline does nothing.
type deadline struct {
	at  fsm.Millis
	key string
}

// deadlines is a heap, the earliest first.
type deadlines []deadline

func (d deadlines) Len() int { return len(d) }
func (d deadlines) Less(i, j int) bool {
	if d[i].at != d[j].at {
		return d[i].at < d[j].at
	}
	return d[i].key < d[j].key
}
func (d deadlines) Swap(i, j int) { d[i], d[j] = d[j], d[i] }
func (d *deadlines) Push(x any)   { *d = append(*d, x.(deadline)) }
func (d *deadlines) Pop() any {
	last := (*d)[len(*d)-1]
	(*d)[len(*d)-1] = deadline{}
	*d = (*d)[:len(*d)-1]
	return last
}

func (d *deadlines) add(at fsm.Millis, key string) {
	if at > 0 {
		heap.Push(d, deadline{at, key})
	}
}

// next is the earliest deadline, 0 where there is none.
func (d deadlines) next() fsm.Millis {
	if len(d) == 0 {
		return 0
	}
	return d[0].at
}

// due removes and returns the earliest deadline that has come.
func (d *deadlines) due(now fsm.Millis) (deadline, bool) {
	if len(*d) == 0 || (*d)[0].at > now {
		return deadline{}, false
	}
	return heap.Pop(d).(deadline), true
}
