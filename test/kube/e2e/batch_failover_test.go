package e2e

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	batchNamespace = "batches"
	batchCount     = 60 // atomic ones of three, half as many of 20 items, and as many in pieces
	atomicItems    = 3
	batchItems     = 20
	// batchesBeforeKill are answered when the leader dies.
	batchesBeforeKill = 15
	// lookInterval leaves the nodes time for what is looked at.
	lookInterval = 50 * time.Millisecond
)

// ask is one thing that is created in the namespace: a batch or a split reservation.
type ask struct {
	name   string
	batch  bool
	object *unstructured.Unstructured
}

func batchAsks() (asks []ask) {
	items := func(n int) (list []any) {
		for i := range n {
			list = append(list, map[string]any{"name": fmt.Sprintf("i%d", i), "spec": map[string]any{
				"requesterID": "rome", "requestedResources": map[string]any{"cpu": "20m", "memory": "16Mi"},
				"targetClusterID": []any{"paris", "berlin"}[i%2],
			}})
		}
		return list
	}
	object := func(kind, name string, spec map[string]any) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		o.SetAPIVersion(brokerVersion.String())
		o.SetKind(kind)
		o.SetName(name)
		return o
	}
	for i := range batchCount {
		name := fmt.Sprintf("atomic%d", i)
		asks = append(asks, ask{name, true, object("ReservationBatch", name, map[string]any{"atomic": true, "items": items(atomicItems)})})
		if i%2 == 0 {
			name = fmt.Sprintf("batch%d", i)
			asks = append(asks, ask{name, true, object("ReservationBatch", name, map[string]any{"items": items(batchItems)})})
			name = fmt.Sprintf("split%d", i)
			asks = append(asks, ask{name, false, object("Reservation", name, map[string]any{
				"requesterID": "rome", "requestedResources": map[string]any{"cpu": "40m", "memory": "16Mi"},
				"split": map[string]any{"maxPieces": int64(2), "minPiece": map[string]any{"cpu": "20m"}},
			})})
		}
	}
	return asks
}

// testBatchFailover kills the leader with -9 while batches and splits are created through all nodes, and again while
// they are deleted. A list is what is there at one revision: none ever shows a part of an atomic batch without the others.
func testBatchFailover(t *testing.T, w *world) {
	ctx := subtestContext(t)
	asks := batchAsks()
	watched, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	var looks atomic.Int64
	for _, n := range w.exchange.nodes {
		watching.Go(func() {
			again := time.NewTicker(lookInterval)
			defer again.Stop()
			for watched.Err() == nil {
				select {
				case <-again.C:
				case <-watched.Done():
					return
				}
				// From what the node has: that goes on while nobody leads.
				list, err := readAll[reservation](n.client.Resource(reservationsKind).Namespace(batchNamespace).List(watched, metav1.ListOptions{ResourceVersion: "0"}))
				if err != nil {
					continue // it is the one that was killed
				}
				looks.Add(1)
				if err := allOrNothing(list); err != nil {
					t.Errorf("%s: %v", n.id, err)
					return
				}
			}
		})
	}
	w.surviveKill(t, ctx, asks, func(ctx context.Context, i int, a ask) error { return w.createBatchSurely(ctx, i, a) })
	for _, n := range w.exchange.nodes {
		list, err := readAll[reservation](n.client.Resource(reservationsKind).Namespace(batchNamespace).List(ctx, metav1.ListOptions{}))
		must(t, err)
		held := 0
		for _, r := range list {
			if r.Status.Phase == "Reserved" && r.Status.TargetClusterID != "" {
				held++
			}
		}
		if least := batchCount*atomicItems + batchCount/2*(batchItems+1); held < least {
			t.Errorf("%s: %d are held, want %d or more", n.id, held, least)
		}
	}
	w.checkAccounts(t, ctx)
	w.surviveKill(t, ctx, asks, func(ctx context.Context, i int, a ask) error { return w.deleteBatchSurely(ctx, i, a) })
	stop()
	watching.Wait()
	t.Logf("%d lists of all nodes, none with a part of something", looks.Load())
	left, err := w.at(0).Resource(reservationsKind).Namespace(batchNamespace).List(ctx, metav1.ListOptions{})
	must(t, err)
	if len(left.Items) > 0 || looks.Load() == 0 {
		t.Errorf("%d reservations are left, after %d looks", len(left.Items), looks.Load())
	}
	w.checkAccounts(t, ctx)
}

// allOrNothing: of what is one thing all parts are there and held, or none is.
func allOrNothing(list []*reservation) error {
	held := map[string]int{} // by the uid of the whole
	of := map[string]string{}
	for _, r := range list {
		if part := r.Status.PartOf; part != nil && part.Bound && r.Status.Phase == "Reserved" {
			held[part.UID]++
			of[part.UID] = part.Kind
		}
	}
	for _, r := range list {
		if n := len(r.Status.Pieces); n > 0 && r.Status.Phase == "Reserved" && held[string(r.UID)] != n {
			return fmt.Errorf("%s is held in %d pieces, %d are there", r.Name, n, held[string(r.UID)])
		}
	}
	for uid, n := range held {
		if of[uid] == "ReservationBatch" && n != atomicItems {
			return fmt.Errorf("%d of %d items of an atomic batch are held", n, atomicItems)
		}
	}
	return nil
}

// surviveKill does something with each through all nodes; the leader dies in the middle.
func (w *world) surviveKill(t *testing.T, ctx context.Context, asks []ask, do func(context.Context, int, ask) error) {
	t.Helper()
	old, err := w.exchange.leader(ctx)
	must(t, err)
	queue := make(chan ask, len(asks))
	for _, a := range asks {
		queue <- a
	}
	close(queue)
	reached := make(chan struct{})
	var done atomic.Int32
	var clients sync.WaitGroup
	for i := range failoverClients {
		clients.Go(func() {
			for a := range queue {
				if err := do(ctx, i, a); err != nil {
					t.Error(err)
				}
				if done.Add(1) == batchesBeforeKill {
					close(reached)
				}
			}
		})
	}
	select {
	case <-reached:
	case <-ctx.Done():
		t.Fatal(context.Cause(ctx))
	}
	old.proc.Kill()
	t.Logf("kill -9 of the leader %s after %d of %d", old.id, done.Load(), len(asks))
	clients.Wait()
	w.exchange.revive(t, ctx, old)
}

// createBatchSurely asks until it is told that all is held: the name of a batch is its idempotency key.
func (w *world) createBatchSurely(ctx context.Context, client int, a ask) error {
	attempts := 0
	return waitFor(ctx, time.Minute, a.name+" to be created", func(ctx context.Context) error {
		attempts++
		kind := reservationsKind
		if a.batch {
			kind = batchesKind
		}
		at := w.at((client + attempts) % len(w.exchange.nodes)).Resource(kind).Namespace(batchNamespace)
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		made, err := at.Create(attempt, a.object, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) && !a.batch && attempts > 1 {
			made, err = at.Get(attempt, a.name, metav1.GetOptions{})
		}
		if err != nil {
			return err
		}
		phase, _, err := unstructured.NestedString(made.Object, "status", "phase")
		if err == nil && phase != "Reserved" {
			err = fmt.Errorf("%s was answered %s: %v", a.name, phase, made.Object["status"])
		}
		return err
	})
}

func (w *world) deleteBatchSurely(ctx context.Context, client int, a ask) error {
	attempts := 0
	return waitFor(ctx, time.Minute, a.name+" to be deleted", func(ctx context.Context) error {
		attempts++
		kind := reservationsKind
		if a.batch {
			kind = batchesKind
		}
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		err := w.at((client+attempts)%len(w.exchange.nodes)).Resource(kind).Namespace(batchNamespace).Delete(attempt, a.name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}
