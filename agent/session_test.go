package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// bench drives a session by hand, on a clock of its own.
type bench struct {
	session
	now time.Time
}

func newBench() *bench {
	return &bench{
		session: session{heartbeatEvery: 30 * time.Second, publishWithin: 200 * time.Millisecond, backoff: backoff{jitter: func() float64 { return 0 }}},
		now:     time.Unix(1_800_000_000, 0),
	}
}

func cores(n int64) facts {
	return facts{allocatable: allocation.NewAmounts(allocation.Amount{Resource: "cpu", Value: n * 1000})}
}

func (b *bench) expect(t require.TestingT, want step) {
	do, _ := b.next(b.now)
	require.Equal(t, want, do)
}

// idleUntil expects nothing to do, and advances to the wake time.
func (b *bench) idleUntil(t require.TestingT, after time.Duration) {
	do, wake := b.next(b.now)
	require.Equal(t, stepWait, do)
	require.Equal(t, after, wake.Sub(b.now))
	b.now = wake
}

func (b *bench) answer(t require.TestingT, sent facts, outcome broker.FactsOutcome, epoch int64) {
	var report broker.FactsReport
	b.sending(&report)
	require.True(t, b.answered(b.now, sent, broker.FactsReportStatus{Outcome: outcome, Epoch: epoch}))
}

func liveBench(t require.TestingT) *bench {
	b := newBench()
	b.expect(t, stepEnsure)
	b.ensured()
	b.expect(t, stepOpen)
	b.answer(t, cores(1), broker.FactsAccepted, 7)
	b.expect(t, stepReport)
	b.answer(t, cores(1), broker.FactsAccepted, 7)
	return b
}

func TestASessionOpensAndBeats(t *testing.T) {
	t.Parallel()
	b := liveBench(t)
	require.Equal(t, int64(7), b.epoch)
	for want := int64(3); want < 6; want++ {
		b.idleUntil(t, 30*time.Second)
		b.expect(t, stepReport)
		var report broker.FactsReport
		b.sending(&report)
		require.Equal(t, want, report.Sequence)
		require.Equal(t, int64(7), report.Epoch)
		require.True(t, b.answered(b.now, cores(1), broker.FactsReportStatus{Outcome: broker.FactsAccepted, Epoch: 7}))
	}
}

func TestAChangeIsReportedWithinThePublishDelay(t *testing.T) {
	t.Parallel()
	b := liveBench(t)
	b.touch(b.now)
	b.now = b.now.Add(150 * time.Millisecond)
	b.touch(b.now) // a burst does not put it off
	b.idleUntil(t, 50*time.Millisecond)
	b.expect(t, stepMeasure)
	b.measured(cores(2))
	b.expect(t, stepReport)
	b.answer(t, cores(2), broker.FactsAccepted, 7)
	b.idleUntil(t, 30*time.Second)
}

func TestAChangeThatCancelsOutIsNotReported(t *testing.T) {
	t.Parallel()
	b := liveBench(t)
	b.touch(b.now)
	b.idleUntil(t, 200*time.Millisecond)
	b.expect(t, stepMeasure)
	b.measured(cores(1))
	b.idleUntil(t, 30*time.Second-200*time.Millisecond)
}

func TestASupersededSessionIsSilentUntilTheAdvertisementIsStale(t *testing.T) {
	t.Parallel()
	b := liveBench(t)
	b.idleUntil(t, 30*time.Second)
	b.answer(t, cores(1), broker.FactsSuperseded, 8)
	for range 3 {
		b.touch(b.now)
		b.idleUntil(t, 30*time.Second)
		b.expect(t, stepPoll)
		b.polled(b.now, broker.AdvertisementActive)
	}
	b.idleUntil(t, 30*time.Second)
	b.polled(b.now, broker.AdvertisementStale)
	b.expect(t, stepOpen)
	var report broker.FactsReport
	b.sending(&report)
	require.Zero(t, report.Epoch)
}

func TestAnUnknownSessionOpensANewOneAtOnce(t *testing.T) {
	t.Parallel()
	b := liveBench(t)
	b.idleUntil(t, 30*time.Second)
	b.answer(t, cores(1), broker.FactsUnknownSession, 0)
	b.expect(t, stepOpen)
	b.answer(t, cores(1), broker.FactsAccepted, 1)
	require.Equal(t, int64(1), b.epoch)
}

func TestADeletedAdvertisementIsCreatedAgainAtOnce(t *testing.T) {
	t.Parallel()
	b := liveBench(t)
	b.idleUntil(t, 30*time.Second)
	b.missing(b.now)
	b.expect(t, stepEnsure)
	b.ensured()
	b.expect(t, stepOpen)
}

func TestAnExchangeThatTakesNoReportsIsNotHammered(t *testing.T) {
	t.Parallel()
	b := newBench()
	begin := b.now
	for range 20 {
		b.expect(t, stepEnsure)
		b.ensured()
		b.expect(t, stepOpen)
		b.missing(b.now) // it has the advertisement, but not its facts subresource
		_, b.now = b.next(b.now)
	}
	require.Greater(t, b.now.Sub(begin), 15*backoffCap/2)
}

func TestSenselessAnswersAreFailures(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]broker.FactsReportStatus{
		"no outcome":                     {},
		"accepted without an epoch":      {Outcome: broker.FactsAccepted},
		"unknown session at the opening": {Outcome: broker.FactsUnknownSession},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench()
			b.ensured()
			require.False(t, b.answered(b.now, cores(1), answer))
			b.idleUntil(t, backoffBase/2)
			b.expect(t, stepOpen)
		})
	}
}

func TestWaitsDoubleUpToTheCap(t *testing.T) {
	t.Parallel()
	b := liveBench(t)
	b.idleUntil(t, 30*time.Second)
	for _, want := range []time.Duration{250, 500, 1000, 2000, 4000, 5000, 5000} {
		b.expect(t, stepReport)
		b.failed(b.now)
		b.idleUntil(t, want*time.Millisecond)
	}
	b.jitter = func() float64 { return 0.999 }
	for range 100 { // no overflow, never beyond the cap
		b.failed(b.now)
		_, wake := b.next(b.now)
		require.LessOrEqual(t, wake.Sub(b.now), backoffCap)
		require.Greater(t, wake.Sub(b.now), backoffCap*9/10)
	}
	b.now = b.now.Add(backoffCap)
	b.answer(t, cores(1), broker.FactsAccepted, 7)
	b.idleUntil(t, 30*time.Second)
}

// Whatever the exchange answers, the session goes on, never spins, and never goes back in its sequence.
func TestASessionNeverStopsAndNeverSpins(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := newBench()
		actions, begin := 0, b.now
		sequence := int64(0)
		for range 200 {
			if rapid.Bool().Draw(t, "touched") {
				b.touch(b.now)
			}
			do, wake := b.next(b.now)
			if do == stepWait {
				require.True(t, wake.After(b.now))
				require.LessOrEqual(t, wake.Sub(b.now), 30*time.Second)
				b.now = wake
				continue
			}
			actions++
			switch do {
			case stepMeasure:
				b.measured(cores(rapid.Int64Range(1, 2).Draw(t, "cores")))
			case stepEnsure:
				if rapid.Bool().Draw(t, "ok") {
					b.ensured()
				} else {
					b.failed(b.now)
				}
			case stepPoll:
				b.polled(b.now, rapid.SampledFrom([]broker.AdvertisementPhase{broker.AdvertisementActive, broker.AdvertisementStale}).Draw(t, "phase"))
			case stepOpen, stepReport:
				var report broker.FactsReport
				b.sending(&report)
				require.Greater(t, report.Sequence, sequence)
				sequence = report.Sequence
				require.Equal(t, do == stepOpen, report.Epoch == 0)
				switch rapid.IntRange(0, 2).Draw(t, "fate") {
				case 0:
					b.failed(b.now)
				case 1:
					b.missing(b.now)
				default:
					outcome := rapid.SampledFrom([]broker.FactsOutcome{broker.FactsAccepted, broker.FactsSuperseded, broker.FactsUnknownSession, ""}).Draw(t, "outcome")
					b.answered(b.now, cores(1), broker.FactsReportStatus{Outcome: outcome, Epoch: rapid.Int64Range(0, 3).Draw(t, "epoch")})
				}
			}
		}
		// Conversations of a few requests (ensure, open, first report) between waits of at least 50 ms.
		require.Less(t, float64(actions), 20+60*b.now.Sub(begin).Seconds()+100)
	})
}
