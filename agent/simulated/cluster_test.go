package simulated

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newCluster(t *testing.T, config Config) *Cluster {
	t.Helper()
	c, err := New(config)
	require.NoError(t, err)
	return c
}

func TestEveryObjectSaysThatItIsSimulated(t *testing.T) {
	t.Parallel()
	c := newCluster(t, Default("rome"))
	nodes, pods := list(t, c)
	require.Len(t, nodes, DefaultNodes)
	require.NotEmpty(t, pods)
	require.Equal(t, "sim-rome-1", nodes[0].Name)
	system, err := c.Client().CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	require.NoError(t, err)
	require.NotEmpty(t, system.UID)
	metas := []metav1.ObjectMeta{system.ObjectMeta}
	for _, n := range nodes {
		metas = append(metas, n.ObjectMeta)
	}
	for _, p := range pods {
		metas = append(metas, p.ObjectMeta)
	}
	for _, m := range metas {
		require.Equal(t, "true", m.Labels[Label], m.Name)
		require.Contains(t, m.Annotations[Annotation], "made up", m.Name)
	}
}

func TestPodsStayInTheBandAndOnNodesThatHaveRoom(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"rome", "paris", "berlin", "tokyo"} {
		c := newCluster(t, Default(name))
		joined, arrived, left, within := 0, 0, 0, 0
		for range 500 {
			before := len(c.all())
			podsBefore := c.lastName
			require.NoError(t, c.step(t.Context()))
			switch {
			case len(c.all()) > before:
				joined++
			case c.lastName > podsBefore:
				arrived++
			default:
				left++
			}
			for _, n := range c.all() {
				require.LessOrEqual(t, n.usedMilli, n.cpuMilli)
				require.LessOrEqual(t, n.usedBytes, n.memoryBytes)
			}
			// 16 cores at 50 % and a pod of one more are 9; when the fourth node leaves without
			// any of them, 75 % of 12. 12 at 20 % less one are 8 % of 16.
			require.LessOrEqual(t, c.percent(), 75)
			require.GreaterOrEqual(t, c.percent(), 8)
			if c.percent() >= DefaultLowPercent-8 && c.percent() <= DefaultHighPercent+8 {
				within++
			}
		}
		require.Greater(t, within, 450, "of 500 steps in the band, a pod's size about it")
		require.Positive(t, joined)
		require.Greater(t, arrived, 150)
		require.Greater(t, left, 150)
		requireBooksMatchObjects(t, c)
	}
}

func TestTheSameSeedGivesTheSameHistory(t *testing.T) {
	t.Parallel()
	tell := func(seed uint64) string {
		config := Default("rome")
		config.Seed = seed
		c := newCluster(t, config)
		story := ""
		for range 200 {
			require.NoError(t, c.step(t.Context()))
			story += fmt.Sprintf("%d/%d/%d ", len(c.all()), c.lastName, c.percent())
		}
		return story
	}
	require.Equal(t, tell(7), tell(7))
	require.NotEqual(t, tell(7), tell(8))
}

func TestNothingMovesBeforeItIsWatched(t *testing.T) {
	t.Parallel()
	config := Default("rome")
	fake := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	config.Clock = fake
	c := newCluster(t, config)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()

	nodes, err := c.Client().CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.False(t, fake.HasWaiters(), "no ticker yet: pods are not watched")
	pods, err := c.Client().CoreV1().Pods("").Watch(ctx, metav1.ListOptions{ResourceVersion: "1000000"})
	require.NoError(t, err)
	require.Eventually(t, fake.HasWaiters, 10*time.Second, time.Millisecond)
	for range 20 { // one step may be a node's or find nothing to do; twenty never all are
		fake.Step(config.Every)
		require.Eventually(t, func() bool { return len(c.client.Actions()) == 0 }, 10*time.Second, time.Millisecond)
	}
	select {
	case e := <-pods.ResultChan():
		require.Contains(t, []watch.EventType{watch.Added, watch.Deleted}, e.Type)
	case <-time.After(10 * time.Second):
		t.Fatal("no pod came or went")
	}
	cancel()
	require.NoError(t, <-done)
	nodes.Stop()
	pods.Stop()
}

func TestRunEndsWhileNobodyWatches(t *testing.T) {
	t.Parallel()
	c := newCluster(t, Default("rome"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, c.Run(ctx))
}

func TestValidateReportsAllFaults(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Name: "Rome!", Nodes: -1, CPUPerNode: "four", MemoryPerNode: "0", GPUsPerNode: -2, LowPercent: 60, HighPercent: 40})
	for _, part := range []string{`name "Rome!"`, "nodes -1", `"four"`, `memory per node "0"`, "gpus per node -2", "60 to 40", "interval 0s", "clock"} {
		require.ErrorContains(t, err, part)
	}
}

func list(t *testing.T, c *Cluster) ([]corev1.Node, []corev1.Pod) {
	t.Helper()
	nodes, err := c.Client().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	pods, err := c.Client().CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	return nodes.Items, pods.Items
}

func requireBooksMatchObjects(t *testing.T, c *Cluster) {
	t.Helper()
	nodes, pods := list(t, c)
	require.Len(t, nodes, len(c.all()))
	used := map[string]int64{}
	for _, p := range pods {
		used[p.Spec.NodeName] += p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
	}
	for _, n := range c.all() {
		require.Equal(t, n.usedMilli, used[n.name], n.name)
	}
}
