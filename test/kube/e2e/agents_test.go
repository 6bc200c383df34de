package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	grants        = 100
	grantClients  = 4
	toldLimit     = time.Second
	toldGoal      = 50 * time.Millisecond
	podSeenLimit  = 2 * time.Second
	grantsMetric  = "bourse_agent_grant_latency_seconds"
	tellNamespace = "rome"
)

// testTold makes 100 grants for rome and reads from its agent how long after the commit it learned of each.
func testTold(t *testing.T, w *world) {
	ctx := subtestContext(t)
	rome := w.members["rome"]
	before, err := rome.histogram(ctx, grantsMetric, `role="requester"`)
	must(t, err)

	created := make(chan time.Duration, grants)
	names := make(chan string)
	var clients sync.WaitGroup
	for i := range grantClients {
		clients.Go(func() {
			client := w.at(i % len(w.exchange.nodes)).Resource(reservationsKind).Namespace(tellNamespace)
			for name := range names {
				began := time.Now()
				made, err := read[reservation](client.Create(ctx, request{name: name, requester: "rome", cpu: "10m", memory: "16Mi"}.object(), metav1.CreateOptions{}))
				if err != nil {
					t.Error(err)
					continue
				}
				if made.Status.Phase != "Reserved" {
					t.Errorf("%s: the answer to create says %q (%s), want Reserved", name, made.Status.Phase, made.Status.Message)
				}
				created <- time.Since(began)
			}
		})
	}
	for i := range grants {
		names <- fmt.Sprintf("told-%03d", i)
	}
	close(names)
	clients.Wait()
	close(created)

	var told histogram
	eventually(t, ctx, "rome's agent to have counted all grants", func(ctx context.Context) error {
		now, err := rome.histogram(ctx, grantsMetric, `role="requester"`)
		if err != nil {
			return err
		}
		if told = now.since(before); told.count < grants {
			return fmt.Errorf("%.0f of %d", told.count, grants)
		}
		return nil
	})
	if told.count != grants {
		t.Errorf("the agent counted %.0f grants, want %d, each once", told.count, grants)
	}
	var answers []time.Duration
	for took := range created {
		answers = append(answers, took)
	}
	slices.Sort(answers)
	p95 := time.Duration(told.quantile(0.95) * float64(time.Second))
	t.Logf("the requester's agent is told of %d grants: p50 within %.0f ms, p95 within %.0f ms of the commit (limit %s, goal %s)",
		grants, told.quantile(0.5)*1000, told.quantile(0.95)*1000, toldLimit, toldGoal)
	t.Logf("create to Reserved with %d clients at three nodes: p50 %s, p95 %s", grantClients, percentile(answers, 50), percentile(answers, 95))
	if p95 > toldLimit {
		t.Errorf("p95 of being told is up to %s, want under %s", p95, toldLimit)
	}
}

// percentile of a sorted list, by nearest rank.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, (len(sorted)*p+99)/100-1)].Round(100 * time.Microsecond)
}

// testDeletedPod deletes pods of paris one by one and measures when its advertisement shows it.
func testDeletedPod(t *testing.T, w *world) {
	ctx := subtestContext(t)
	paris := w.members["paris"].cluster
	pods, err := paris.RunPods(ctx, 3, "2", "3Gi")
	must(t, err)
	pod := amounts{2_000, 3 * gibi}

	allocated := func(ctx context.Context) (amounts, error) {
		adv, err := getAdvertisement(ctx, w.at(0), "paris")
		if err != nil {
			return amounts{}, err
		}
		return amountsOf(adv.Spec.Resources.Allocated), nil
	}
	want := loadAmounts.plus(pod).plus(pod).plus(pod)
	eventually(t, ctx, "paris to advertise three more pods", func(ctx context.Context) error {
		if got, err := allocated(ctx); err != nil || got != want {
			return fmt.Errorf("allocated %s, want %s; %w", got, want, err)
		}
		return nil
	})
	for _, name := range pods {
		want = want.minus(pod)
		watcher, err := w.at(0).Resource(advertisementsKind).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=paris-adv"})
		must(t, err)
		began := time.Now()
		must(t, paris.Client().CoreV1().Pods("default").Delete(ctx, name, metav1.DeleteOptions{}))
		took, err := watchAllocated(ctx, watcher, began, want)
		must(t, err)
		t.Logf("pod %s: advertised %s after its deletion was asked for", name, took.Round(time.Millisecond))
		if took > podSeenLimit {
			t.Errorf("it took %s to show, want under %s", took, podSeenLimit)
		}
	}
}

// watchAllocated returns how long after began the watch showed exactly want as allocated.
func watchAllocated(ctx context.Context, watcher watch.Interface, began time.Time, want amounts) (time.Duration, error) {
	defer watcher.Stop()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var last amounts
	for {
		select {
		case event, open := <-watcher.ResultChan():
			if !open {
				return 0, fmt.Errorf("the watch of paris-adv ended; last seen: allocated %s, want %s", last, want)
			}
			adv, err := readEvent[advertisement](event)
			if err != nil {
				return 0, err
			}
			if last = amountsOf(adv.Spec.Resources.Allocated); last == want {
				return time.Since(began), nil
			}
		case <-timer.C:
			return 0, fmt.Errorf("after %s paris-adv shows allocated %s, want %s", patience, last, want)
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}
