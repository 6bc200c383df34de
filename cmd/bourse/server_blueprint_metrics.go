package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/bourse-dev/bourse/blueprint"
)

// blueprintMetrics shows what this node, as leader, does with blueprints. Only a leader has figures of
// single blueprints; a later term begins without those of the one before.
type blueprintMetrics struct {
	desired, ready      *prometheus.GaugeVec
	reconciled, refused *prometheus.CounterVec
	failed              *prometheus.CounterVec
	took                prometheus.Histogram
	moved               prometheus.Counter
	activated           prometheus.Histogram
}

func newBlueprintMetrics(registry prometheus.Registerer) *blueprintMetrics {
	one := []string{"namespace", "blueprint"}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, one)
	}
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	m := &blueprintMetrics{
		desired:    gauge("bourse_blueprint_desired_instances", "Instances that a blueprint should run, as this leader last saw it."),
		ready:      gauge("bourse_blueprint_ready_instances", "Instances of a blueprint that are ready, as this leader last saw it."),
		reconciled: counter("bourse_blueprint_reconciliations_total", "Looks at a blueprint, by whether anything changed.", "outcome"),
		refused:    counter("bourse_blueprint_refusals_total", "Commands that Apply refused.", "reason"),
		failed:     counter("bourse_blueprint_slice_failures_total", "Slices that failed.", "reason"),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "bourse_blueprint_reconciliation_seconds", Help: "How long one look at a blueprint takes.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 4, 8),
		}),
		moved: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "bourse_blueprint_moves_total", Help: "Instances moved off clusters they must leave, or to better ones.",
		}),
		activated: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "bourse_blueprint_activation_seconds", Help: "From a blueprint applied to all of its instances ready.",
			Buckets: prometheus.ExponentialBuckets(0.5, 2, 12),
		}),
	}
	registry.MustRegister(m.desired, m.ready, m.reconciled, m.refused, m.failed, m.took, m.moved, m.activated)
	return m
}

func (m *blueprintMetrics) observe(o blueprint.Observation) {
	switch o.Event {
	case blueprint.EventBegun:
		m.desired.Reset()
		m.ready.Reset()
	case blueprint.EventGone:
		m.desired.DeleteLabelValues(o.Namespace, o.Name)
		m.ready.DeleteLabelValues(o.Namespace, o.Name)
	case blueprint.EventStatus:
		m.desired.WithLabelValues(o.Namespace, o.Name).Set(float64(o.Desired))
		m.ready.WithLabelValues(o.Namespace, o.Name).Set(float64(o.Ready))
	case blueprint.EventReconciled:
		m.reconciled.WithLabelValues(o.Reason).Inc()
		m.took.Observe(o.Took.Seconds())
	case blueprint.EventMoved:
		m.moved.Add(float64(o.Count))
	case blueprint.EventFailed:
		m.failed.WithLabelValues(o.Reason).Inc()
	case blueprint.EventRefused:
		m.refused.WithLabelValues(o.Reason).Inc()
	case blueprint.EventActivated:
		m.activated.Observe(o.Took.Seconds())
	}
}
