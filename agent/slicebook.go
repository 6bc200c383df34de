package agent

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/tools/cache"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// sliceBook is what the agent knows of its slices: the exchange's instructions, the Deployments that carry them out, and
// their pods. The reflectors write it, the workloads' one goroutine reads it; all methods may be called from any
// goroutine. Slices are known by the key of their Deployment.
type sliceBook struct {
	clusterID string
	ledger    *ledger // is told who holds what, for use by hold
	// changed gets a token when a slice may have to be looked at. One reader.
	changed chan struct{}

	mu        sync.Mutex
	slices    map[string]*broker.Slice
	workloads map[string]*workload
	pods      map[string]*instance
	byKey     map[string]map[string]*instance // a slice's pods
	dirty     map[string]bool
	listed    map[string]bool // what was listed: slices, pods, and scopes of Deployments
}

// What is listed, beside the scopes of Deployments.
const (
	listedSlices = "slices"
	listedPods   = "pods"
)

// scopeOf is under which name the Deployments of a namespace are listed; "" for all namespaces.
func scopeOf(namespace string) string { return "deployments in " + namespace }

func newSliceBook(clusterID string, ledger *ledger) *sliceBook {
	return &sliceBook{
		clusterID: clusterID, ledger: ledger, changed: make(chan struct{}, 1),
		slices: map[string]*broker.Slice{}, workloads: map[string]*workload{},
		pods: map[string]*instance{}, byKey: map[string]map[string]*instance{},
		dirty: map[string]bool{}, listed: map[string]bool{},
	}
}

func (b *sliceBook) touch(key string) {
	b.dirty[key] = true
	b.wake()
}

func (b *sliceBook) wake() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// touched returns the keys that changed since the last call.
func (b *sliceBook) touched() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	keys := slices.Collect(maps.Keys(b.dirty))
	clear(b.dirty)
	return keys
}

// ready says whether slices and pods are known: before that nothing can be judged.
func (b *sliceBook) ready() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.listed[listedSlices] && b.listed[listedPods]
}

// look returns what is known of a slice. watched says that its Deployment would be known.
func (b *sliceBook) look(key, namespace string) (s *broker.Slice, w *workload, watched bool, pods []*instance) {
	b.mu.Lock()
	defer b.mu.Unlock()
	watched = b.listed[scopeOf(namespace)] || b.listed[scopeOf("")]
	return b.slices[key], b.workloads[key], watched, slices.Collect(maps.Values(b.byKey[key]))
}

func (b *sliceBook) setSlice(s *broker.Slice) {
	key := keyOf(s)
	b.slices[key] = s
	b.ledger.setHold(key, hold{s.Namespace, s.Name, s.Status.Fence})
	b.touch(key)
}

func (b *sliceBook) dropSlice(key string) {
	delete(b.slices, key)
	b.ledger.dropHold(key)
	b.touch(key)
}

// setWorkload is called with what a watch or a write brought. An event from before our own last write is old news.
func (b *sliceBook) setWorkload(w *workload) {
	if old := b.workloads[w.key()]; old != nil && old.uid == w.uid && old.generation > w.generation {
		return
	}
	b.workloads[w.key()] = w
	b.touch(w.key())
}

func (b *sliceBook) dropWorkload(key string) {
	delete(b.workloads, key)
	b.touch(key)
}

// wrote learns what came of a write of our own, before the watch tells; nil: there is none.
func (b *sliceBook) wrote(key string, w *workload) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w == nil {
		b.dropWorkload(key)
	} else {
		b.setWorkload(w)
	}
}

// knows learns what was read of a Deployment that no watch tells of; nobody needs to be told.
func (b *sliceBook) knows(key string, w *workload) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w == nil {
		delete(b.workloads, key)
	} else {
		b.workloads[key] = w
	}
}

func (b *sliceBook) setPod(p *instance) {
	b.dropPod(p.key())
	if p.workload == "" {
		return
	}
	b.pods[p.key()] = p
	if b.byKey[p.workload] == nil {
		b.byKey[p.workload] = map[string]*instance{}
	}
	b.byKey[p.workload][p.key()] = p
	b.touch(p.workload)
}

func (b *sliceBook) dropPod(key string) {
	p := b.pods[key]
	if p == nil {
		return
	}
	delete(b.pods, key)
	delete(b.byKey[p.workload], key)
	if len(b.byKey[p.workload]) == 0 {
		delete(b.byKey, p.workload)
	}
	b.touch(p.workload)
}

// bookStore is what a reflector writes into: one kind of object of the book. Called by one reflector's goroutine.
type bookStore struct {
	book    *sliceBook
	listed  string
	read    func(obj any) (any, error)
	put     func(read any)
	drop    func(read any)
	replace func(all []any)
}

var _ cache.TransformingStore = bookStore{}

func (s bookStore) Add(obj any) error { return s.Update(obj) }

func (s bookStore) Update(obj any) error { return s.locked(obj, s.put) }

func (s bookStore) Delete(obj any) error { return s.locked(obj, s.drop) }

func (s bookStore) locked(obj any, do func(any)) error {
	read, err := s.read(obj)
	if err != nil {
		return err
	}
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	do(read)
	return nil
}

func (s bookStore) Replace(list []any, _ string) error {
	all := make([]any, len(list))
	for i, obj := range list {
		var err error
		if all[i], err = s.read(obj); err != nil {
			return err
		}
	}
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	s.replace(all)
	for _, read := range all {
		s.put(read)
	}
	s.book.listed[s.listed] = true
	s.book.wake()
	return nil
}

func (bookStore) Resync() error { return nil }

// Transformer strips objects while the first list is still streaming in.
func (s bookStore) Transformer() cache.TransformFunc { return s.read }

// sliceStore takes the slices of this cluster.
func (b *sliceBook) sliceStore() bookStore {
	return bookStore{
		book: b, listed: listedSlices, read: readSlice,
		put:  func(read any) { b.setSlice(read.(*broker.Slice)) },
		drop: func(read any) { b.dropSlice(keyOf(read.(*broker.Slice))) },
		replace: func(all []any) {
			for _, key := range missing(b.slices, all, func(read any) string { return keyOf(read.(*broker.Slice)) }) {
				b.dropSlice(key)
			}
		},
	}
}

// workloadStore takes the Deployments of a namespace; of all where it is "".
func (b *sliceBook) workloadStore(namespace string) bookStore {
	return bookStore{
		book: b, listed: scopeOf(namespace),
		read: func(obj any) (any, error) {
			switch d := obj.(type) {
			case *workloadRecord:
				return d, nil
			case *appsv1.Deployment:
				return &workloadRecord{ObjectMeta: namesOf(&d.ObjectMeta), workload: readWorkload(d, b.clusterID)}, nil
			default:
				return nil, fmt.Errorf("a deployment was expected, not %T", obj)
			}
		},
		put:  func(read any) { b.setWorkload(read.(*workloadRecord).workload) },
		drop: func(read any) { b.dropWorkload(read.(*workloadRecord).workload.key()) },
		replace: func([]any) {
			for key, w := range b.workloads {
				if namespace == "" || w.name.Namespace == namespace {
					delete(b.workloads, key) // a list is the truth, whatever we knew
					b.touch(key)
				}
			}
		},
	}
}

// podStore takes the pods that carry a slice's label.
func (b *sliceBook) podStore() bookStore {
	return bookStore{
		book: b, listed: listedPods, read: readInstance,
		put:  func(read any) { b.setPod(read.(*instance)) },
		drop: func(read any) { b.dropPod(read.(*instance).key()) },
		replace: func(all []any) {
			for _, key := range missing(b.pods, all, func(read any) string { return read.(*instance).key() }) {
				b.dropPod(key)
			}
		},
	}
}

// missing are the keys of what is known and was not listed.
func missing[V any](known map[string]V, all []any, keyOf func(any) string) []string {
	here := make(map[string]bool, len(all))
	for _, read := range all {
		here[keyOf(read)] = true
	}
	var gone []string
	for key := range known {
		if !here[key] {
			gone = append(gone, key)
		}
	}
	return gone
}

// readSlice leaves out who wrote which field: nobody asks here.
func readSlice(obj any) (any, error) {
	s, ok := obj.(*broker.Slice)
	if !ok {
		return nil, fmt.Errorf("a slice was expected, not %T", obj)
	}
	s.ManagedFields = nil
	return s, nil
}
