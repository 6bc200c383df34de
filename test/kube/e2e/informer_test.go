package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	informerNamespace = "informers"
	informerObjects   = 20
	// informerRounds of writes come before the kill, around it, and after the node is back.
	informerRounds = 6
)

// witness is an informer that writes down every event it is handed.
type witness struct {
	name     string
	informer cache.SharedIndexInformer

	mu     sync.Mutex
	events []string // "name revision": an object as it became, or "name deleted"
}

func newWitness(t *testing.T, ctx context.Context, name string, client dynamic.Interface) *witness {
	t.Helper()
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, informerNamespace, nil)
	v := &witness{name: name, informer: factory.ForResource(reservationsKind).Informer()}
	_, err := v.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { v.note(o, "") },
		UpdateFunc: func(_, o any) { v.note(o, "") },
		DeleteFunc: func(o any) { v.note(o, "deleted") },
	})
	must(t, err)
	// A short back-off would hide a missed event behind a quick relist: any relist shows as a repeated event.
	go v.informer.RunWithContext(ctx)
	eventually(t, ctx, name+" to be in sync", func(context.Context) error {
		if !v.informer.HasSynced() {
			return errors.New("not in sync")
		}
		return nil
	})
	return v
}

func (v *witness) note(o any, how string) {
	if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o, how = unknown.Obj, "deleted, found missing in a relist"
	}
	object := o.(*unstructured.Unstructured)
	if how == "" {
		how = object.GetResourceVersion()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.events = append(v.events, object.GetName()+" "+how)
}

func (v *witness) seen() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.events)
}

// testInformers keeps one informer at each node, and one behind an address that leads to any living node, while
// objects are created, changed and deleted across a kill of the leader.
func testInformers(t *testing.T, w *world) {
	ctx, cancel := context.WithCancel(subtestContext(t))
	defer cancel()
	leader, err := w.exchange.leader(ctx)
	must(t, err)
	var witnesses []*witness
	for _, n := range w.exchange.nodes {
		witnesses = append(witnesses, newWitness(t, ctx, "the informer at "+n.id, n.client))
	}
	roaming, err := w.exchange.roamingClient(ctx, leader)
	must(t, err)
	witnesses = append(witnesses, newWitness(t, ctx, "the informer that moves on", roaming))

	if now, err := w.exchange.leader(ctx); err != nil || now != leader {
		t.Fatalf("%s led when the informers started, now another does (%v)", leader.id, err)
	}
	script := &writer{acked: map[string]bool{}, killAt: informerObjects * (informerRounds + 1)}
	var killing sync.WaitGroup
	amid := make(chan struct{})
	script.reached = amid
	killing.Go(func() {
		select {
		case <-amid:
			leader.proc.Kill()
		case <-ctx.Done():
		}
	})
	script.rounds(t, ctx, w.exchange.nodes, true)
	script.rounds(t, ctx, w.exchange.nodes, false)
	killing.Wait()
	t.Logf("kill -9 of the leader %s at write %d of %d", leader.id, script.killAt, script.sequence)
	w.exchange.revive(t, ctx, leader)
	script.rounds(t, ctx, w.exchange.nodes, false)
	script.deleteAll(t, ctx, w.exchange.nodes)

	for _, v := range witnesses {
		eventually(t, ctx, v.name+" to see every object deleted", func(context.Context) error {
			for name := range script.names {
				if want := objectName(name) + " deleted"; !slices.Contains(v.seen(), want) {
					return fmt.Errorf("%q not seen", want)
				}
			}
			return nil
		})
	}
	script.check(t, witnesses)
}

func objectName(i int) string { return fmt.Sprintf("i-%02d", i) }

// writer makes the changes and remembers which were acknowledged.
type writer struct {
	killAt   int             // the write amid which the leader dies
	reached  chan<- struct{} // closed then
	names    [informerObjects]struct{}
	acked    map[string]bool // events as witnesses note them
	sequence int
	unsure   int // writes that ended in an error: they may have happened
}

// rounds changes each object informerRounds times, each time at the next of nodes.
func (s *writer) rounds(t *testing.T, ctx context.Context, nodes []*node, create bool) {
	t.Helper()
	for range informerRounds {
		for i := range s.names {
			if s.sequence++; s.sequence == s.killAt {
				close(s.reached)
			}
			s.write(t, ctx, nodes, func(ctx context.Context, client dynamic.ResourceInterface) (*unstructured.Unstructured, error) {
				if create {
					return client.Create(ctx, request{name: objectName(i), requester: "rome", cpu: "10m", memory: "8Mi"}.object(), metav1.CreateOptions{})
				}
				patch := fmt.Sprintf(`{"metadata":{"annotations":{"sequence":"%d"}}}`, s.sequence)
				return client.Patch(ctx, objectName(i), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			})
		}
		create = false
	}
}

func (s *writer) write(t *testing.T, ctx context.Context, nodes []*node,
	do func(context.Context, dynamic.ResourceInterface) (*unstructured.Unstructured, error),
) {
	t.Helper()
	attempt := s.sequence
	must(t, waitFor(ctx, patience, "a write", func(ctx context.Context) error {
		attempt++
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		made, err := do(ctx, nodes[attempt%len(nodes)].client.Resource(reservationsKind).Namespace(informerNamespace))
		if err != nil {
			s.unsure++
			return err
		}
		s.acked[made.GetName()+" "+made.GetResourceVersion()] = true
		return nil
	}))
}

func (s *writer) deleteAll(t *testing.T, ctx context.Context, nodes []*node) {
	t.Helper()
	for i := range s.names {
		client := nodes[i%len(nodes)].client.Resource(reservationsKind).Namespace(informerNamespace)
		must(t, client.Delete(ctx, objectName(i), metav1.DeleteOptions{}))
		s.acked[objectName(i)+" deleted"] = true
	}
}

// check finds every acknowledged change once at every witness, nothing twice, and the same events at all of them.
func (s *writer) check(t *testing.T, witnesses []*witness) {
	t.Helper()
	first := witnesses[0].seen()
	byObject := func(events []string) []string {
		// An informer keeps the order of each object's events, not that of events of different objects.
		slices.SortStableFunc(events, func(a, b string) int {
			objectA, _, _ := strings.Cut(a, " ")
			objectB, _, _ := strings.Cut(b, " ")
			return strings.Compare(objectA, objectB)
		})
		return events
	}
	for _, v := range witnesses {
		events := v.seen()
		counts := map[string]int{}
		for _, event := range events {
			counts[event]++
		}
		var faults []error
		for event := range s.acked {
			if counts[event] == 0 {
				faults = append(faults, fmt.Errorf("lost: %s", event))
			}
		}
		for event, n := range counts {
			if n > 1 {
				faults = append(faults, fmt.Errorf("handed over %d times: %s", n, event))
			}
		}
		if !slices.Equal(byObject(events), byObject(slices.Clone(first))) {
			faults = append(faults, fmt.Errorf("saw %d events, %s saw %d, or in another order", len(events), witnesses[0].name, len(first)))
		}
		if err := errors.Join(faults...); err != nil {
			t.Errorf("%s: %v", v.name, err)
		}
	}
	if s.unsure == 0 {
		t.Error("no write failed on its way: the kill hit nothing")
	}
	t.Logf("%d changes acknowledged (%d attempts failed); each of %d informers saw %d events", len(s.acked), s.unsure, len(witnesses), len(first))
}

// roamingClient is a client whose connections go to prefer while that lives, else to any other node, as behind a
// load balancer.
func (x *exchange) roamingClient(ctx context.Context, prefer *node) (dynamic.Interface, error) {
	path, err := x.kubeconfig(ctx, prefer, "admin")
	if err != nil {
		return nil, err
	}
	config, err := restConfig(path)
	if err != nil {
		return nil, err
	}
	config.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		var faults []error
		for _, n := range append([]*node{prefer}, x.others(prefer)...) {
			connection, err := (&net.Dialer{}).DialContext(ctx, network, n.api)
			if err == nil {
				return connection, nil
			}
			faults = append(faults, err)
		}
		return nil, errors.Join(faults...)
	}
	return dynamic.NewForConfig(rest.CopyConfig(config))
}
