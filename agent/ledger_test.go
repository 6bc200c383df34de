package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// world is the model: the objects as they are, counted anew each time.
type world struct {
	nodes map[string]*corev1.Node
	pods  map[string]*corev1.Pod
	holds map[string]hold
}

func (w world) count() facts {
	sums := [3]map[string]int64{{}, {}, {}}
	used := map[hold]map[string]int64{}
	for _, n := range w.nodes {
		if !usable(n) {
			continue
		}
		for name, q := range n.Status.Allocatable {
			have, _ := broker.AmountOf(string(name), q, false)
			requested := int64(0)
			for _, p := range w.pods {
				if p.Spec.NodeName == n.Name && occupies(p) {
					requested += effectiveRequests(p).Get(string(name))
					if h := w.holds[workloadOf(p)]; h.fence > 0 {
						if used[h] == nil {
							used[h] = map[string]int64{}
						}
						used[h][string(name)] += effectiveRequests(p).Get(string(name))
					}
				}
			}
			sums[0][string(name)] += have
			sums[1][string(name)] += requested
			sums[2][string(name)] = max(sums[2][string(name)], have-requested)
		}
	}
	vector := func(sum map[string]int64) allocation.Amounts {
		var out []allocation.Amount
		for name, v := range sum {
			out = append(out, allocation.Amount{Resource: name, Value: v})
		}
		return allocation.NewAmounts(out...)
	}
	var use []holdUse
	for _, h := range slices.SortedFunc(maps.Keys(used), func(a, b hold) int { return strings.Compare(a.name, b.name) }) {
		if sum := vector(used[h]); len(sum) > 0 {
			use = append(use, holdUse{h, sum})
		}
	}
	return facts{vector(sums[0]), vector(sums[1]), vector(sums[2]), use}
}

func drawNode(t *rapid.T, name string) *corev1.Node {
	n := readyNode(name)
	n.Status.Allocatable = list("cpu", rapid.SampledFrom([]string{"1", "3900m", "16"}).Draw(t, "cpu"),
		"memory", rapid.SampledFrom([]string{"512Mi", "64Gi"}).Draw(t, "memory"))
	if rapid.Bool().Draw(t, "gpu") {
		n.Status.Allocatable["nvidia.com/gpu"] = *quantity("2")
	}
	n.Spec.Unschedulable = rapid.IntRange(0, 3).Draw(t, "cordoned") == 0
	return n
}

func drawPod(t *rapid.T, name string) *corev1.Pod {
	node := rapid.SampledFrom([]string{"", "a", "b", "c", "d"}).Draw(t, "node")
	p := podOn(node, name, container("cpu", rapid.SampledFrom([]string{"0", "1m", "300m", "2", "20"}).Draw(t, "cpu")))
	if rapid.Bool().Draw(t, "more") {
		p.Spec.InitContainers = []corev1.Container{container("memory", "100Mi"), sidecar("nvidia.com/gpu", "1")}
	}
	if slice := rapid.SampledFrom([]string{"", "", "web", "db"}).Draw(t, "slice"); slice != "" {
		instanceOf(p, slice)
	}
	p.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{corev1.PodRunning, corev1.PodPending, corev1.PodFailed}).Draw(t, "phase")
	return p
}

func TestTheLedgerEqualsAFullRecount(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := world{map[string]*corev1.Node{}, map[string]*corev1.Pod{}, map[string]hold{}}
		l := newLedger()
		nodes, pods := nodeStore{l}, podStore{l}
		nodeName := rapid.SampledFrom([]string{"a", "b", "c"})
		podName := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint("p", rapid.IntRange(0, 7).Draw(t, "n")) })
		ok := func(err error) { require.NoError(t, err) }
		t.Repeat(map[string]func(*rapid.T){
			"set node": func(t *rapid.T) {
				n := drawNode(t, nodeName.Draw(t, "name"))
				w.nodes[n.Name] = n
				ok(nodes.Update(n))
			},
			"drop node": func(t *rapid.T) {
				name := nodeName.Draw(t, "name")
				delete(w.nodes, name)
				ok(nodes.Delete(readyNode(name)))
			},
			"set pod": func(t *rapid.T) {
				p := drawPod(t, podName.Draw(t, "name"))
				w.pods[p.Name] = p
				ok(pods.Update(p))
			},
			"drop pod": func(t *rapid.T) {
				name := podName.Draw(t, "name")
				delete(w.pods, name)
				ok(pods.Delete(podOn("", name)))
			},
			"set hold": func(t *rapid.T) {
				name := rapid.SampledFrom([]string{"web", "db"}).Draw(t, "slice")
				h := hold{"default", name, rapid.Int64Range(0, 3).Draw(t, "fence")}
				w.holds[workloadKey("default", name)] = h
				l.setHold(workloadKey("default", name), h)
			},
			"drop hold": func(t *rapid.T) {
				key := workloadKey("default", rapid.SampledFrom([]string{"web", "db"}).Draw(t, "slice"))
				delete(w.holds, key)
				l.dropHold(key)
			},
			"list nodes again": func(t *rapid.T) {
				var all []any
				for _, name := range []string{"a", "b", "c"} {
					delete(w.nodes, name)
					if rapid.Bool().Draw(t, "there") {
						w.nodes[name] = drawNode(t, name)
						all = append(all, w.nodes[name])
					}
				}
				ok(nodes.Replace(all, "1"))
			},
			"list pods again": func(t *rapid.T) {
				var all []any
				for i := range 8 {
					name := fmt.Sprint("p", i)
					delete(w.pods, name)
					if rapid.Bool().Draw(t, "there") {
						w.pods[name] = drawPod(t, name)
						all = append(all, w.pods[name])
					}
				}
				ok(pods.Replace(all, "1"))
			},
			"": func(t *rapid.T) {
				want, got := w.count(), l.measure()
				require.True(t, want.equal(got), "want %+v\n got %+v", want, got)
				requireNothingKept(t, w, l)
			},
		})
	})
}

// requireNothingKept: what is gone leaves nothing behind.
func requireNothingKept(t *rapid.T, w world, l *ledger) {
	occupying := 0
	for _, p := range w.pods {
		if occupies(p) {
			occupying++
		}
	}
	require.Len(t, l.pods, occupying)
	for name, n := range l.nodes {
		require.True(t, n.known || n.pods > 0, name)
		require.GreaterOrEqual(t, n.pods, 0)
		if n.pods == 0 {
			require.Empty(t, n.requested, name)
			require.Empty(t, n.inside, name)
		}
	}
}

func TestAPodMayComeBeforeItsNode(t *testing.T) {
	t.Parallel()
	l := newLedger()
	require.NoError(t, podStore{l}.Add(podOn("a", "p", container("cpu", "1"))))
	require.Empty(t, l.measure().allocated)
	require.NoError(t, nodeStore{l}.Add(readyNode("a")))
	got := l.measure()
	require.Equal(t, int64(1000), got.allocated.Get("cpu"))
	require.Equal(t, int64(3000), got.largestFree.Get("cpu"))
	require.Equal(t, int64(109), got.largestFree.Get("pods"))
}

func TestNothingIsSyncedBeforeNodesAndPodsAreListed(t *testing.T) {
	t.Parallel()
	l := newLedger()
	synced := func() bool {
		select {
		case <-l.synced:
			return true
		default:
			return false
		}
	}
	require.NoError(t, podStore{l}.Replace(nil, "1"))
	require.False(t, synced())
	require.NoError(t, nodeStore{l}.Replace(nil, "1"))
	require.True(t, synced())
	require.NoError(t, nodeStore{l}.Replace(nil, "2"))
}

func TestAnEventThatChangesNoFigureWakesNobody(t *testing.T) {
	t.Parallel()
	l := newLedger()
	woken := func() bool {
		select {
		case <-l.changed:
			return true
		default:
			return false
		}
	}
	p := podOn("a", "p", container("cpu", "1"))
	require.NoError(t, nodeStore{l}.Add(readyNode("a")))
	require.NoError(t, podStore{l}.Add(p))
	require.True(t, woken())
	p.Status.Message, p.Labels = "started", map[string]string{"a": "b"}
	require.NoError(t, podStore{l}.Update(p))
	require.NoError(t, nodeStore{l}.Update(readyNode("a")))
	require.NoError(t, podStore{l}.Update(podOn("unknown", "q", container("cpu", "1"))))
	require.False(t, woken())
	require.NoError(t, podStore{l}.Delete(p))
	require.True(t, woken())
}

func TestAbsurdRequestsLeaveNoTraceOnceTheyAreGone(t *testing.T) {
	t.Parallel()
	l := newLedger()
	require.NoError(t, nodeStore{l}.Add(readyNode("a")))
	require.NoError(t, podStore{l}.Add(podOn("a", "small", container("cpu", "1"))))
	before := l.measure()
	for i := range 200 { // 200 times 2^56 is beyond an int64
		require.NoError(t, podStore{l}.Add(podOn("a", fmt.Sprint("huge", i), container("memory", "64Pi"))))
	}
	during := l.measure()
	require.Equal(t, allocation.MaxAmount, during.allocated.Get("memory"))
	require.Zero(t, during.largestFree.Get("memory"))
	for i := range 200 {
		require.NoError(t, podStore{l}.Delete(podOn("a", fmt.Sprint("huge", i))))
	}
	require.True(t, before.equal(l.measure()))
}

func TestAReportCarriesNoMoreResourcesThanTheExchangeTakes(t *testing.T) {
	t.Parallel()
	l := newLedger()
	n := readyNode("a")
	for i := range 2 * broker.MaxResources {
		n.Status.Allocatable[corev1.ResourceName(fmt.Sprintf("a.example/r%02d", i))] = *quantity("1")
	}
	require.NoError(t, nodeStore{l}.Add(n))
	report := l.measure().report()
	require.Len(t, report.Allocatable, broker.MaxResources)
	require.Contains(t, report.Allocatable, corev1.ResourceCPU)
	require.Contains(t, report.Allocatable, corev1.ResourceMemory)
	require.Contains(t, report.Allocatable, corev1.ResourcePods)
	report.Session = "2f1c5a52-31a3-4c8a-9d0e-0d8d3f0a6c11"
	require.Empty(t, broker.ValidateFactsReport(&report))
}

func TestWhatPodsInsideAHoldRequestIsReportedAsItsUse(t *testing.T) {
	t.Parallel()
	l := newLedger()
	require.NoError(t, nodeStore{l}.Add(readyNode("a")))
	require.NoError(t, podStore{l}.Add(podOn("a", "own", container("cpu", "1"))))
	require.NoError(t, podStore{l}.Add(instanceOf(podOn("a", "inside", container("cpu", "500m")), "web")))
	require.Empty(t, l.measure().use, "nothing is held yet")
	l.setHold("default/web", hold{"default", "web", 7})
	report := l.measure().report()
	require.Equal(t, "1500m", report.Allocated.Cpu().String(), "the exchange takes use off")
	require.Len(t, report.Use, 1)
	require.Equal(t, []any{broker.HolderSlice, "default", "web", int64(7)},
		[]any{report.Use[0].Kind, report.Use[0].Namespace, report.Use[0].Name, report.Use[0].Fence})
	require.Equal(t, "500m", report.Use[0].Used.Cpu().String())
	require.Equal(t, "1", report.Use[0].Used.Pods().String())
	report.Session = "2f1c5a52-31a3-4c8a-9d0e-0d8d3f0a6c11"
	require.Empty(t, broker.ValidateFactsReport(&report))

	before := l.measure()
	l.setHold("default/web", hold{"default", "web", 8})
	require.False(t, before.equal(l.measure()), "a new fence is news")
}

func BenchmarkPodEvent(b *testing.B) {
	for _, size := range []int{10, 1000} {
		b.Run(fmt.Sprint(size, " nodes"), func(b *testing.B) {
			l := newLedger()
			for i := range size {
				_ = nodeStore{l}.Add(readyNode(fmt.Sprint("n", i)))
				for j := range 30 {
					_ = podStore{l}.Add(podOn(fmt.Sprint("n", i), fmt.Sprint("p", i, "-", j), container("cpu", "100m", "memory", "1Gi")))
				}
			}
			p := podOn("n1", "one", container("cpu", "100m", "memory", "1Gi"))
			b.ReportAllocs()
			for b.Loop() {
				_ = podStore{l}.Add(p)
				_ = podStore{l}.Delete(p)
			}
		})
	}
}
