package main

import (
	"fmt"
	"math/rand/v2"
	"sync"
)

// What clients deal with. Names are few and used again and again.
const (
	namespaces    = 4
	plainObjects  = 32 // held for hours: nobody but clients changes them, so porcupine can judge them
	leaseObjects  = 16 // held for seconds, and removed soon after
	waiterObjects = 8  // may wait for capacity
	splitObjects  = 8  // may be held in pieces, for seconds
	clusterCount  = 10
)

// use of an object.
type use int

const (
	plain use = iota
	lease
	waiter
	inPieces
)

// object is one name that clients use.
type object struct {
	use        use
	index      int
	generation int // a name is given up when something on it may happen yet
}

func (o object) namespace() string { return fmt.Sprintf("ns%d", o.index%namespaces) }
func (o object) name() string {
	return fmt.Sprintf("%s%d-%d", [...]string{"plain", "lease", "waiter", "split"}[o.use], o.index, o.generation)
}
func (o object) key() string { return o.namespace() + "/" + o.name() }

// objects are the names in use.
type objects struct {
	mu   sync.Mutex
	list []object
}

func newObjects() *objects {
	o := &objects{}
	for i := range plainObjects {
		o.list = append(o.list, object{use: plain, index: i})
	}
	for i := range leaseObjects {
		o.list = append(o.list, object{use: lease, index: i})
	}
	for i := range waiterObjects {
		o.list = append(o.list, object{use: waiter, index: i})
	}
	for i := range splitObjects {
		o.list = append(o.list, object{use: inPieces, index: i})
	}
	return o
}

func (o *objects) any(rng *rand.Rand) object {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.list[rng.IntN(len(o.list))]
}

func (o *objects) all() []object {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]object(nil), o.list...)
}

// retire gives an object another name.
func (o *objects) retire(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.list {
		if o.list[i].key() == key {
			o.list[i].generation++
		}
	}
}
