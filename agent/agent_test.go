package agent

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/bourse-dev/bourse/agent/simulated"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// rig is an agent between a fake member cluster and a fake exchange, on a clock that only the
// test advances.
type rig struct {
	t        *testing.T
	exchange *fakeExchange
	member   *fake.Clientset
	clock    *clocktesting.FakeClock
	log      *logBook
	config   Config
	pace     time.Duration // of agent time between two looks
	stop     func()
}

// newRig prepares an agent of rome with one node of 4 cores and one pod of 1.
func newRig(t *testing.T, objects ...runtime.Object) *rig {
	t.Helper()
	if objects == nil {
		objects = []runtime.Object{readyNode("a"), podOn("a", "p", container("cpu", "1"))}
	}
	log, logger := newLog()
	r := &rig{
		t: t, exchange: newFakeExchange(t), member: fake.NewClientset(objects...),
		clock: clocktesting.NewFakeClock(processStart), log: log, pace: 100 * time.Millisecond,
	}
	r.config = Default()
	r.config.ClusterID = "rome"
	r.config.Member, r.config.Broker = r.member, r.exchange.config()
	r.config.Clock, r.config.Logger = r.clock, logger
	r.config.Metrics = prometheus.NewPedanticRegistry()
	return r
}

func (r *rig) start() *rig {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, r.config) }()
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			require.NoError(r.t, err)
		case <-time.After(patience):
			r.t.Error("the agent did not stop")
		}
	}
	r.t.Cleanup(r.stop)
	return r
}

// until lets agent time pass until the condition holds.
func (r *rig) until(what string, condition func() bool) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		if condition() {
			return true
		}
		r.clock.Step(r.pace)
		return false
	}, patience, glance, what)
}

func (r *rig) advertised(resource string) func(want string) func() bool {
	return func(want string) func() bool {
		return func() bool {
			report, ok := r.exchange.last()
			q := report.Allocated[v1Name(resource)]
			return ok && q.String() == want
		}
	}
}

func (r *rig) live() *rig {
	r.t.Helper()
	r.until("a first report", func() bool {
		report, ok := r.exchange.last()
		return ok && report.Epoch > 0
	})
	r.until("all watches", r.watching)
	return r
}

// watching: the fake clientset forgets what is deleted between list and watch.
func (r *rig) watching() bool {
	open := map[string]bool{}
	for _, a := range r.member.Actions() {
		if a.GetVerb() == "watch" {
			open[a.GetResource().Resource] = true
		}
	}
	return open["nodes"] && open["pods"]
}

func (r *rig) metric(name string) float64 {
	r.t.Helper()
	families, err := r.config.Metrics.Gather()
	require.NoError(r.t, err)
	total := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			total += m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return total
}

func TestAnAgentAdvertisesItsCluster(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.config.Endpoint, r.config.Region, r.config.Provider = "https://rome.example:6443", "eu-south", "acme"
	r.config.Labels, r.config.Costs = map[string]string{"tier": "gold"}, map[string]string{"cpu": "0.50"}
	r.start().live()

	r.exchange.mu.Lock()
	created := r.exchange.adverts["rome-adv"].DeepCopy()
	r.exchange.mu.Unlock()
	require.Equal(t, broker.ClusterAdvertisementSpec{
		ClusterID: "rome", Endpoint: "https://rome.example:6443", Region: "eu-south", Provider: "acme",
		Cost: map[string]string{"cpu": "0.50"},
	}, created.Spec)
	require.Equal(t, map[string]string{"tier": "gold"}, created.Labels)

	report, _ := r.exchange.last()
	require.Equal(t, "4", report.Allocatable.Cpu().String())
	require.Equal(t, "8Gi", report.Allocatable.Memory().String())
	require.Equal(t, "1", report.Allocated.Cpu().String())
	require.Equal(t, "3", report.LargestFree.Cpu().String())
	require.Equal(t, "109", report.LargestFree.Pods().String())
	require.InDelta(t, 1, r.metric("bourse_agent_epoch"), 0)
	require.InDelta(t, 1, r.metric("bourse_agent_broker_reachable"), 0)
	require.InDelta(t, 1, r.metric("bourse_agent_usable_nodes"), 0)
	require.Empty(t, r.log.with("flag differs from the advertisement, which kubectl owns: left as it stands"))
}

func TestPodsAndNodesThatComeAndGoAreReported(t *testing.T) {
	t.Parallel()
	r := newRig(t).start().live()
	allocated := r.advertised("cpu")
	pods := r.member.CoreV1().Pods("default")
	_, err := pods.Create(t.Context(), podOn("a", "q", container("cpu", "500m")), metav1.CreateOptions{})
	require.NoError(t, err)
	r.until("the new pod", allocated("1500m"))
	require.NoError(t, pods.Delete(t.Context(), "p", metav1.DeleteOptions{}))
	r.until("the deleted pod", allocated("500m"))

	cordoned := readyNode("a")
	cordoned.Spec.Unschedulable = true
	_, err = r.member.CoreV1().Nodes().Update(t.Context(), cordoned, metav1.UpdateOptions{})
	require.NoError(t, err)
	r.until("the cordoned node", func() bool {
		report, _ := r.exchange.last()
		return len(report.Allocatable) == 0 && len(report.Allocated) == 0
	})
}

func TestAnUnchangedClusterOnlyBeats(t *testing.T) {
	t.Parallel()
	r := newRig(t).start().live()
	heard, from := r.exchange.heard(), r.clock.Now()
	r.until("three heartbeats", func() bool { return r.exchange.heard() >= heard+3 })
	require.GreaterOrEqual(t, r.clock.Since(from), 2*DefaultHeartbeatEvery)
	r.exchange.mu.Lock()
	defer r.exchange.mu.Unlock()
	for i := 1; i < len(r.exchange.reports); i++ {
		require.Greater(t, r.exchange.reports[i].Sequence, r.exchange.reports[i-1].Sequence)
	}
}

func TestWhatKubectlOwnsIsLeftAsItStands(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.config.Region, r.config.Costs = "eu-south", map[string]string{"cpu": "0.50", "memory": "0.05"}
	stands := &broker.ClusterAdvertisement{
		ObjectMeta: metav1.ObjectMeta{Name: "rome-adv", Annotations: map[string]string{"cost.memory": "0.07"}},
		Spec:       broker.ClusterAdvertisementSpec{ClusterID: "rome", Region: "eu-north", Cost: map[string]string{"cpu": "0.5"}},
	}
	r.exchange.adverts["rome-adv"] = stands
	r.start().live()
	lines := r.log.with("flag differs from the advertisement, which kubectl owns: left as it stands")
	require.Len(t, lines, 2)
	require.Equal(t, []any{"region", "eu-south", "eu-north"}, []any{lines[0].args["what"], lines[0].args["flag"], lines[0].args["stands"]})
	require.Equal(t, []any{"cost memory", "0.05", "0.07"}, []any{lines[1].args["what"], lines[1].args["flag"], lines[1].args["stands"]})
	require.Equal(t, "eu-north", stands.Spec.Region)
	require.Zero(t, r.exchange.created)
}

func TestADeletedAdvertisementComesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t).start().live()
	r.exchange.with(func() { delete(r.exchange.adverts, "rome-adv") })
	r.until("a new advertisement that is reported to", func() bool {
		r.exchange.mu.Lock()
		defer r.exchange.mu.Unlock()
		a := r.exchange.adverts["rome-adv"]
		return r.exchange.created == 2 && a != nil && a.Status.Phase == broker.AdvertisementActive
	})
}

func TestOfTwoAgentsTheNewerSpeaksAndTheOlderTakesOverOnceItIsStale(t *testing.T) {
	t.Parallel()
	older := newRig(t).start().live()
	newer := newRig(t)
	newer.exchange = older.exchange
	newer.config.Broker = older.exchange.config()
	newer.start()
	epoch := func(want int64) func() bool {
		return func() bool {
			report, _ := older.exchange.last()
			return report.Epoch == want
		}
	}
	newer.until("the newer agent's epoch", epoch(2))
	silent := "a newer agent speaks for this cluster: silent until the advertisement is Stale"
	older.until("the older agent's silence", func() bool { return len(older.log.with(silent)) == 1 })
	heard, from := older.exchange.heard(), older.clock.Now()
	older.pace = 5 * time.Second
	older.until("ten minutes without a word", func() bool { return older.clock.Since(from) > 10*time.Minute })
	require.Equal(t, heard, older.exchange.heard())

	newer.stop()
	older.exchange.with(func() { older.exchange.adverts["rome-adv"].Status.Phase = broker.AdvertisementStale })
	older.until("the older agent's new epoch", epoch(3))
}

func TestAnExchangeThatForgotIsToldAnew(t *testing.T) {
	t.Parallel()
	r := newRig(t).start().live()
	r.exchange.with(func() {
		r.exchange.adverts["rome-adv"].Status.Epoch = 0 // a restored backup
		r.exchange.sessions = map[string]string{}
	})
	r.until("a new session", func() bool { return len(r.log.with("session opened")) == 2 })
}

func TestAnOutageChangesNothingAndEndsByItself(t *testing.T) {
	t.Parallel()
	r := newRig(t).start().live()
	granted := reservation("u1", broker.ReservationReserved, 42)
	r.exchange.put(granted)
	r.until("the grant", func() bool { return len(r.log.with("capacity granted")) == 1 })

	r.exchange.setAway(true)
	r.until("the outage being noticed", func() bool { return r.metric("bourse_agent_broker_reachable") == 0 })
	writes := 0
	for _, a := range r.member.Actions() {
		if v := a.GetVerb(); v != "list" && v != "watch" {
			writes++
		}
	}
	require.Zero(t, writes, "an agent only reads its cluster")
	_, err := r.member.CoreV1().Pods("default").Create(t.Context(), podOn("a", "q", container("cpu", "2")), metav1.CreateOptions{})
	require.NoError(t, err)
	r.exchange.remove("rome/ml-training")
	other := reservation("u2", broker.ReservationReserved, 50)
	other.Name = "second"
	r.exchange.put(other)
	require.Empty(t, r.log.with("capacity released"))

	r.exchange.setAway(false)
	r.until("the change of meanwhile", r.advertised("cpu")("3"))
	r.until("the release of meanwhile", func() bool { return len(r.log.with("capacity released")) == 1 })
	r.until("the grant of meanwhile", func() bool { return len(r.log.with("capacity granted")) == 2 })
	require.Len(t, r.log.with("exchange answers again"), 1)
	require.Len(t, r.log.with("session opened"), 1, "an outage ends no session")
	require.InDelta(t, 2, r.metric("bourse_agent_grant_latency_seconds"), 0)
}

func TestWatchesResumeAndListAgainWhenTheyMust(t *testing.T) {
	t.Parallel()
	r := newRig(t).start().live()
	r.exchange.put(reservation("u1", broker.ReservationReserved, 42))
	r.until("the grant", func() bool { return len(r.log.with("capacity granted")) == 1 })

	r.exchange.mu.Lock()
	opened := len(r.exchange.watches)
	r.exchange.mu.Unlock()
	r.exchange.endWatches()
	r.until("the watches again", func() bool {
		r.exchange.mu.Lock()
		defer r.exchange.mu.Unlock()
		return len(r.exchange.watches) >= opened+2
	})
	r.exchange.mu.Lock()
	require.Contains(t, r.exchange.watches[opened:], "spec.requesterID=rome@2", "resumed where it was")
	r.exchange.mu.Unlock()

	lent := reservation("u2", broker.ReservationReserved, 43)
	lent.Name, lent.Spec.RequesterID, lent.Status.TargetClusterID = "theirs", "paris", "rome"
	r.exchange.with(func() { r.exchange.compacted = 1 << 40 })
	r.exchange.endWatches()
	r.exchange.put(lent)
	r.until("the loan after 410", func() bool { return len(r.log.with("capacity lent")) == 1 })
	require.Len(t, r.log.with("capacity granted"), 1, "told once, however often it is listed")
}

func TestWithoutAnIDTheSystemNamespaceNamesTheCluster(t *testing.T) {
	t.Parallel()
	system := fake.NewClientset(readyNode("a"))
	namespace := &systemNamespace
	_, err := system.CoreV1().Namespaces().Create(t.Context(), namespace.DeepCopy(), metav1.CreateOptions{})
	require.NoError(t, err)
	r := newRig(t)
	r.member, r.config.Member, r.config.ClusterID = system, system, ""
	r.start().live()
	r.exchange.mu.Lock()
	defer r.exchange.mu.Unlock()
	require.Contains(t, r.exchange.adverts, string(namespace.UID)+"-adv")
	hint := "no cluster id given: using the UID of namespace kube-system; a name is easier to read: --cluster-id rome, or CLUSTER_ID"
	require.Len(t, r.log.with(hint), 1)
}

func TestAMemberClusterOutOfReachIsNotSpokenFor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	takeAway := breakable(r.member)
	r.start().live()
	takeAway()
	r.pace = 5 * time.Second
	silence := "member cluster out of reach: the agent falls silent, the offer becomes Stale"
	r.until("the silence", func() bool { return len(r.log.with(silence)) == 1 })
	require.InDelta(t, 0, r.metric("bourse_agent_member_reachable"), 0)
	heard, from := r.exchange.heard(), r.clock.Now()
	r.until("ten minutes", func() bool { return r.clock.Since(from) > 10*time.Minute })
	require.Equal(t, heard, r.exchange.heard())
}

func TestAnAgentFollowsASimulatedCluster(t *testing.T) {
	t.Parallel()
	settings := simulated.Default("rome")
	settings.Every = simulated.MinEvery
	cluster, err := simulated.New(settings)
	require.NoError(t, err)
	r := newRig(t)
	r.config.Member = cluster.Client()
	r.start()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- cluster.Run(ctx) }()
	seen := map[string]bool{}
	r.until("ten different figures", func() bool {
		report, _ := r.exchange.last()
		seen[report.Allocated.Cpu().String()] = true
		return len(seen) > 10
	})
	cancel()
	require.NoError(t, <-done)

	pods, err := cluster.Client().CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var sum resource.Quantity
	for _, p := range pods.Items {
		sum.Add(*p.Spec.Containers[0].Resources.Requests.Cpu())
	}
	r.until("the final figure "+sum.String(), func() bool {
		report, _ := r.exchange.last()
		return report.Allocated.Cpu().Cmp(sum) == 0 && report.Allocated.Pods().Value() == int64(len(pods.Items))
	})
}

func TestHealthAndMetricsAreServed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.config.Listen = "127.0.0.1:0"
	r.start().live()
	address := r.log.with("serving metrics and health")[0].args["address"].(string)
	client := &http.Client{}
	defer client.CloseIdleConnections()
	for path, want := range map[string]string{"/livez": "ok", "/readyz": "ok", "/metrics": `bourse_agent_epoch{cluster="rome"} 1`} {
		response, err := client.Get("http://" + address + path)
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusOK, response.StatusCode, path)
		require.True(t, strings.Contains(string(body), want), path)
	}
}

func TestAnAddressThatCannotBeListenedOnEndsRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.config.Listen = "127.0.0.1:99999"
	require.ErrorContains(t, Run(t.Context(), r.config), `listen address "127.0.0.1:99999"`)
}

func TestAnAgentStopsWhileEverythingIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exchange.setAway(true)
	r.start()
	r.until("a failure", func() bool {
		return r.metric("bourse_agent_reports_total") > 0 || len(r.log.with("exchange out of reach or refusing: trying on")) > 0
	})
	r.stop()
}
