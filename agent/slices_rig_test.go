package agent

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/bourse-dev/bourse/agent/simulated"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

const webKey = "shop/store-web-rome-1a2b3c4d"

// newSliceRig is an agent of a simulated cluster in which Deployments become pods, and nothing else happens. It
// consents to namespace shop and docker.io.
func newSliceRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	settings := simulated.Default("rome")
	settings.Clock, settings.Every = r.clock, 10000*time.Hour
	cluster, err := simulated.New(settings)
	require.NoError(t, err)
	r.config.Member, r.member = cluster.Client(), cluster.Client().(*fake.Clientset)
	r.config.Blueprints = Consent{Namespaces: []string{"shop"}, Registries: []string{"docker.io"}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- cluster.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return r
}

// order has the leader write the slice that webSlice is, changed.
func (r *rig) order(command broker.SliceCommand, change ...func(*broker.Slice)) {
	s := webSlice(command)
	s.Status.Fence = 7
	for _, f := range change {
		f(s)
	}
	r.exchange.putSlice(s)
}

func (r *rig) untilState(want broker.SliceState, ready int32) *broker.Slice {
	r.t.Helper()
	var s *broker.Slice
	r.until(fmt.Sprintf("state %s with %d ready", want, ready), func() bool {
		s = r.exchange.slice(webKey)
		return s.Status.State == want && s.Status.ReadyInstances == ready && s.Status.ObservedGeneration == s.Generation
	})
	return s
}

func (r *rig) deployment() *appsv1.Deployment {
	r.t.Helper()
	d, err := r.member.AppsV1().Deployments("shop").Get(r.t.Context(), "store-web-rome-1a2b3c4d", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(r.t, err)
	return d
}

func (r *rig) pods() []corev1.Pod {
	r.t.Helper()
	list, err := r.member.CoreV1().Pods("shop").List(r.t.Context(), metav1.ListOptions{})
	require.NoError(r.t, err)
	return list.Items
}

func (r *rig) podNames() (names []string) {
	for _, p := range r.pods() {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return names
}

// pass lets agent time go by.
func (r *rig) pass(span time.Duration) {
	r.t.Helper()
	from := r.clock.Now()
	r.until(span.String(), func() bool { return r.clock.Since(from) >= span })
}

func (r *rig) tellings() int {
	r.exchange.mu.Lock()
	defer r.exchange.mu.Unlock()
	return len(r.exchange.told)
}
