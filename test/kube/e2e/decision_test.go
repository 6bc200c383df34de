package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// The reservation of the issue, exactly as it is written there.
const mlTraining = `apiVersion: broker.fluidos.eu/v1alpha1
kind: Reservation
metadata: {name: ml-training}
spec:
  requesterID: "rome"
  requestedResources: {cpu: "4", memory: "8Gi"}
  duration: "2h"
  priority: 10
`

var (
	mlAmounts    = amounts{4_000, 8 * gibi}
	parisPrices  = prices{"0.50", "0.05"}
	berlinPrices = prices{"0.60", "0.10"}
)

// What makes paris busy: 10 pods of 4 cores and 16 GiB.
const (
	loadPods               = 10
	podCPU, podMemory      = "4", "16Gi"
	podCPUMilli, podMemGiB = 4_000, 16
)

var loadAmounts = amounts{loadPods * podCPUMilli, loadPods * podMemGiB * gibi}

func testAdvertised(t *testing.T, w *world) {
	ctx := subtestContext(t)
	w.exchange.checkDeployment(t, ctx)
	for name, m := range w.members {
		checkRights(t, ctx, m)
		adv, err := getAdvertisement(ctx, w.at(1), name)
		must(t, err)
		if got := amountsOf(adv.Spec.Resources.Allocatable); got != capacity {
			t.Errorf("%s: allocatable %s, want %s", name, got, capacity)
		}
		if got := amountsOf(adv.Spec.Resources.Allocated); got != (amounts{}) {
			t.Errorf("%s: allocated %s, want nothing", name, got)
		}
		if got := adv.available(); got != capacity {
			t.Errorf("%s: available %s, want %s", name, got, capacity)
		}
		if got, want := amountsOf(adv.Spec.LargestFree), (amounts{capacity.cpu / 2, capacity.memory / 2}); got != want {
			t.Errorf("%s: largestFree %s, want %s", name, got, want)
		}
		if adv.Spec.Endpoint != m.cluster.URL() || adv.Spec.Region == "" || adv.Spec.Provider == "" || adv.Labels["tier"] == "" {
			t.Errorf("%s: endpoint %q, region %q, provider %q, labels %v: not as the agent's flags said",
				name, adv.Spec.Endpoint, adv.Spec.Region, adv.Spec.Provider, adv.Labels)
		}
	}
	table := w.as(t, ctx, "admin", 0).run(t, ctx, "get", "clusteradvertisements")
	if got, want := columns(table), "NAME CLUSTER CPU-AVAIL MEM-AVAIL RESERVED-CPU COST STATUS AGE"; got != want {
		t.Errorf("columns %q, want %q", got, want)
	}
	t.Logf("\n%s", table)
}

// testLoad prices paris below berlin, sees it win, loads it with real pods, and sees berlin win.
func testLoad(t *testing.T, w *world) {
	ctx := subtestContext(t)
	before := w.ask(t, ctx, 0)
	if c, err := before.Status.Decision.of("paris"); err != nil || !sameNumber(c.PricePerHour, "20") {
		t.Errorf("paris at 5.00 per core: %v, %q per hour, want 20", err, c.PricePerHour)
	}

	w.as(t, ctx, "provider:paris", 0).run(t, ctx,
		"annotate", "clusteradvertisement", "paris-adv", `cost.cpu=0.50`, `cost.memory=0.05`)
	// At once: the very next request, at another node, counts with the new price.
	empty := w.ask(t, ctx, 1)
	w.checkDecision(t, empty.Status.Decision, map[string]amounts{"paris": capacity, "berlin": capacity})
	if got := empty.Status.TargetClusterID; got != "paris" {
		t.Errorf("with both clusters empty %q wins, want paris, which is cheaper", got)
	}

	paris := w.members["paris"]
	began := time.Now()
	_, err := paris.cluster.RunPods(ctx, loadPods, podCPU, podMemory)
	must(t, err)
	ran := time.Now()
	eventually(t, ctx, "paris to advertise its pods", func(ctx context.Context) error {
		adv, err := getAdvertisement(ctx, w.at(2), "paris")
		if err != nil {
			return err
		}
		if got := amountsOf(adv.Spec.Resources.Allocated); got != loadAmounts {
			return fmt.Errorf("allocated %s, want %s", got, loadAmounts)
		}
		return nil
	})
	t.Logf("%d pods ran after %.1f s; advertised %.2f s later", loadPods, ran.Sub(began).Seconds(), time.Since(ran).Seconds())

	loaded := w.ask(t, ctx, 2)
	w.checkDecision(t, loaded.Status.Decision, map[string]amounts{"paris": capacity.minus(loadAmounts), "berlin": capacity})
	if got := loaded.Status.TargetClusterID; got != "berlin" {
		t.Errorf("with paris loaded %q wins, want berlin", got)
	}
}

// ask is what --dry-run=server answers to the reservation of the issue at the i-th node.
func (w *world) ask(t *testing.T, ctx context.Context, i int) *reservation {
	t.Helper()
	r := w.as(t, ctx, "requester:rome", i).reservation(t, ctx, mlTraining, "create", "--dry-run=server", "-f", "-")
	if r.Status.Phase != "Reserved" {
		t.Fatalf("dry run: phase %q (%s), want Reserved", r.Status.Phase, r.Status.Message)
	}
	return r
}

// checkDecision compares the decision on the reservation of the issue with the formula, for what was available.
func (w *world) checkDecision(t *testing.T, d *decision, available map[string]amounts) {
	t.Helper()
	best, bestID := int64(-1), ""
	for _, id := range []string{"paris", "berlin"} {
		price := map[string]prices{"paris": parisPrices, "berlin": berlinPrices}[id]
		e := expect(capacity, available[id], mlAmounts, price)
		if e.score > best {
			best, bestID = e.score, id
		}
		c, err := d.of(id)
		must(t, err)
		e.agrees(t, c)
	}
	if d.Candidates[0].ClusterID != bestID {
		t.Errorf("the best candidate shown is %s, by arithmetic it is %s", d.Candidates[0].ClusterID, bestID)
	}
	if _, err := d.of("rome"); err == nil {
		t.Error("rome is a candidate for its own request")
	}
	if d.Policy != "resource=70,cost=30" {
		t.Errorf("policy %q, want resource=70,cost=30", d.Policy)
	}
}

func testReservation(t *testing.T, w *world) {
	ctx := subtestContext(t)
	rome := w.as(t, ctx, "requester:rome", 0)
	before, err := getAdvertisement(ctx, w.at(1), "berlin")
	must(t, err)
	beforeParis, err := getAdvertisement(ctx, w.at(1), "paris")
	must(t, err)

	contains(t, "kubectl apply", rome.feed(t, ctx, mlTraining, "apply", "-f", "-"), "reservation.broker.fluidos.eu/ml-training created")
	r := w.as(t, ctx, "requester:rome", 1).reservation(t, ctx, "", "get", "reservation", "ml-training")
	if r.Status.Phase != "Reserved" || r.Status.TargetClusterID != "berlin" {
		t.Fatalf("ml-training is %s on %q (%s), want Reserved on berlin", r.Status.Phase, r.Status.TargetClusterID, r.Status.Message)
	}
	if r.Namespace != "rome" {
		t.Errorf("it is in namespace %q, want rome, the requester's own", r.Namespace)
	}
	w.checkDecision(t, r.Status.Decision, map[string]amounts{"paris": beforeParis.available(), "berlin": before.available()})
	if r.Status.TargetClusterEndpoint != w.members["berlin"].cluster.URL() || r.Status.Fence <= 0 || !sameNumber(r.Status.PricePerHour, "3.2") {
		t.Errorf("endpoint %q, fence %d, price %q: want %s, a revision, 3.2",
			r.Status.TargetClusterEndpoint, r.Status.Fence, r.Status.PricePerHour, w.members["berlin"].cluster.URL())
	}
	if lease := r.Status.ExpiresAt.Sub(r.Status.ReservedAt.Time); lease != 2*time.Hour {
		t.Errorf("it expires %s after the grant, want 2h", lease)
	}

	after, err := getAdvertisement(ctx, w.at(2), "berlin")
	must(t, err)
	if got := after.held().minus(before.held()); got != mlAmounts {
		t.Errorf("berlin's reserved grew by %s, want exactly %s", got, mlAmounts)
	}
	if got := before.available().minus(after.available()); got != mlAmounts {
		t.Errorf("berlin's available shrank by %s, want exactly %s", got, mlAmounts)
	}

	described := rome.run(t, ctx, "describe", "reservation", "ml-training")
	contains(t, "kubectl describe", described, "Decision:", "Candidates:", "Policy:", "resource=70,cost=30", "berlin", "paris", "Score:", "Events:", "Reserved")
	if strings.Contains(described, "Events:  <none>") || strings.Contains(described, "Events:      <none>") {
		t.Errorf("kubectl describe shows no event:\n%s", described)
	}
	table, wide := rome.run(t, ctx, "get", "reservations"), rome.run(t, ctx, "get", "rsv", "-o", "wide")
	if got, want := columns(table), "NAME REQUESTER CPU MEMORY PHASE TARGET EXPIRES AGE"; got != want {
		t.Errorf("columns %q, want %q", got, want)
	}
	contains(t, "get -o wide", strings.ToUpper(columns(wide)), "PRICE", "SCORE")
	t.Logf("\n%s", wide)
	for _, who := range []string{"rome", "berlin"} {
		w.checkTold(t, ctx, who, r)
	}
	contains(t, "the explain subresource", rome.run(t, ctx, "get", "--raw",
		"/apis/broker.fluidos.eu/v1alpha1/namespaces/rome/reservations/ml-training/explain"), "ReservationExplanation", "berlin", "paris")
}

// checkTold looks for the one unmistakable line that an agent logs about a grant.
func (w *world) checkTold(t *testing.T, ctx context.Context, who string, r *reservation) {
	t.Helper()
	words := []string{r.Name, fmt.Sprint(r.Status.Fence), r.Status.TargetClusterID, "8Gi"}
	if who == r.Spec.RequesterID {
		words = append(words, r.Status.TargetClusterEndpoint)
	}
	eventually(t, ctx, who+"'s agent to be told", func(context.Context) error {
		line, err := logLine(w.members[who].logPath, words...)
		if err == nil {
			t.Logf("%s's agent: %s", who, line)
		} else if !errors.Is(err, errNotInLog) {
			t.Error(err)
		}
		return err
	})
}

func testExplain(t *testing.T, w *world) {
	ctx := subtestContext(t)
	admin := w.as(t, ctx, "admin", 1)
	for kind, fields := range map[string][]string{
		"reservation": {
			"spec.requesterID", "spec.requestedResources", "spec.duration", "spec.priority", "spec.waitFor", "spec.chunk",
			"spec.clusterSelector", "spec.targetClusterID", "spec.maxCostPerHour", "spec.ttlSecondsAfterFinished",
			"status.phase", "status.targetClusterID", "status.targetClusterEndpoint", "status.reservedAt", "status.expiresAt",
			"status.fence", "status.pricePerHour", "status.message", "status.conditions",
			"status.decision.candidates.score",
		},
		"clusteradvertisement": {
			"spec.clusterID", "spec.endpoint", "spec.region", "spec.provider", "spec.resources.reserved", "spec.resources.available",
			"spec.largestFree", "spec.cost", "spec.lending.keepBack", "spec.lending.cordoned", "spec.lending.withdrawn",
			"status.phase", "status.lastSeen", "status.epoch",
		},
	} {
		contains(t, "kubectl explain "+kind, admin.run(t, ctx, "explain", kind), "GROUP:", "broker.fluidos.eu", "spec", "status")
		for _, field := range fields {
			out := admin.run(t, ctx, "explain", kind+"."+field)
			_, description, found := strings.Cut(out, "DESCRIPTION:")
			if description = strings.TrimSpace(description); !found || description == "" || strings.HasPrefix(description, "<empty>") {
				t.Errorf("kubectl explain %s.%s explains nothing:\n%s", kind, field, out)
			}
		}
	}
}
