package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/bourse-dev/bourse/test/kube"
)

const (
	shop = "shop"
	// staleLimit is short, so that the loss of a cluster is seen in a test; several heartbeats long on a busy machine.
	staleLimit = 15 * time.Second
	beat       = 2 * time.Second
	// lossLimit is how much longer the instances of a dead cluster may take to run elsewhere.
	lossLimit = 10 * time.Second

	storeInstances = 7
)

// The blueprint of the issue: three artifacts, seven instances of each.
const store = `apiVersion: broker.fluidos.eu/v1alpha1
kind: Blueprint
metadata: {name: store}
spec:
  slices:
  - {name: web, artifact: "nginx:1.29", instances: 7, resources: {cpu: 250m, memory: 256Mi}}
  - {name: api, artifact: "docker.io/acme/api:2", instances: 7, resources: {cpu: 500m, memory: 512Mi}}
  - {name: queue, artifact: "redis:8", instances: 7, resources: {cpu: 100m, memory: 1Gi}}
`

// storeTakes is what one instance of each slice holds.
var storeTakes = map[string]amounts{"web": {250, gibi / 4}, "api": {500, gibi / 2}, "queue": {100, gibi}}

// TestBlueprints tells the story of one blueprint on processes of its own: the members consent, and the Stale limit is short.
func TestBlueprints(t *testing.T) {
	bourse, kubeBin := programs(t)
	w := startWorld(t, keepDir(t), bourse, kubeBin, worldOptions{
		// The bounds of a WAN: on a busy machine an election for nothing would look like a fault that we did not make.
		serverArgs: []string{"--stale-after", staleLimit.String(), "--raft-heartbeat", "1s", "--raft-election", "1s", "--raft-lease", "800ms"},
		agentArgs:  []string{"--heartbeat-every", beat.String(), "--blueprint-namespaces", shop, "--blueprint-registries", "docker.io"},
		prepare:    openShop,
	})
	s := &storeStory{world: w}
	for _, step := range []struct {
		name string
		run  func(*testing.T, *storeStory)
	}{
		{"agents may write Deployments in the consented namespace only", testBlueprintRights},
		{"three artifacts of seven instances become Running pods on three clusters", testStoreRuns},
		{"changes by hand are put right", testStoreDrift},
		{"deletion leaves nothing", testStoreDeleted},
		{"whatever dies at whichever step, it ends the same", testStoreSurvives},
		{"a dead cluster's instances run elsewhere, and no others move", testDeadCluster},
		{"a member that has not consented runs nothing and says so", testNoConsent},
	} {
		t.Run(step.name, func(t *testing.T) { step.run(t, s) })
	}
}

// openShop makes the namespace that blueprints may use, as the agent's README says.
func openShop(ctx context.Context, c *kube.Cluster) error {
	for _, args := range [][]string{
		{"create", "namespace", shop},
		{"label", "namespace", shop, "pod-security.kubernetes.io/enforce=restricted"},
		{"apply", "-n", shop, "-f", filepath.Join(agentManifests, "blueprints", "namespace-rights.yaml")},
		{"apply", "--dry-run=server", "-f", filepath.Join(agentManifests, "blueprints", "cluster-rights.yaml")},
	} {
		if _, err := c.Kubectl(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// storeStory is the world, and where the store ran when nothing was broken.
type storeStory struct {
	*world
	undisturbed placement
}

// live is a client of a node that runs.
func (s *storeStory) live() dynamic.Interface {
	for _, n := range s.exchange.nodes {
		if n.proc.Exited() == nil {
			return n.client
		}
	}
	return s.at(0) // it will say that it is gone
}

func (s *storeStory) apply(t *testing.T, ctx context.Context) {
	t.Helper()
	admin := s.as(t, ctx, "admin", 0)
	admin.namespace = shop
	admin.feed(t, ctx, store, "apply", "-f", "-")
}

func (s *storeStory) remove(t *testing.T, ctx context.Context) {
	t.Helper()
	admin := s.as(t, ctx, "admin", 0)
	admin.namespace = shop
	admin.run(t, ctx, "delete", "blueprint", "store", "--wait=false")
}

// runsOn says where the store runs on the clusters of those names, or why it does not run in full and in order.
func (s *storeStory) runsOn(ctx context.Context, names ...string) (placement, error) {
	b, err := read[blueprint](s.live().Resource(blueprintsKind).Namespace(shop).Get(ctx, "store", metav1.GetOptions{}))
	if err != nil {
		return nil, err
	}
	if b.Status.Phase != "Active" || b.Status.Ready != 3*storeInstances || b.Status.Desired != b.Status.Ready || b.Status.ObservedGeneration != b.Generation {
		return nil, fmt.Errorf("blueprint: %+v", b.Status)
	}
	told, err := getSlices(ctx, s.live(), shop)
	if err != nil {
		return nil, err
	}
	instructed, sums := placement{}, map[string]int32{}
	for _, slice := range told {
		if !slices.Contains(names, slice.Spec.ClusterID) {
			continue // on its way out, once its cluster is back
		}
		if slice.Status.State != "Active" || slice.Status.ReadyInstances != slice.Spec.Instances {
			return nil, fmt.Errorf("slice %s", slice)
		}
		instructed[slice.Spec.Slice+" on "+slice.Spec.ClusterID] = slice.Spec.Instances
		sums[slice.Spec.Slice] += slice.Spec.Instances
	}
	if want := map[string]int32{"web": storeInstances, "api": storeInstances, "queue": storeInstances}; !maps.Equal(sums, want) {
		return nil, fmt.Errorf("slices add up to %v, want %v", sums, want)
	}
	for _, name := range names {
		if err := s.runsAs(ctx, s.members[name], instructed); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return instructed, nil
}

var sliceOfImage = map[string]string{"docker.io/library/nginx:1.29": "web", "docker.io/acme/api:2": "api", "docker.io/library/redis:8": "queue"}

// runsAs compares the pods of a member with the instructions, and its advertisement with both.
func (s *storeStory) runsAs(ctx context.Context, m *member, instructed placement) error {
	pods, err := m.instances(ctx, shop)
	if err != nil {
		return err
	}
	counted, want, held := placement{}, placement{}, amounts{}
	for i := range pods {
		if !running(&pods[i]) {
			return fmt.Errorf("pod %s is %s", pods[i].Name, pods[i].Status.Phase)
		}
		counted[sliceOfImage[pods[i].Spec.Containers[0].Image]]++
	}
	for name, one := range storeTakes {
		if n := instructed[name+" on "+m.name]; n > 0 {
			want[name] = n
			held = held.plus(amounts{one.cpu * int64(n), one.memory * int64(n)})
		}
	}
	if !maps.Equal(counted, want) {
		return fmt.Errorf("pods: %s; slices: %s", counted, want)
	}
	adv, err := getAdvertisement(ctx, s.live(), m.name)
	if err != nil {
		return err
	}
	// What runs inside the holds leaves allocated: it is not counted twice.
	if got := amountsOf(adv.Spec.Resources.Allocated); adv.held() != held || got != (amounts{}) || adv.available() != capacity.minus(held) {
		return fmt.Errorf("advertised: reserved %s, allocated %s, available %s; held is %s of %s", adv.held(), got, adv.available(), held, capacity)
	}
	return nil
}

// gone says what is left of blueprints on all clusters and at the exchange.
func (s *storeStory) gone(ctx context.Context) error {
	_, err := s.live().Resource(blueprintsKind).Namespace(shop).Get(ctx, "store", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("blueprint: %w", err)
	}
	left, err := getSlices(ctx, s.live(), shop)
	if err != nil || len(left) > 0 {
		return errors.Join(err, fmt.Errorf("%d slices: %v", len(left), left))
	}
	for name, m := range s.members {
		pods, err := m.instances(ctx, shop)
		if err != nil || len(pods) > 0 {
			return errors.Join(err, fmt.Errorf("%s: %d pods", name, len(pods)))
		}
		deployments, err := m.cluster.Client().AppsV1().Deployments(shop).List(ctx, metav1.ListOptions{})
		if err != nil || len(deployments.Items) > 0 {
			return errors.Join(err, fmt.Errorf("%s: deployments: %v", name, deployments))
		}
		sets, err := m.cluster.Client().AppsV1().ReplicaSets(shop).List(ctx, metav1.ListOptions{})
		if err != nil || len(sets.Items) > 0 {
			return errors.Join(err, fmt.Errorf("%s: replicasets: %v", name, sets))
		}
		adv, err := getAdvertisement(ctx, s.live(), name)
		if err != nil || adv.held() != (amounts{}) || adv.available() != capacity {
			return errors.Join(err, fmt.Errorf("%s: reserved %s, available %s", name, adv.held(), adv.available()))
		}
	}
	return nil
}

var everywhere = []string{"berlin", "paris", "rome"}

// convergeLimit is patience for three clusters and a fault.
const convergeLimit = 90 * time.Second

func (s *storeStory) untilRuns(t *testing.T, ctx context.Context, on ...string) placement {
	t.Helper()
	var found placement
	must(t, waitFor(ctx, convergeLimit, "the store to run in full", func(ctx context.Context) (err error) {
		found, err = s.runsOn(ctx, on...)
		return err
	}))
	return found
}

func (s *storeStory) untilGone(t *testing.T, ctx context.Context) {
	t.Helper()
	must(t, waitFor(ctx, convergeLimit, "nothing to be left of the store", s.gone))
}

func testBlueprintRights(t *testing.T, s *storeStory) {
	ctx := subtestContext(t)
	m := s.members["rome"]
	account := "--as=system:serviceaccount:" + agentNamespace + ":" + agentAccount
	for _, c := range []struct{ verb, resource, namespace, want string }{
		{"create", "deployments", shop, "yes"},
		{"delete", "deployments", shop, "yes"},
		{"create", "deployments", "default", "no"},
		{"create", "pods", shop, "no"},
		{"get", "secrets", shop, "no"},
		{"create", "rolebindings", shop, "no"},
	} {
		got, err := m.cluster.Kubectl(ctx, "auth", "can-i", c.verb, c.resource, "-n", c.namespace, account)
		if want := c.want + "\n"; got != want {
			t.Errorf("may the agent %s %s in %s? Got %q (%v), want %s", c.verb, c.resource, c.namespace, got, err, c.want)
		}
	}
}

func testStoreRuns(t *testing.T, s *storeStory) {
	ctx := subtestContext(t)
	began := time.Now()
	s.apply(t, ctx)
	s.undisturbed = s.untilRuns(t, ctx, everywhere...)
	t.Logf("%d pods Running after %.1f s: %s", 3*storeInstances, time.Since(began).Seconds(), s.undisturbed)
	for _, name := range everywhere {
		pods, err := s.members[name].instances(ctx, shop)
		must(t, err)
		for i := range pods {
			checkRestricted(t, &pods[i])
		}
	}
	admin := s.as(t, ctx, "admin", 1)
	admin.namespace = shop
	contains(t, "kubectl get slices", admin.run(t, ctx, "get", "slices"), "ARTIFACT", "CLUSTER", "DESIRED", "READY", "STATE", "AGE", "nginx:1.29", "rome", "Active")
	contains(t, "kubectl describe blueprint", admin.run(t, ctx, "describe", "blueprint", "store"), "rome", "paris", "berlin", "Reason:", "Events:", "21 instances are ready")
}

func checkRestricted(t *testing.T, p *corev1.Pod) {
	t.Helper()
	c := &p.Spec.Containers[0]
	if p.Spec.AutomountServiceAccountToken == nil || *p.Spec.AutomountServiceAccountToken || len(p.Spec.Volumes) > 0 ||
		c.SecurityContext == nil || c.SecurityContext.AllowPrivilegeEscalation == nil || *c.SecurityContext.AllowPrivilegeEscalation {
		t.Errorf("pod %s is not restricted, or has a token: %+v", p.Name, p.Spec)
	}
}

func testStoreDrift(t *testing.T, s *storeStory) {
	ctx := subtestContext(t)
	rome := s.members["rome"].cluster
	list, err := rome.Client().AppsV1().Deployments(shop).List(ctx, metav1.ListOptions{})
	must(t, err)
	if len(list.Items) < 2 {
		t.Fatalf("%d deployments on rome, want some", len(list.Items))
	}
	for _, args := range [][]string{
		{"scale", "deployment", list.Items[0].Name, "--replicas=0", "-n", shop},
		{"set", "image", "deployment/" + list.Items[0].Name, "instance=evil:1", "-n", shop},
		{"delete", "deployment", list.Items[1].Name, "-n", shop},
	} {
		_, err := rome.Kubectl(ctx, args...)
		must(t, err)
	}
	told, err := getSlices(ctx, s.live(), shop)
	must(t, err)
	must(t, s.live().Resource(slicesKind).Namespace(shop).Delete(ctx, told[0].Name, metav1.DeleteOptions{}))
	if now := s.untilRuns(t, ctx, everywhere...); !maps.Equal(now, s.undisturbed) {
		t.Errorf("it runs as %s, want %s", now, s.undisturbed)
	}
}

func testStoreDeleted(t *testing.T, s *storeStory) {
	ctx := subtestContext(t)
	began := time.Now()
	s.remove(t, ctx)
	s.untilGone(t, ctx)
	t.Logf("nothing is left %.1f s after the deletion", time.Since(began).Seconds())
}
