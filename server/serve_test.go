package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/server"
	"github.com/bourse-dev/bourse/server/servertest"
	"github.com/bourse-dev/bourse/store"
)

func TestErrorsOfTheGroupHaveTheirStatus(t *testing.T) {
	t.Parallel()
	x := start(t)
	c := x.client(admin...)
	x.Fail(fmt.Errorf("n2: %w", store.ErrNoLeader))
	got := c.must(http.StatusServiceUnavailable, "POST", rome, reservationBody("r", "rome", ""))
	require.NotEmpty(t, got.header.Get("Retry-After"), "surely nothing was proposed: a client may try again")
	x.Fail(fmt.Errorf("n2: %w", store.ErrUnknownOutcome))
	got = c.must(http.StatusGatewayTimeout, "POST", rome, reservationBody("r", "rome", ""))
	require.Empty(t, got.header.Get("Retry-After"), "a client that tries again would ask twice")
	require.NotContains(t, got.body, "retryAfterSeconds")
	x.Fail(nil)
	c.must(http.StatusCreated, "POST", rome, reservationBody("r", "rome", ""))
}

func TestANodeThatIsNotReadyServesProbesAndTheOperatorOnly(t *testing.T) {
	t.Parallel()
	x := start(t)
	c, nobody := x.client(admin...), x.client()
	why := errors.New("no leader heard yet")
	x.ready.Store(&why)
	got := c.must(http.StatusServiceUnavailable, "GET", rome, "")
	require.Contains(t, got.body, why.Error())
	require.NotEmpty(t, got.header.Get("Retry-After"))
	nobody.must(http.StatusServiceUnavailable, "GET", "/readyz", "")
	nobody.must(http.StatusOK, "GET", "/livez", "")
	c.must(http.StatusOK, "GET", "/admin/v1/raft/configuration", "")
	c.must(http.StatusOK, "GET", "/metrics", "")
	x.ready.Store(nil)
	nobody.must(http.StatusOK, "GET", "/readyz", "")
	nobody.must(http.StatusOK, "GET", "/leaderz", "")
	x.Follow(true)
	nobody.must(http.StatusServiceUnavailable, "GET", "/leaderz", "")
	nobody.must(http.StatusMethodNotAllowed, "POST", "/livez", "")
}

func TestAdminEndpoints(t *testing.T) {
	t.Parallel()
	x := start(t)
	c := x.client(admin...)
	require.Contains(t, c.must(http.StatusOK, "GET", "/admin/v1/raft/configuration", "").body, `"leader":true`)
	c.must(http.StatusNotFound, "DELETE", "/admin/v1/raft/peers/n9", "")
	c.must(http.StatusNotFound, "POST", "/admin/v1/raft/transfer-leader", `{"to":"n9"}`)
	c.must(http.StatusBadRequest, "POST", "/admin/v1/raft/transfer-leader", `{"too":"n9"}`)
	require.Contains(t, c.must(http.StatusOK, "GET", "/admin/v1/state-hash", "").body, x.DB.State().Hash().String())
	require.NotEmpty(t, c.must(http.StatusOK, "GET", "/admin/v1/snapshot", "").body)
	c.must(http.StatusNotFound, "GET", "/admin/v1/nothing", "")
	c.must(http.StatusMethodNotAllowed, "PUT", "/admin/v1/snapshot", "")
}

func TestMetricsFollowTheConventionsAndShowTheAccounts(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.advertise("berlin", 16)
	c := x.client(admin...)
	c.must(http.StatusCreated, "POST", rome, reservationBody("r", "rome", ""))
	text := c.must(http.StatusOK, "GET", "/metrics", "").body
	for _, line := range []string{
		`bourse_account_amount{cluster="berlin",figure="reserved",resource="cpu"} 4`,
		`bourse_account_amount{cluster="berlin",figure="available",resource="cpu"} 12`,
		`bourse_account_holds{cluster="berlin"} 1`,
		`bourse_reservations{phase="Reserved"} 1`,
		`bourse_advertisement_phase{cluster="berlin",phase="Active"} 1`,
		`bourse_http_requests_total{code="201",resource="reservations",verb="create"} 1`,
		`bourse_leader 1`,
	} {
		require.Contains(t, text, line+"\n")
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestDiscoveryNamesTheKindsAsUsersTypeThem(t *testing.T) {
	t.Parallel()
	x := start(t)
	d, err := discovery.NewDiscoveryClientForConfig(x.as(admin...))
	require.NoError(t, err)
	list, err := d.ServerResourcesForGroupVersion(broker.SchemeGroupVersion.String())
	require.NoError(t, err)
	found := map[string]metav1.APIResource{}
	for _, r := range list.APIResources {
		found[r.Name] = r
	}
	require.Equal(t, []string{"rsv"}, found["reservations"].ShortNames)
	require.Equal(t, []string{"cadv"}, found["clusteradvertisements"].ShortNames)
	require.Equal(t, []string{"bp"}, found["blueprints"].ShortNames)
	require.Equal(t, []string{"bourse"}, found["reservations"].Categories)
	require.True(t, found["reservations"].Namespaced)
	for _, name := range []string{"reservations/status", "reservations/explain", "clusteradvertisements/status", "clusteradvertisements/facts", "blueprints/status", "slices", "slices/status"} {
		require.Contains(t, found, name)
	}
	schemas, err := d.OpenAPIV3().Paths()
	require.NoError(t, err)
	require.Contains(t, schemas, "apis/broker.fluidos.eu/v1alpha1")
}

func TestTablesHaveTheColumnsThatWerePromised(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.advertise("berlin", 16)
	c := x.client(admin...)
	c.must(http.StatusCreated, "POST", rome, reservationBody("r", "rome", `"duration":"2h"`))
	asTable := []string{"Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"}
	for path, want := range map[string]string{
		rome:                             "Name Requester CPU Memory Phase Target Expires Age (Price Score)",
		group + "/clusteradvertisements": "Name Cluster CPU-Avail Mem-Avail Reserved-CPU Cost Status Age",
	} {
		var table metav1.Table
		require.NoError(t, unmarshal(c.must(http.StatusOK, "GET", path, "", asTable...).body, &table))
		var shown, wide []string
		for _, column := range table.ColumnDefinitions {
			if column.Priority > 0 {
				wide = append(wide, column.Name)
			} else {
				shown = append(shown, column.Name)
			}
		}
		got := strings.Join(shown, " ")
		if len(wide) > 0 {
			got += " (" + strings.Join(wide, " ") + ")"
		}
		require.Equal(t, want, got)
		require.Len(t, table.Rows, 1)
	}
}

func TestAnInformerSeesEveryChangeOnce(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.advertise("berlin", 1000)
	d, err := dynamic.NewForConfig(x.as(server.GroupAgent + "rome"))
	require.NoError(t, err)
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(d, 0, metav1.NamespaceAll, func(o *metav1.ListOptions) {
		o.FieldSelector = "spec.requesterID=rome"
	})
	informer := factory.ForResource(schema.GroupVersionResource{Group: broker.GroupName, Version: "v1alpha1", Resource: "reservations"}).Informer()
	var mu sync.Mutex
	seen := map[string]int{}
	note := func(what string) func(any) {
		return func(obj any) {
			mu.Lock()
			defer mu.Unlock()
			seen[what+" "+obj.(*unstructured.Unstructured).GetName()]++
		}
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: note("add"), DeleteFunc: note("delete")})
	require.NoError(t, err)
	stop := make(chan struct{})
	defer close(stop)
	go informer.Run(stop)
	require.True(t, cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced))

	c := x.client(admin...)
	const n = 20
	for i := range n {
		c.must(http.StatusCreated, "POST", rome, reservationBody(fmt.Sprintf("r%d", i), "rome", ""))
		c.must(http.StatusCreated, "POST", rome, reservationBody(fmt.Sprintf("other%d", i), "paris", ""))
		c.must(http.StatusOK, "DELETE", fmt.Sprintf("%s/r%d", rome, i), "")
	}
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(seen) == 2*n
	}, patience, 10*time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	for what, times := range seen {
		require.Equal(t, 1, times, what)
		require.NotContains(t, what, "other")
	}
}

func TestDescribeFindsTheEventsOfAReservation(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.advertise("berlin", 16)
	r := x.client(admin...).must(http.StatusCreated, "POST", rome, reservationBody("r", "rome", "")).reservation(t)
	cfg := x.as(server.GroupRequester + "rome")
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	k, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	events, err := k.CoreV1().Events("rome").List(t.Context(), metav1.ListOptions{
		FieldSelector: "involvedObject.name=r,involvedObject.namespace=rome,involvedObject.kind=Reservation,involvedObject.uid=" + string(r.UID),
	})
	require.NoError(t, err)
	require.Len(t, events.Items, 1)
	require.Equal(t, "Reserved", events.Items[0].Reason)
	ns, err := k.CoreV1().Namespaces().Get(t.Context(), "rome", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, corev1.NamespaceActive, ns.Status.Phase)
}

func TestWatchesDoNotHoldUpTheEnd(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.advertise("berlin", 16)
	c := x.client(admin...)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.base+group+"/clusteradvertisements?watch=1", nil)
	require.NoError(t, err)
	response, err := c.http.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	require.True(t, lines.Scan(), "the watch is open: its first event came")
	began := time.Now()
	require.NoError(t, x.stop())
	require.Less(t, time.Since(began), 5*time.Second)
	for lines.Scan() { // ends: the server has closed it
		continue
	}
}

func TestRenewedCertificatesAreUsedWithoutARestart(t *testing.T) {
	t.Parallel()
	x := start(t)
	require.Equal(t, "n1", x.servedName())
	x.writeFiles("n1-renewed")
	later := time.Now().Add(time.Second) // coarse file clocks
	for _, path := range []string{x.files.CertFile, x.files.KeyFile, x.files.ClientCAFile} {
		require.NoError(t, os.Chtimes(path, later, later))
	}
	require.Eventually(t, func() bool { return x.servedName() == "n1-renewed" }, patience, 200*time.Millisecond)
	require.NoError(t, os.WriteFile(x.files.CertFile, []byte("half a fi"), 0o600))
	require.Equal(t, "n1-renewed", x.servedName(), "a broken file must not take the API away")
}

func TestConfigFaultsAreReportedTogether(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "0.0.0.0:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	e := servertest.NewExchange()
	_, err = server.New(server.Config{Listener: listener, DB: e.DB, Admin: e, Logger: hclog.NewNullLogger(), Registry: prometheus.NewRegistry()})
	for _, fault := range []string{"Writer", "Ready", "loopback"} {
		require.ErrorContains(t, err, fault)
	}
}

func TestInsecureDevServesEverybodyOnLoopback(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	e := servertest.NewExchange()
	s, err := server.New(server.Config{
		Listener: listener, DB: e.DB, Writer: e, Admin: e, Ready: func() error { return nil },
		Logger: hclog.NewNullLogger(), Registry: prometheus.NewRegistry(),
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	c := client{t, &http.Client{Timeout: patience}, "http://" + s.Addr().String()}
	c.must(http.StatusCreated, "POST", rome, reservationBody("r", "rome", ""))
	cancel()
	require.NoError(t, <-ended)
}
