package advertisement

import (
	"container/heap"

	"github.com/bourse-dev/bourse/fsm"
)

// deadline is a moment at which a cluster must be looked at; a hint, the look decides.
type deadline struct {
	at  fsm.Millis
	key string
}

// deadlines is a heap, the earliest first.
type deadlines []deadline

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].at < d[j].at }
func (d deadlines) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *deadlines) Push(x any)        { *d = append(*d, x.(deadline)) }
func (d *deadlines) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

func (d *deadlines) add(at fsm.Millis, key string) { heap.Push(d, deadline{at, key}) }

func (d deadlines) next() fsm.Millis {
	if len(d) == 0 {
		return 0
	}
	return d[0].at
}

func (d *deadlines) due(now fsm.Millis) (string, bool) {
	if len(*d) == 0 || (*d)[0].at > now {
		return "", false
	}
	return heap.Pop(d).(deadline).key, true
}
