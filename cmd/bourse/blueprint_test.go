package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"sigs.k8s.io/yaml"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/server"
	"github.com/bourse-dev/bourse/server/servertest"
	"github.com/bourse-dev/bourse/store"
)

// federation is a whole exchange behind a kubeconfig, with clusters whose agents do as they are told.
type federation struct {
	*servertest.Exchange
	t          *testing.T
	kubeconfig string
	slices     *store.Storage
}

func newFederation(t *testing.T, clusters ...string) *federation {
	t.Helper()
	f := &federation{Exchange: servertest.NewExchange(), t: t}
	f.slices = store.NewStorage(f.DB, f, store.SliceKind())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s, err := server.New(server.Config{
		Listener: listener, DB: f.DB, Writer: f, Admin: f, Ready: func() error { return nil },
		Blueprints: servertest.Blueprints, Logger: hclog.NewNullLogger(), Registry: prometheus.NewRegistry(),
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	f.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(f.kubeconfig, fmt.Appendf(nil, "apiVersion: v1\nkind: Config\ncurrent-context: c\n"+
		"contexts: [{name: c, context: {cluster: c, user: u, namespace: rome}}]\nusers: [{name: u, user: {}}]\n"+
		"clusters: [{name: c, cluster: {server: \"http://%s\"}}]\n", listener.Addr()), 0o600))
	for i, id := range clusters {
		f.join(id, byte(i+1))
	}
	return f
}

// join makes a cluster of four cores at 0.50 that runs blueprints.
func (f *federation) join(id string, session byte) {
	f.t.Helper()
	advertisements := store.NewStorage(f.DB, f, store.AdvertisementKind())
	a := &broker.ClusterAdvertisement{
		ObjectMeta: metav1.ObjectMeta{Name: broker.AdvertisementName(id), CreationTimestamp: metav1.Now()},
		Spec:       broker.ClusterAdvertisementSpec{ClusterID: id, Cost: map[string]string{"cpu": "0.50"}},
	}
	meta.SetStatusCondition(&a.Status.Conditions, metav1.Condition{Type: broker.ConditionBlueprints, Status: metav1.ConditionTrue, Reason: "Allowed"})
	key := broker.AdvertisementKey(id)
	require.NoError(f.t, advertisements.Create(f.t.Context(), "/"+key, a, nil, 0))
	report := fsm.Report{Account: key, Session: [16]byte{session}, Open: true}
	opened, err := f.Report(f.t.Context(), report)
	require.NoError(f.t, err)
	report.Open, report.Epoch, report.Sequence = false, opened.Epoch, 1
	report.Facts.Allocatable = allocation.NewAmounts(allocation.Amount{Resource: "cpu", Value: 4000})
	_, err = f.Report(f.t.Context(), report)
	require.NoError(f.t, err)
}

// obey makes the agents do what they were told, until nobody is told anything new.
func (f *federation) obey() {
	f.t.Helper()
	for before := fsm.Revision(0); before != f.DB.State().Revision(); {
		before = f.DB.State().Revision()
		for row := range f.DB.State().Scan(broker.SlicesPrefix) {
			require.NoError(f.t, f.slices.GuaranteedUpdate(f.t.Context(), "/"+row.Key, &broker.Slice{}, false, nil,
				storage.SimpleUpdate(func(object runtime.Object) (runtime.Object, error) {
					s := object.(*broker.Slice)
					s.Status.ObservedGeneration = s.Generation
					s.Status.State, s.Status.ReadyInstances = broker.SliceLoaded, 0
					if s.Spec.Command == broker.SliceActivate {
						s.Status.State, s.Status.ReadyInstances = broker.SliceActive, s.Spec.Instances
					}
					return s, nil
				}), nil))
		}
	}
}

// write stores a blueprint as kubectl would have.
func (f *federation) write(artifact string, instances int) string {
	f.t.Helper()
	return f.file(fmt.Sprintf("apiVersion: broker.fluidos.eu/v1alpha1\nkind: Blueprint\nmetadata: {name: shop}\n"+
		"spec:\n  strategy: Spread\n  slices:\n  - {name: web, artifact: %q, instances: %d, resources: {cpu: 500m}}\n", artifact, instances))
}

func (f *federation) file(text string) string {
	path := filepath.Join(f.t.TempDir(), "blueprint.yaml")
	require.NoError(f.t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// apply makes or changes rome/shop.
func (f *federation) apply(change func(*broker.Blueprint)) *broker.Blueprint {
	f.t.Helper()
	blueprints := store.NewStorage(f.DB, f, store.BlueprintKind())
	key, out := "/"+broker.BlueprintKey("rome", "shop"), &broker.Blueprint{}
	require.NoError(f.t, blueprints.GuaranteedUpdate(f.t.Context(), key, out, true, nil,
		storage.SimpleUpdate(func(object runtime.Object) (runtime.Object, error) {
			b := object.(*broker.Blueprint)
			if b.Name == "" {
				b.Name, b.Namespace, b.UID, b.CreationTimestamp = "shop", "rome", "u-shop", metav1.Now()
			}
			b.Generation++
			change(b)
			return b, nil
		}), nil))
	return out
}

func shopOf(artifact string, instances int32) func(*broker.Blueprint) {
	return func(b *broker.Blueprint) {
		b.Spec = broker.BlueprintSpec{Strategy: broker.StrategySpread, Slices: []broker.BlueprintSlice{{
			Name: "web", Artifact: artifact, Instances: &instances, Resources: corev1.ResourceList{"cpu": resource.MustParse("1")},
		}}}
	}
}

func (f *federation) runs(args ...string) (code int, stdout, stderr string) {
	f.t.Helper()
	return runs(f.t, append(args, "--kubeconfig", f.kubeconfig)...)
}

func TestAPlanSaysWhatWouldChangeAndChangesNothing(t *testing.T) {
	t.Parallel()
	f := newFederation(t, "berlin", "paris")
	before := f.DB.State().Hash()
	code, stdout, stderr := f.runs("blueprint", "plan", "-f", f.write("nginx:1.29", 4))
	require.Equal(t, exitDone, code, stderr)
	require.Equal(t, before, f.DB.State().Hash())
	for _, line := range []string{"+   web     berlin    0 -> 2      0.50", "+   web     paris     0 -> 2      0.50", "Instances: 4 more, 0 fewer."} {
		require.Contains(t, stdout, line)
	}
	f.apply(shopOf("nginx:1.28", 2))
	f.obey()

	code, stdout, _ = f.runs("blueprint", "plan", "-f", f.write("nginx:1.29", 2), "-o", "json")
	require.Equal(t, exitDone, code)
	var got plan
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	require.True(t, got.Fits)
	require.Equal(t, []string{"shop", "rome"}, []string{got.Name, got.Namespace})
	require.Len(t, got.Changes, 2)
	require.Equal(t, "~", got.Changes[0].Action)
	require.Contains(t, got.Changes[0].Reason, "nginx:1.28")

	code, stdout, _ = f.runs("blueprint", "plan", "-f", f.write("nginx:1.29", 4))
	require.Equal(t, exitDone, code)
	require.Contains(t, stdout, "Clusters with another version or size: 2.")
	require.Contains(t, stdout, "then most left; nginx:1.28 becomes nginx:1.29; cpu 1 becomes 500m")
}

func TestAPlanThatDoesNotFitIsARefusal(t *testing.T) {
	t.Parallel()
	f := newFederation(t, "berlin")
	code, stdout, stderr := f.runs("blueprint", "plan", "-f", f.write("nginx:1.29", 40))
	require.Equal(t, exitRefused, code)
	require.Contains(t, stdout, "0 -> 8", "what fits is shown all the same")
	require.Contains(t, stdout, "Warning: spec.slices[0] (web): would not fit")
	require.Contains(t, stderr, "32 of 40 instances")
	text, err := os.ReadFile(f.write("nginx:1.29", 40))
	require.NoError(t, err)
	strict := f.file(strings.Replace(string(text), "strategy: Spread", "admission: Strict", 1))
	code, _, stderr = f.runs("blueprint", "plan", "-f", strict)
	require.Equal(t, exitRefused, code)
	require.Contains(t, stderr, "spec.slices[0].instances")
}

func TestEveryDocumentOfAFileIsPlanned(t *testing.T) {
	t.Parallel()
	f := newFederation(t, "berlin")
	document := func(name string, instances int) string {
		text, err := os.ReadFile(f.write("nginx:1.29", instances))
		require.NoError(t, err)
		return strings.Replace(string(text), "name: shop", "name: "+name, 1)
	}
	between := "---\n# the next one\n---\n"
	both := f.file("---\n" + document("shop", 2) + between + document("lab", 3))
	code, stdout, stderr := f.runs("blueprint", "plan", "-f", both)
	require.Equal(t, exitDone, code, stderr)
	shop, lab := strings.Index(stdout, "rome/shop (dry run"), strings.Index(stdout, "rome/lab (dry run")
	require.True(t, 0 <= shop && shop < lab, stdout)
	require.Contains(t, stdout[:lab], "0 -> 2")
	require.Contains(t, stdout[lab:], "0 -> 3")

	code, stdout, _ = f.runs("blueprint", "plan", "-f", both, "-o", "json")
	require.Equal(t, exitDone, code)
	decoder := json.NewDecoder(strings.NewReader(stdout))
	for _, name := range []string{"shop", "lab"} {
		var got plan
		require.NoError(t, decoder.Decode(&got))
		require.Equal(t, name, got.Name)
	}

	code, stdout, stderr = f.runs("blueprint", "plan", "-f", f.file(document("huge", 40)+between+document("lab", 3)))
	require.Equal(t, exitRefused, code)
	require.Contains(t, stderr, "rome/huge would not fit now")
	require.Contains(t, stdout, "0 -> 3", "the next one is planned all the same")
	object := func(name string) string {
		text, err := yaml.YAMLToJSON([]byte(document(name, 1)))
		require.NoError(t, err)
		return string(text)
	}
	code, stdout, stderr = f.runs("blueprint", "plan", "-f", f.file(object("one")+"\n"+object("two")))
	require.Equal(t, exitDone, code, stderr)
	require.Contains(t, stdout, "rome/two (dry run", "JSON objects one after another, as kubectl reads them")
	code, stdout, stderr = f.runs("blueprint", "plan", "-f", f.file(document("lab", 3)+between+"kind: Pod\n"))
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "blueprint.yaml, document 3: apiVersion <nil>, kind Pod")
	require.Empty(t, stdout)
}

func TestAFileThatIsNoBlueprintIsAUsageError(t *testing.T) {
	t.Parallel()
	f := newFederation(t)
	good, err := os.ReadFile(f.write("nginx:1.29", 1))
	require.NoError(t, err)
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"no file named":         {nil, exitUsage, "--filename"},
		"no such file":          {[]string{"-f", filepath.Join(t.TempDir(), "none.yaml")}, exitUsage, "none.yaml"},
		"only comments":         {[]string{"-f", f.file("# nothing\n---\n")}, exitUsage, "no blueprint is in it"},
		"too many":              {[]string{"-f", f.file(strings.Repeat(string(good)+"---\n", maxManifests+1))}, exitUsage, "at most 64"},
		"not YAML":              {[]string{"-f", f.file("{")}, exitUsage, "blueprint.yaml"},
		"another kind":          {[]string{"-f", f.file("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n")}, exitUsage, "Pod"},
		"without a name":        {[]string{"-f", f.file(strings.Replace(string(good), "name: shop", "", 1))}, exitUsage, "metadata.name"},
		"two namespaces":        {[]string{"-n", "oslo", "-f", f.file(strings.Replace(string(good), "name: shop", "name: shop, namespace: rome", 1))}, exitUsage, `"oslo"`},
		"as long as a novel":    {[]string{"-f", f.file("kind: " + strings.Repeat("x", maxManifestBytes+1))}, exitUsage, "larger"},
		"an unknown field":      {[]string{"-f", f.file(string(good) + "  colour: red\n")}, exitFailed, "spec.colour"},
		"a bad artifact":        {[]string{"-f", f.write("Nginx", 1)}, exitRefused, "spec.slices[0].artifact"},
		"a quantity that isn't": {[]string{"-f", f.file(strings.Replace(string(good), "500m", "half", 1))}, exitFailed, "spec.slices[0].resources.cpu"},
	} {
		code, _, stderr := f.runs(append([]string{"blueprint", "plan"}, c.args...)...)
		require.Equal(t, c.code, code, "%s: %s", name, stderr)
		require.Contains(t, stderr, c.says, name)
	}
}

func TestStatusShowsWhereInstancesRunAndWhy(t *testing.T) {
	t.Parallel()
	f := newFederation(t, "berlin", "paris")
	f.apply(shopOf("nginx:1.29", 3))
	f.obey()
	code, stdout, stderr := f.runs("blueprint", "status", "shop")
	require.Equal(t, exitDone, code, stderr)
	for _, words := range []string{"Active", "####################  3 desired, 3 placed, 3 ready", "berlin", "paris", "nginx:1.29", "per hour", "GENERATION", "web=nginx:1.29"} {
		require.Contains(t, stdout, words)
	}
	code, stdout, _ = f.runs("blueprint", "status", "shop", "-o", "json")
	require.Equal(t, exitDone, code)
	var b broker.Blueprint
	require.NoError(t, json.Unmarshal([]byte(stdout), &b))
	require.Equal(t, broker.BlueprintActive, b.Status.Phase)
	require.NotEmpty(t, b.Status.Slices[0].Clusters[0].Reason)
	code, _, stderr = f.runs("blueprint", "status", "none")
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, `"none" not found`)
}

func TestStatusFollowsABlueprintUntilItIsActive(t *testing.T) {
	t.Parallel()
	f := newFederation(t, "berlin")
	f.apply(shopOf("nginx:1.29", 2))
	lines := make(lineByLine, 100)
	ended := make(chan int, 1)
	go func() {
		ended <- run(t.Context(), []string{"blueprint", "status", "shop", "--watch", "--kubeconfig", f.kubeconfig}, lines, lines)
	}()
	require.Contains(t, <-lines, "0 of 2 ready")
	f.obey()
	require.Equal(t, exitDone, <-ended)
	last := ""
	for len(lines) > 0 {
		last = <-lines
	}
	require.Contains(t, last, "Active  2 of 2 ready")

	f.apply(shopOf("nginx:1.29", 3)) // nobody obeys
	code, _, stderr := f.runs("blueprint", "status", "shop", "-w", "--timeout", "300ms")
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "not Active after 300ms")
}

func TestWaitingEndsWhereTheVersionWasTakenBack(t *testing.T) {
	t.Parallel()
	b := &broker.Blueprint{}
	b.Generation, b.Status.ObservedGeneration, b.Status.Phase = 3, 3, broker.BlueprintDegraded
	b.Status.RolledBack = &broker.BlueprintRollback{Generation: 2, Slice: "web", Artifact: "nginx:1.28", ClusterID: "berlin"}
	done, err := hasCome(b)
	require.False(t, done)
	require.NoError(t, err, "it was another version")
	b.Status.RolledBack.Generation = 3
	_, err = hasCome(b)
	require.EqualError(t, err, "taken back: generation 3: nginx:1.28 of slice web did not get ready on berlin")
}

// lineByLine is a writer whose writes can be waited for.
type lineByLine chan string

func (l lineByLine) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

func TestRollbackGivesTheSpecItsEarlierArtifacts(t *testing.T) {
	t.Parallel()
	f := newFederation(t, "berlin")
	f.apply(shopOf("nginx:1.27", 2))
	code, _, stderr := f.runs("blueprint", "rollback", "shop")
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "was ever ready")
	for _, artifact := range []string{"nginx:1.27", "nginx:1.28", "nginx:1.29"} {
		f.apply(shopOf(artifact, 2))
		f.obey()
	}
	stored := func() *broker.Blueprint {
		return store.BlueprintOf(f.DB.State().Row(broker.BlueprintKey("rome", "shop")))
	}
	require.Equal(t, broker.BlueprintActive, stored().Status.Phase)

	code, _, stderr = f.runs("blueprint", "rollback", "shop", "--to", "99")
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "generation 99 is not in the history")

	code, _, stderr = f.runs("blueprint", "rollback", "shop", "--to", "0")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "--to is 0")

	code, stdout, stderr := f.runs("blueprint", "rollback", "shop", "-o", "json")
	require.Equal(t, exitDone, code, stderr)
	var got rollback
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	require.Equal(t, []artifactChange{{"web", "nginx:1.29", "nginx:1.28"}}, got.Changes)
	require.Equal(t, "nginx:1.28", stored().Spec.Slices[0].Artifact)
	require.EqualValues(t, 2, *stored().Spec.Slices[0].Instances)
	require.Equal(t, stored().Generation, got.Generation)

	code, stdout, stderr = f.runs("blueprint", "rollback", "shop", "--to", "2")
	require.Equal(t, exitDone, code, stderr)
	require.Contains(t, stdout, "generation 2 again")
	require.Equal(t, "nginx:1.27", stored().Spec.Slices[0].Artifact)
	code, stdout, _ = f.runs("blueprint", "rollback", "shop", "--to", "2")
	require.Equal(t, exitDone, code)
	require.Contains(t, stdout, "already")
}
