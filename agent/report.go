package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// errSenseless: the exchange answered, but not with an outcome that fits.
var errSenseless = errors.New("senseless answer")

// reporter runs the session: it is the one goroutine that talks to the exchange about this
// cluster's advertisement.
type reporter struct {
	config     *Config
	name       string // of the advertisement
	process    string // random id of this agent process
	exchange   *exchange
	ledger     *ledger
	member     *reach
	session    session
	speaks     *atomic.Bool // whether the exchange listens to this agent; an outage leaves it as it is
	clock      clock.Clock
	logger     hclog.Logger
	metrics    *metrics
	toldDrifts map[drift]bool
	complaint  string // the last failure logged, so that an outage isn't logged with every attempt
	blind      bool
}

func newReporter(config *Config, exchange *exchange, ledger *ledger, member *reach, metrics *metrics) *reporter {
	return &reporter{
		config:   config,
		name:     broker.AdvertisementName(config.ClusterID),
		process:  uuid.NewString(),
		exchange: exchange,
		ledger:   ledger,
		member:   member,
		session: session{
			heartbeatEvery: config.HeartbeatEvery,
			publishWithin:  config.PublishWithin,
			backoff:        backoff{jitter: rand.Float64},
		},
		speaks:     &atomic.Bool{},
		clock:      config.Clock,
		logger:     config.Logger,
		metrics:    metrics,
		toldDrifts: map[drift]bool{},
	}
}

// run reports until ctx ends. Before the member cluster is known it says nothing: an offer of
// zero cores would make every holder short.
func (r *reporter) run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-r.ledger.synced:
	}
	for ctx.Err() == nil {
		do, wake := r.session.next(r.clock.Now())
		if r.look() {
			do, wake = stepWait, r.clock.Now().Add(r.config.HeartbeatEvery)
		}
		if do == stepWait {
			r.wait(ctx, wake)
			continue
		}
		r.do(ctx, do)
	}
}

// wait returns when something changed, at the wake time, or when ctx ends.
func (r *reporter) wait(ctx context.Context, wake time.Time) {
	timer := r.clock.NewTimer(max(0, wake.Sub(r.clock.Now())))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-r.ledger.changed:
		r.session.touch(r.clock.Now())
	case <-timer.C():
	}
}

// look says whether the member cluster has been out of reach for too long to speak for it.
func (r *reporter) look() bool {
	since := r.member.lostSince()
	blind := !since.IsZero() && r.clock.Since(since) > blindAfter
	if blind != r.blind {
		r.blind = blind
		if blind {
			r.logger.Warn("member cluster out of reach: the agent falls silent, the offer becomes Stale", "since", since)
		} else {
			r.logger.Info("member cluster back in reach: the agent speaks again")
		}
	}
	return blind
}

func (r *reporter) do(ctx context.Context, do step) {
	var err error
	switch do {
	case stepEnsure:
		if err = r.ensure(ctx); err == nil {
			r.session.ensured()
		}
	case stepMeasure:
		r.session.measured(r.ledger.measure())
	case stepOpen:
		if err = r.declare(ctx); err == nil {
			err = r.send(ctx)
		}
	case stepReport:
		err = r.send(ctx)
	case stepPoll:
		err = r.poll(ctx)
	}
	r.settle(ctx, do, err)
	r.speaks.Store(r.session.stage == stageLive)
}

// send reports the present figures.
func (r *reporter) send(ctx context.Context) error {
	present := r.ledger.measure()
	report := present.report()
	report.Session = r.process
	r.session.sending(&report)

	before := r.session.stage
	start := r.clock.Now()
	answer, err := r.exchange.report(ctx, r.name, &report)
	if err != nil {
		return fmt.Errorf("report facts of %s: %w", r.name, err)
	}
	now := r.clock.Now()
	r.metrics.reportSeconds.Observe(now.Sub(start).Seconds())
	if !r.session.answered(now, present, answer) {
		r.metrics.reports.WithLabelValues("senseless").Inc()
		return fmt.Errorf("report facts of %s: %w: outcome %q, epoch %d", r.name, errSenseless, answer.Outcome, answer.Epoch)
	}
	r.metrics.reports.WithLabelValues(outcomeLabel(answer.Outcome)).Inc()
	r.tell(before, answer)
	return nil
}

// tell logs what changed in the session.
func (r *reporter) tell(before stage, answer broker.FactsReportStatus) {
	after := r.session.stage
	switch {
	case after == stageLive && before != stageLive:
		r.metrics.epoch.Set(float64(answer.Epoch))
		r.logger.Info("session opened", "advertisement", r.name, "epoch", answer.Epoch, "session", r.process)
	case after == stageSilent:
		r.logger.Warn("a newer agent speaks for this cluster: silent until the advertisement is Stale",
			"advertisement", r.name, "epoch", answer.Epoch)
	case after == stageOpening:
		r.logger.Warn("the exchange does not know this session: opening a new one", "advertisement", r.name)
	}
}

func (r *reporter) poll(ctx context.Context) error {
	stands, err := r.exchange.advertisement(ctx, r.name)
	if err != nil {
		return fmt.Errorf("get advertisement %s: %w", r.name, err)
	}
	r.session.polled(r.clock.Now(), stands.Status.Phase)
	return nil
}

// settle books the outcome of a step.
func (r *reporter) settle(ctx context.Context, do step, err error) {
	switch {
	case ctx.Err() != nil || do == stepMeasure:
	case err == nil:
		r.metrics.brokerReachable.Set(1)
		if r.complaint != "" && do != stepEnsure { // as in session: finding the advertisement ends no trouble
			r.complaint = ""
			r.logger.Info("exchange answers again")
		}
	case apierrors.IsNotFound(err) && do != stepEnsure:
		r.metrics.brokerReachable.Set(1)
		r.complain("advertisement is gone: creating it again", err)
		r.session.missing(r.clock.Now())
	case errors.Is(err, errSenseless): // the session has booked it
		r.complain("exchange answers with something else", err)
	default:
		if do == stepOpen || do == stepReport {
			r.metrics.reports.WithLabelValues("failed").Inc()
		}
		r.metrics.brokerReachable.Set(answered(err))
		r.complain("exchange out of reach or refusing: trying on", err)
		r.session.failed(r.clock.Now())
	}
}

// complain logs a failure, and the same failure again only for debugging.
func (r *reporter) complain(message string, err error) {
	if err.Error() == r.complaint {
		r.logger.Debug(message, "error", err)
		return
	}
	r.complaint = err.Error()
	r.logger.Warn(message, "error", err)
}

// answered is 1 where the error is the exchange's own answer, not the way to it.
func answered(err error) float64 {
	var status apierrors.APIStatus
	if errors.As(err, &status) && !apierrors.IsServiceUnavailable(err) {
		return 1
	}
	return 0
}

func outcomeLabel(outcome broker.FactsOutcome) string {
	switch outcome {
	case broker.FactsAccepted:
		return "accepted"
	case broker.FactsSuperseded:
		return "superseded"
	default:
		return "unknown_session"
	}
}
