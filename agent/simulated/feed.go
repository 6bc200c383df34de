package simulated

import (
	"fmt"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/testing"
)

// watchedKinds are what can be watched: what an agent does.
var watchedKinds = map[schema.GroupVersionResource]schema.GroupVersionKind{
	corev1.SchemeGroupVersion.WithResource("nodes"): corev1.SchemeGroupVersion.WithKind("Node"),
	corev1.SchemeGroupVersion.WithResource("pods"):  corev1.SchemeGroupVersion.WithKind("Pod"),
	deployments: appsv1.SchemeGroupVersion.WithKind("Deployment"),
}

// feed is the clientset's tracker with watches of its own, which can't overflow: who writes waits until every watcher
// has room. Client-go's end the process where one is a hundred events behind. The clientset answers one request at a
// time, so whoever reads a watch, or stops it, must need no answer of it to do so.
type feed struct {
	testing.ObjectTracker

	mu       sync.Mutex // held from a write until it is told, so that all see the same order
	watchers map[*watcher]bool
}

func newFeed(tracker testing.ObjectTracker) *feed {
	return &feed{ObjectTracker: tracker, watchers: map[*watcher]bool{}}
}

func (f *feed) Create(gvr schema.GroupVersionResource, obj runtime.Object, ns string, opts ...metav1.CreateOptions) error {
	return f.write(gvr, obj, ns, watch.Added, func() error { return f.ObjectTracker.Create(gvr, obj, ns, opts...) })
}

func (f *feed) Update(gvr schema.GroupVersionResource, obj runtime.Object, ns string, opts ...metav1.UpdateOptions) error {
	return f.write(gvr, obj, ns, watch.Modified, func() error { return f.ObjectTracker.Update(gvr, obj, ns, opts...) })
}

func (f *feed) Patch(gvr schema.GroupVersionResource, obj runtime.Object, ns string, opts ...metav1.PatchOptions) error {
	return f.write(gvr, obj, ns, watch.Modified, func() error { return f.ObjectTracker.Patch(gvr, obj, ns, opts...) })
}

func (f *feed) Delete(gvr schema.GroupVersionResource, ns, name string, opts ...metav1.DeleteOptions) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	last, err := f.Get(gvr, ns, name)
	if err != nil {
		return err
	}
	if err := f.ObjectTracker.Delete(gvr, ns, name, opts...); err != nil {
		return err
	}
	f.tell(gvr, ns, watch.Event{Type: watch.Deleted, Object: last})
	return nil
}

func (f *feed) write(gvr schema.GroupVersionResource, obj runtime.Object, ns string, as watch.EventType, do func() error) error {
	at, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := do(); err != nil {
		return err
	}
	stored, err := f.Get(gvr, ns, at.GetName())
	if err != nil {
		return err
	}
	f.tell(gvr, ns, watch.Event{Type: as, Object: stored})
	return nil
}

func (f *feed) tell(gvr schema.GroupVersionResource, ns string, event watch.Event) {
	for w := range f.watchers {
		if w.gvr != gvr || w.namespace != metav1.NamespaceAll && w.namespace != ns {
			continue
		}
		select {
		case w.events <- watch.Event{Type: event.Type, Object: event.Object.DeepCopyObject()}:
		case <-w.stopped:
		}
	}
}

// Watch tells first of all that there is, whatever version it is to begin with: what was written since the reader's
// list is among it. What was deleted since is not.
func (f *feed) Watch(gvr schema.GroupVersionResource, ns string, _ ...metav1.ListOptions) (watch.Interface, error) {
	kind, known := watchedKinds[gvr]
	if !known {
		return nil, fmt.Errorf("simulated: %s can't be watched", gvr.Resource)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	list, err := f.List(gvr, kind, ns)
	if err != nil {
		return nil, err
	}
	there, err := meta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	w := &watcher{
		feed: f, gvr: gvr, namespace: ns,
		events: make(chan watch.Event, len(there)+watchQueue), stopped: make(chan struct{}),
	}
	for _, obj := range there {
		w.events <- watch.Event{Type: watch.Added, Object: obj}
	}
	f.watchers[w] = true
	return w, nil
}

// watcher is one watch.
type watcher struct {
	feed      *feed
	gvr       schema.GroupVersionResource
	namespace string // "" for all
	events    chan watch.Event
	stopped   chan struct{}
	stop      sync.Once
}

func (w *watcher) ResultChan() <-chan watch.Event { return w.events }

func (w *watcher) Stop() {
	w.stop.Do(func() {
		close(w.stopped) // first: a writer may be waiting for room
		w.feed.mu.Lock()
		defer w.feed.mu.Unlock()
		delete(w.feed.watchers, w)
		close(w.events)
	})
}
