package simulated

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

func TestASlowReaderMissesNothingAndEndsNothing(t *testing.T) {
	t.Parallel()
	const many = 600
	s := newShop(t, many, "web:1", "1m")
	events, err := s.c.Client().CoreV1().Pods("shop").Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	tended := make(chan error, 1)
	go func() { tended <- s.c.tend(t.Context()) }()
	require.Eventually(t, func() bool { return len(events.ResultChan()) == watchQueue }, 10*time.Second, time.Millisecond)
	require.Empty(t, tended, "who writes waits for who reads")
	seen := map[string]bool{}
	for len(seen) < many {
		e := <-events.ResultChan()
		require.Equal(t, watch.Added, e.Type)
		seen[e.Object.(*corev1.Pod).Name] = true
	}
	require.NoError(t, <-tended)

	later, err := s.c.Client().CoreV1().Pods("shop").Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, later.ResultChan(), many, "who comes later is told of what is there")
	later.Stop()
	events.Stop()
	require.NoError(t, s.c.client.AppsV1().Deployments("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	require.Empty(t, s.tend(), "nobody waits for who has stopped")
}

func TestAStoppedWatchLetsItsWriterGoOn(t *testing.T) {
	t.Parallel()
	s := newShop(t, 2*watchQueue, "web:1", "1m")
	events, err := s.c.Client().CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	tended := make(chan error, 1)
	go func() { tended <- s.c.tend(t.Context()) }()
	events.Stop()
	require.NoError(t, <-tended)
}
