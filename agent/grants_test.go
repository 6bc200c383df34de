package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

var processStart = time.Unix(1_800_000_000, 0)

type bookBench struct {
	*grantBook
	log   *logBook
	clock *clocktesting.FakeClock
}

func newBookBench(t *testing.T, role role) *bookBench {
	t.Helper()
	log, logger := newLog()
	fake := clocktesting.NewFakeClock(processStart)
	config := Default()
	config.Logger, config.Clock = logger, fake
	return &bookBench{newGrantBook(role, &config, newMetrics("rome", newLedger())), log, fake}
}

func reservation(uid string, phase broker.ReservationPhase, fence int64) *broker.Reservation {
	r := &broker.Reservation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "rome", Name: "ml-training", UID: types.UID(uid)},
		Spec:       broker.ReservationSpec{RequesterID: "rome", RequestedResources: list("cpu", "4", "memory", "8Gi"), Duration: "2h"},
		Status:     broker.ReservationStatus{Phase: phase, Fence: fence},
	}
	if phase == broker.ReservationReserved {
		r.Status.TargetClusterID, r.Status.TargetClusterEndpoint = "berlin", "https://berlin.example:6443"
		reserved := metav1.NewMicroTime(processStart.Add(time.Second))
		expires := metav1.NewMicroTime(reserved.Add(2 * time.Hour))
		r.Status.ReservedAt, r.Status.ExpiresAt = &reserved, &expires
	}
	return r
}

func latencies(t *testing.T, m *metrics) (count uint64, sum float64) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, m.register(registry))
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "bourse_agent_grant_latency_seconds" {
			for _, metric := range f.GetMetric() {
				count += metric.GetHistogram().GetSampleCount()
				sum += metric.GetHistogram().GetSampleSum()
			}
		}
	}
	return count, sum
}

func TestAGrantIsToldOnceWithEverythingInIt(t *testing.T) {
	t.Parallel()
	b := newBookBench(t, requester)
	require.NoError(t, b.Replace(nil, "1"))
	require.NoError(t, b.Add(reservation("u1", broker.ReservationPending, 0)))
	b.clock.SetTime(processStart.Add(1040 * time.Millisecond))
	granted := reservation("u1", broker.ReservationReserved, 42)
	require.NoError(t, b.Update(granted))
	require.NoError(t, b.Update(granted)) // a condition changed
	require.NoError(t, b.Replace([]any{granted}, "50"))

	lines := b.log.with("capacity granted")
	require.Len(t, lines, 1)
	require.Equal(t, map[string]any{
		"reservation": "rome/ml-training", "requester": "rome", "target": "berlin", "amounts": "cpu=4,memory=8Gi",
		"endpoint": "https://berlin.example:6443", "fence": int64(42), "expires": "2027-01-15T10:00:01.000000Z",
	}, lines[0].args)
	count, sum := latencies(t, b.metrics)
	require.Equal(t, uint64(1), count)
	require.InDelta(t, 0.040, sum, 1e-9)
}

func TestTheProviderIsToldInItsOwnWords(t *testing.T) {
	t.Parallel()
	b := newBookBench(t, provider)
	require.NoError(t, b.Replace(nil, "1"))
	require.NoError(t, b.Add(reservation("u1", broker.ReservationReserved, 42)))
	require.Len(t, b.log.with("capacity lent"), 1)
	released := reservation("u1", broker.ReservationReleased, 42)
	released.Status.Message = "duration over"
	require.NoError(t, b.Update(released))
	require.Equal(t, "duration over", b.log.with("lent capacity returned")[0].args["reason"])
	require.Empty(t, b.log.with("capacity granted"))
}

func TestGrantsFromBeforeTheStartAreNoNewsAndNoLatency(t *testing.T) {
	t.Parallel()
	b := newBookBench(t, requester)
	old := reservation("u1", broker.ReservationReserved, 42)
	before := metav1.NewMicroTime(processStart.Add(-time.Minute))
	old.Status.ReservedAt = &before
	require.NoError(t, b.Replace([]any{old}, "50"))
	require.Empty(t, b.log.with("capacity granted"))
	require.Len(t, b.log.with("capacity granted before this start"), 1)
	count, _ := latencies(t, b.metrics)
	require.Zero(t, count)
	require.Zero(t, testutil.ToFloat64(b.metrics.grants.WithLabelValues("requester")))

	require.NoError(t, b.Update(reservation("u1", broker.ReservationReleased, 42)))
	require.Len(t, b.log.with("capacity released"), 1)
}

func TestAGrantDuringAnOutageIsToldAtTheRelist(t *testing.T) {
	t.Parallel()
	b := newBookBench(t, requester)
	require.NoError(t, b.Replace(nil, "1"))
	b.clock.SetTime(processStart.Add(21 * time.Second))
	require.NoError(t, b.Replace([]any{reservation("u1", broker.ReservationReserved, 42)}, "50"))
	require.Len(t, b.log.with("capacity granted"), 1)
	_, sum := latencies(t, b.metrics)
	require.InDelta(t, 20, sum, 1e-9)
}

func TestAnOlderFenceIsRefused(t *testing.T) {
	t.Parallel()
	b := newBookBench(t, requester)
	require.NoError(t, b.Add(reservation("u1", broker.ReservationReserved, 42)))
	require.NoError(t, b.Update(reservation("u1", broker.ReservationReserved, 41)))
	require.NoError(t, b.Delete(reservation("u1", broker.ReservationReserved, 42)))
	require.NoError(t, b.Add(reservation("u0", broker.ReservationReserved, 42))) // a late event
	require.NoError(t, b.Add(reservation("u0", broker.ReservationReserved, 40)))
	require.Len(t, b.log.with("capacity granted"), 1)
	require.Len(t, b.log.with("older fence refused"), 3)
	require.InDelta(t, 3, testutil.ToFloat64(b.metrics.refusedFences.WithLabelValues("requester")), 0)

	require.NoError(t, b.Add(reservation("u2", broker.ReservationReserved, 43)))
	require.Len(t, b.log.with("capacity granted"), 2)
}

func TestWhatIsHeldInPiecesIsNoOlderGrantOfItsName(t *testing.T) {
	t.Parallel()
	b := newBookBench(t, requester)
	whole := reservation("u1", broker.ReservationReserved, 42)
	require.NoError(t, b.Replace([]any{whole}, "50"))
	require.NoError(t, b.Delete(whole))
	head := reservation("u2", broker.ReservationReserved, 0) // of pieces, which have the fences
	require.NoError(t, b.Add(head))
	require.Empty(t, b.log.with("older fence refused"))
	require.NoError(t, b.Delete(head))
	require.NoError(t, b.Add(reservation("u1", broker.ReservationReserved, 42)))
	require.Len(t, b.log.with("older fence refused"), 1, "its own older grant is")
}

func TestEveryEndIsToldOnce(t *testing.T) {
	t.Parallel()
	held := func() *broker.Reservation { return reservation("u1", broker.ReservationReserved, 42) }
	for name, end := range map[string]func(*bookBench) error{
		"released, then deleted": func(b *bookBench) error {
			_ = b.Update(reservation("u1", broker.ReservationReleased, 42))
			return b.Delete(reservation("u1", broker.ReservationReleased, 42))
		},
		"released without its fence": func(b *bookBench) error { return b.Update(reservation("u1", broker.ReservationReleased, 0)) },
		"deleted":                    func(b *bookBench) error { return b.Delete(held()) },
		"deleted twice":              func(b *bookBench) error { _ = b.Delete(held()); return b.Delete(held()) },
		"gone at the relist":         func(b *bookBench) error { return b.Replace(nil, "60") },
		"another of the name at the relist": func(b *bookBench) error {
			return b.Replace([]any{reservation("u2", broker.ReservationPending, 0)}, "60")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBookBench(t, requester)
			require.NoError(t, b.Replace(nil, "1"))
			require.NoError(t, b.Add(held()))
			require.NoError(t, end(b))
			require.Len(t, b.log.with("capacity released"), 1)
			require.InDelta(t, 1, testutil.ToFloat64(b.metrics.releases.WithLabelValues("requester")), 0)
			require.NoError(t, b.Add(held())) // its fence is spent
			require.Len(t, b.log.with("capacity granted"), 1)
		})
	}
}

func TestAFailedRequestIsNoRelease(t *testing.T) {
	t.Parallel()
	b := newBookBench(t, requester)
	require.NoError(t, b.Add(reservation("u1", broker.ReservationPending, 0)))
	require.NoError(t, b.Update(reservation("u1", broker.ReservationFailed, 0)))
	require.NoError(t, b.Delete(reservation("u1", broker.ReservationFailed, 0)))
	require.Empty(t, b.log.with("capacity released"))
	require.Empty(t, b.seen)
}

func TestAnExtensionIsTold(t *testing.T) {
	t.Parallel()
	b := newBookBench(t, requester)
	require.NoError(t, b.Add(reservation("u1", broker.ReservationReserved, 42)))
	longer := reservation("u1", broker.ReservationReserved, 42)
	longer.Status.ExpiresAt = nil
	require.NoError(t, b.Update(longer))
	require.NoError(t, b.Update(longer))
	require.Len(t, b.log.with("capacity granted"), 1)
	lines := b.log.with("lease extended")
	require.Len(t, lines, 1)
	require.Equal(t, "never", lines[0].args["expires"])
}

func TestSpentFencesAreForgottenInTheEnd(t *testing.T) {
	t.Parallel()
	b := newBookBench(t, requester)
	for i := range 2 * maxEndedFences {
		r := reservation(fmt.Sprint("u", i), broker.ReservationReserved, int64(i+1))
		r.Name = fmt.Sprint("r", i)
		require.NoError(t, b.Add(r))
		require.NoError(t, b.Delete(r))
	}
	require.Len(t, b.seen, maxEndedFences)
	require.Len(t, b.ended, maxEndedFences)
}
