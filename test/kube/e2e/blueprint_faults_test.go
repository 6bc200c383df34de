package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bourse-dev/bourse/test/kube"
)

// fault kills something and has it start again.
type fault struct {
	name string
	hit  func(t *testing.T, ctx context.Context, s *storeStory)
}

var faults = []fault{
	{"the leader", func(t *testing.T, ctx context.Context, s *storeStory) {
		leader, err := s.exchange.leader(ctx)
		must(t, err)
		leader.proc.Kill()
		must(t, s.exchange.start(leader))
		must(t, s.exchange.waitReady(ctx))
	}},
	{"an agent", func(t *testing.T, ctx context.Context, s *storeStory) {
		paris := s.members["paris"]
		paris.proc.Kill()
		must(t, s.exchange.startAgent(ctx, paris))
	}},
	{"a cluster's API server", func(t *testing.T, ctx context.Context, s *storeStory) {
		rome := s.members["rome"].cluster
		must(t, rome.Kill(kube.APIServer))
		must(t, rome.Revive(ctx, kube.APIServer))
	}},
}

var errNotThere = errors.New("not there yet")

// moments of a blueprint's way up at which something dies.
var moments = []struct {
	name string
	come func(ctx context.Context, s *storeStory) error
}{
	{"the first slice is stored", func(ctx context.Context, s *storeStory) error {
		told, err := getSlices(ctx, s.live(), shop)
		if err == nil && len(told) == 0 {
			err = errNotThere
		}
		return err
	}},
	{"the first pod runs", func(ctx context.Context, s *storeStory) error { return s.countRunning(ctx, 1) }},
	{"half of the pods run", func(ctx context.Context, s *storeStory) error { return s.countRunning(ctx, 3*storeInstances/2) }},
}

func (s *storeStory) countRunning(ctx context.Context, least int) error {
	n := 0
	for _, m := range s.members {
		pods, err := m.instances(ctx, shop)
		if err != nil {
			return err
		}
		for i := range pods {
			if running(&pods[i]) {
				n++
			}
		}
	}
	if n < least {
		return fmt.Errorf("%d of %d: %w", n, least, errNotThere)
	}
	return nil
}

func testStoreSurvives(t *testing.T, s *storeStory) {
	for i, f := range faults {
		for j, moment := range moments {
			t.Run(f.name+", when "+moment.name, func(t *testing.T) {
				ctx := subtestContext(t)
				s.apply(t, ctx)
				eventually(t, ctx, moment.name, func(ctx context.Context) error { return moment.come(ctx, s) })
				f.hit(t, ctx, s)
				hit := time.Now()
				if now := s.untilRuns(t, ctx, everywhere...); !maps.Equal(now, s.undisturbed) {
					t.Errorf("it runs as %s, want %s", now, s.undisturbed)
				}
				t.Logf("runs in full %.1f s after the fault", time.Since(hit).Seconds())
				s.remove(t, ctx)
				if i == j { // each dies once on the way down too
					f.hit(t, ctx, s)
				}
				s.untilGone(t, ctx)
			})
		}
	}
}

// testDeadCluster takes berlin away altogether, and gives it back.
func testDeadCluster(t *testing.T, s *storeStory) {
	ctx := subtestContext(t)
	s.apply(t, ctx)
	s.untilRuns(t, ctx, everywhere...)
	others := []string{"paris", "rome"}
	before := s.podNames(t, ctx, others...)
	berlin := s.members["berlin"]
	lost := len(s.podNames(t, ctx, "berlin"))

	berlin.proc.Kill()
	must(t, berlin.cluster.Kill(kube.APIServer))
	died := time.Now()
	s.untilRuns(t, ctx, others...)
	took := time.Since(died)
	t.Logf("%d instances of berlin run elsewhere %.1f s after its death; the Stale limit is %s", lost, took.Seconds(), staleLimit)
	if took > staleLimit+lossLimit {
		t.Errorf("it took %s, want within %s", took, staleLimit+lossLimit)
	}
	after := s.podNames(t, ctx, others...)
	if moved := without(before, after); len(moved) > 0 || len(after)-len(before) != lost {
		t.Errorf("%d instances were lost; %d came to the others, which lost %v", lost, len(after)-len(before), moved)
	}

	must(t, berlin.cluster.Revive(ctx, kube.APIServer))
	must(t, s.exchange.startAgent(ctx, berlin))
	must(t, waitFor(ctx, convergeLimit, "berlin to be swept", func(ctx context.Context) error {
		pods, err := berlin.instances(ctx, shop)
		if err != nil || len(pods) > 0 {
			return errors.Join(err, fmt.Errorf("%d pods", len(pods)))
		}
		told, err := getSlices(ctx, s.live(), shop)
		if slices.ContainsFunc(told, func(s *slice) bool { return s.Spec.ClusterID == "berlin" }) {
			return fmt.Errorf("its slices are there")
		}
		return err
	}))
	s.untilRuns(t, ctx, everywhere...)
	if moved := without(after, s.podNames(t, ctx, others...)); len(moved) > 0 {
		t.Errorf("a cluster that is back moved %v", moved)
	}
	s.remove(t, ctx)
	s.untilGone(t, ctx)
}

func (s *storeStory) podNames(t *testing.T, ctx context.Context, on ...string) (names []string) {
	t.Helper()
	for _, name := range on {
		pods, err := s.members[name].instances(ctx, shop)
		must(t, err)
		for i := range pods {
			names = append(names, name+"/"+pods[i].Name)
		}
	}
	return names
}

// without are those of list that others lacks.
func without(list, others []string) (missing []string) {
	for _, v := range list {
		if !slices.Contains(others, v) {
			missing = append(missing, v)
		}
	}
	return missing
}

const labStore = `apiVersion: broker.fluidos.eu/v1alpha1
kind: Blueprint
metadata: {name: trial}
spec:
  slices:
  - {name: web, artifact: "nginx:1.29", instances: 2, resources: {cpu: 100m, memory: 64Mi}, clusterSelector: {matchLabels: {tier: gold}}}
`

// testNoConsent asks for a namespace that nobody opened, of members that opened another.
func testNoConsent(t *testing.T, s *storeStory) {
	ctx := subtestContext(t)
	admin := s.as(t, ctx, "admin", 2)
	admin.namespace = "lab"
	admin.feed(t, ctx, labStore, "apply", "-f", "-")
	var refused []*slice
	eventually(t, ctx, "rome and paris to refuse", func(ctx context.Context) (err error) {
		if refused, err = getSlices(ctx, s.live(), "lab"); err != nil {
			return err
		}
		if len(refused) != 2 {
			return fmt.Errorf("%d slices: %v", len(refused), refused)
		}
		for _, slice := range refused {
			if slice.Status.State != "Failed" || slice.condition("Refused") != "True" || !strings.Contains(slice.Status.Message, "--blueprint-namespaces") {
				return fmt.Errorf("slice %s", slice)
			}
		}
		return nil
	})
	t.Log(refused[0])
	for _, name := range everywhere {
		list, err := s.members[name].cluster.Client().AppsV1().Deployments("").List(ctx, metav1.ListOptions{LabelSelector: "broker.fluidos.eu/blueprint"})
		must(t, err)
		if len(list.Items) > 0 {
			t.Errorf("%s runs %d deployments", name, len(list.Items))
		}
	}
	b, err := read[blueprint](s.live().Resource(blueprintsKind).Namespace("lab").Get(ctx, "trial", metav1.GetOptions{}))
	must(t, err)
	if b.Status.Phase == "Active" || b.Status.Ready != 0 {
		t.Errorf("the blueprint is %+v", b.Status)
	}
	admin.run(t, ctx, "delete", "blueprint", "trial")
	must(t, waitFor(ctx, convergeLimit, "the refused slices to go", func(ctx context.Context) error {
		left, err := getSlices(ctx, s.live(), "lab")
		if err != nil || len(left) > 0 {
			return errors.Join(err, fmt.Errorf("%d slices: %v", len(left), left))
		}
		return nil
	}))
}
