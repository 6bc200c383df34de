package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
)

// checkAccounts compares, at every node, what each advertisement says is reserved with the sum over all reservations
// that are Reserved there. Nobody may be writing.
func (w *world) checkAccounts(t *testing.T, ctx context.Context) {
	t.Helper()
	for _, n := range w.exchange.nodes {
		if err := balanced(ctx, n.client); err != nil {
			t.Errorf("%s: %v", n.id, err)
		}
	}
}

func balanced(ctx context.Context, client dynamic.Interface) error {
	reservations, err := readAll[reservation](client.Resource(reservationsKind).List(ctx, metav1.ListOptions{}))
	if err != nil {
		return err
	}
	advertisements, err := readAll[advertisement](client.Resource(advertisementsKind).List(ctx, metav1.ListOptions{}))
	if err != nil {
		return err
	}
	sums := map[string]amounts{}
	for _, r := range reservations {
		if r.Status.Phase == "Reserved" && len(r.Status.Pieces) == 0 { // its pieces hold
			sums[r.Status.TargetClusterID] = sums[r.Status.TargetClusterID].plus(amountsOf(r.Spec.RequestedResources))
		}
	}
	var faults []error
	for _, adv := range advertisements {
		if got, want := adv.held(), sums[adv.Spec.ClusterID]; got != want {
			faults = append(faults, fmt.Errorf("%s says reserved %s, its holds add up to %s", adv.Name, got, want))
		}
		room := amountsOf(adv.Spec.Resources.Allocatable).minus(amountsOf(adv.Spec.Resources.Allocated)).minus(adv.held())
		if got := adv.available(); got != (amounts{max(0, room.cpu), max(0, room.memory)}) {
			faults = append(faults, fmt.Errorf("%s says available %s, allocatable - allocated - reserved is %s", adv.Name, got, room))
		}
		delete(sums, adv.Spec.ClusterID)
	}
	for id, sum := range sums {
		faults = append(faults, fmt.Errorf("reservations hold %s on %q, which has no advertisement", sum, id))
	}
	return errors.Join(faults...)
}

// allHeld is what is reserved on all clusters together.
func (w *world) allHeld(ctx context.Context) (amounts, error) {
	advertisements, err := readAll[advertisement](w.at(0).Resource(advertisementsKind).List(ctx, metav1.ListOptions{}))
	var sum amounts
	for _, adv := range advertisements {
		sum = sum.plus(adv.held())
	}
	return sum, err
}

// expiryLimit is how long after its expiry a lease may still hold; the leader's timer and one Raft round.
const expiryLimit = 2 * time.Second

func testEnds(t *testing.T, w *world) {
	ctx := subtestContext(t)
	rome := w.as(t, ctx, "requester:rome", 2)
	before, err := w.allHeld(ctx)
	must(t, err)
	held := amounts{3_000, 5 * gibi}
	back := func(t *testing.T) {
		t.Helper()
		if now, err := w.allHeld(ctx); err != nil || now != before {
			t.Errorf("reserved is %s (%v), want %s again", now, err, before)
		}
		w.checkAccounts(t, ctx)
	}
	taken := func(t *testing.T) {
		t.Helper()
		if now, err := w.allHeld(ctx); err != nil || now.minus(before) != held {
			t.Errorf("reserved grew by %s (%v), want %s", now.minus(before), err, held)
		}
	}

	t.Run("a duration of 5s ends as Released", func(t *testing.T) {
		manifest := manifest("short", "rome", `{cpu: "3", memory: 5Gi}`, `duration: "5s"`)
		rome.feed(t, ctx, manifest, "apply", "-f", "-")
		taken(t)
		rome.run(t, ctx, "wait", "reservation/short", "--for=jsonpath={.status.phase}=Released", "--timeout=30s")
		seen := time.Now()
		r := rome.reservation(t, ctx, "", "get", "rsv", "short")
		if lease := r.Status.ExpiresAt.Sub(r.Status.ReservedAt.Time); lease != 5*time.Second {
			t.Errorf("the lease is %s, want 5s", lease)
		}
		late := seen.Sub(r.Status.ExpiresAt.Time)
		t.Logf("Released seen by kubectl wait %s after its expiry: %s", late.Round(time.Millisecond), r.Status.Message)
		if late < 0 || late > expiryLimit {
			t.Errorf("Released %s after its expiry, want within %s", late, expiryLimit)
		}
		back(t)
	})
	t.Run("deleting a Reserved one releases", func(t *testing.T) {
		rome.feed(t, ctx, manifest("unwanted", "rome", `{cpu: "3", memory: 5Gi}`), "apply", "-f", "-")
		taken(t)
		rome.run(t, ctx, "delete", "reservation", "unwanted")
		back(t)
	})
	t.Run("one that waits is granted by a deletion", func(t *testing.T) {
		big := fmt.Sprintf(`{cpu: "%d", memory: 1Gi}`, capacity.cpu/1000-10)
		rome.feed(t, ctx, manifest("big", "rome", big), "apply", "-f", "-")
		rome.feed(t, ctx, manifest("waiting", "rome", big, "waitFor: 1m"), "apply", "-f", "-")
		if r := rome.reservation(t, ctx, "", "get", "rsv", "waiting"); r.Status.Phase != "Pending" {
			t.Errorf("waiting is %s (%s), want Pending", r.Status.Phase, r.Status.Message)
		}
		rome.run(t, ctx, "delete", "rsv", "big")
		rome.run(t, ctx, "wait", "rsv/waiting", "--for=condition=Ready", "--timeout=10s")
		rome.run(t, ctx, "delete", "rsv", "waiting")
		back(t)
	})
	t.Run("one that fits nowhere fails and says what lacks", func(t *testing.T) {
		rome.feed(t, ctx, manifest("huge", "rome", `{cpu: "999", memory: 1Gi}`), "apply", "-f", "-")
		r := rome.reservation(t, ctx, "", "get", "rsv", "huge")
		if r.Status.Phase != "Failed" {
			t.Errorf("huge is %s, want Failed", r.Status.Phase)
		}
		contains(t, "status.message", r.Status.Message, "Insufficient resources", "paris", "berlin", "cpu 999 requested")
		t.Log(r.Status.Message)
		rome.run(t, ctx, "delete", "rsv", "huge")
		back(t)
	})
}

// manifest is a reservation as YAML; each of more is a further line of its spec.
func manifest(name, requester, resources string, more ...string) string {
	out := fmt.Sprintf("apiVersion: %s\nkind: Reservation\nmetadata:\n  name: %s\nspec:\n  requesterID: %q\n  requestedResources: %s\n",
		brokerVersion, name, requester, resources)
	for _, line := range more {
		out += "  " + line + "\n"
	}
	return out
}
