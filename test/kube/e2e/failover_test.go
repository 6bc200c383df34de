package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	failoverNamespace = "failover"
	failoverCount     = 200
	failoverClients   = 8
	// killAfter acknowledged creations the leader dies, so that many come before, while and after.
	killAfter = 60
	// writesAgainLimit is far above the goal (a median under 1 s); beyond it something is stuck.
	writesAgainLimit = 15 * time.Second
)

// acknowledged is a creation that a client was told of.
type acknowledged struct {
	name, uid string
	at        time.Time
	attempts  int
	unsure    bool // an attempt failed and may have happened all the same
}

// testFailover kills the leader with -9 while several clients create reservations through all nodes.
func testFailover(t *testing.T, w *world) {
	ctx := subtestContext(t)
	old, err := w.exchange.leader(ctx)
	must(t, err)
	oldTerm, err := old.leadership(ctx)
	must(t, err)
	names := make(chan string, failoverCount)
	for i := range failoverCount {
		names <- fmt.Sprintf("f-%03d", i)
	}
	close(names)
	acks := make(chan acknowledged, failoverCount)
	reached := make(chan struct{})
	var done atomic.Int32
	var clients sync.WaitGroup
	for i := range failoverClients {
		clients.Go(func() {
			for name := range names {
				ack, err := w.createSurely(ctx, i, name)
				if err != nil {
					t.Error(err)
					continue
				}
				acks <- ack
				if done.Add(1) == killAfter {
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
	gone := time.Now()
	t.Logf("kill -9 of the leader %s after %d of %d", old.id, done.Load(), failoverCount)
	clients.Wait()
	close(acks)
	w.exchange.revive(t, ctx, old)
	next, err := w.exchange.leader(ctx)
	must(t, err)
	newTerm, err := next.leadership(ctx)
	must(t, err)
	if newTerm.term <= oldTerm.term {
		t.Errorf("term %d after the kill, %d before: nobody was elected", newTerm.term, oldTerm.term)
	}
	told := w.checkAcks(t, acks, gone)
	for _, n := range w.exchange.nodes {
		w.checkOnce(t, ctx, n, told)
	}
	w.checkAccounts(t, ctx)
	must(t, w.at(0).Resource(reservationsKind).Namespace(failoverNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	w.checkAccounts(t, ctx)
}

// createSurely creates one reservation by its name, at the next node after any error, until it is known to be there.
func (w *world) createSurely(ctx context.Context, client int, name string) (acknowledged, error) {
	object := request{name: name, requester: "rome", cpu: "50m", memory: "32Mi"}.object()
	ack := acknowledged{name: name}
	err := waitFor(ctx, time.Minute, name+" to be created", func(ctx context.Context) error {
		ack.attempts++
		at := w.at((client + ack.attempts) % len(w.exchange.nodes)).Resource(reservationsKind).Namespace(failoverNamespace)
		// A node that just died may leave a request hanging; a person would not wait longer either.
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		made, err := at.Create(attempt, object, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) && ack.unsure {
			made, err = at.Get(attempt, name, metav1.GetOptions{})
		} else if err != nil {
			ack.unsure = true
		}
		if err != nil {
			return err
		}
		ack.uid, ack.at = string(made.GetUID()), time.Now()
		return nil
	})
	return ack, err
}

func (w *world) checkAcks(t *testing.T, acks <-chan acknowledged, gone time.Time) map[string]acknowledged {
	t.Helper()
	told := map[string]acknowledged{}
	before, after, retried, unsure := 0, 0, 0, 0
	var firstAfter, lastOne time.Time
	for ack := range acks {
		told[ack.name] = ack
		retried += ack.attempts - 1
		if ack.unsure {
			unsure++
		}
		if ack.at.Before(gone) {
			before++
			continue
		}
		after++
		if firstAfter.IsZero() || ack.at.Before(firstAfter) {
			firstAfter = ack.at
		}
		if ack.at.After(lastOne) {
			lastOne = ack.at
		}
	}
	if len(told) != failoverCount {
		t.Errorf("%d of %d were acknowledged", len(told), failoverCount)
	}
	if before < killAfter || after == 0 || retried == 0 {
		t.Errorf("%d acknowledged before the kill, %d after, %d retries: the kill did not hit the run", before, after, retried)
	}
	again := firstAfter.Sub(gone)
	t.Logf("%d acknowledged before the kill, %d after; %d retries for %d of them; writes again after %s, all done after %s",
		before, after, retried, unsure, again.Round(time.Millisecond), lastOne.Sub(gone).Round(time.Millisecond))
	if again > writesAgainLimit {
		t.Errorf("the first write after the kill came after %s, want under %s", again, writesAgainLimit)
	}
	return told
}

// checkOnce finds each acknowledged reservation once at a node, as the one that was acknowledged, and holding.
func (w *world) checkOnce(t *testing.T, ctx context.Context, n *node, told map[string]acknowledged) {
	t.Helper()
	list, err := readAll[reservation](n.client.Resource(reservationsKind).Namespace(failoverNamespace).List(ctx, metav1.ListOptions{}))
	must(t, err)
	var faults []error
	seen := map[string]int{}
	for _, r := range list {
		seen[r.Name]++
		switch ack, ok := told[r.Name]; {
		case !ok:
			faults = append(faults, fmt.Errorf("%s is there and nobody was told", r.Name))
		case ack.uid != string(r.UID):
			faults = append(faults, fmt.Errorf("%s has uid %s, acknowledged was %s", r.Name, r.UID, ack.uid))
		case r.Status.Phase != "Reserved":
			faults = append(faults, fmt.Errorf("%s is %s: %s", r.Name, r.Status.Phase, r.Status.Message))
		}
	}
	for name := range told {
		if seen[name] != 1 {
			faults = append(faults, fmt.Errorf("%s was acknowledged and is there %d times", name, seen[name]))
		}
	}
	if err := errors.Join(faults...); err != nil {
		t.Errorf("%s: %v", n.id, err)
	}
}
