package main

import (
	"fmt"
	"time"

	gometrics "github.com/hashicorp/go-metrics"
	goprometheus "github.com/hashicorp/go-metrics/prometheus"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/reservation"
)

// raftMetricExpiry is how long a gauge of Raft's that is no longer reported stays visible.
const raftMetricExpiry = 10 * time.Minute

// decisionMetrics counts what the leader did with reservations.
type decisionMetrics struct{ outcomes *prometheus.CounterVec }

func newDecisionMetrics(registry prometheus.Registerer) *decisionMetrics {
	m := &decisionMetrics{outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "bourse_reservation_outcomes_total",
		Help: "What this node, as leader, did with reservations.",
	}, []string{"outcome"})}
	registry.MustRegister(m.outcomes)
	return m
}

func (m *decisionMetrics) observe(outcome reservation.Outcome) {
	m.outcomes.WithLabelValues(string(outcome)).Inc()
}

// newHaltedMetric is what to raise an alarm on: only an operator can say which replica is right.
func newHaltedMetric(node *cluster.Node) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "bourse_replicas_differ",
		Help: "1 on a leader that refuses writes because the replicas differ and no majority agrees.",
	}, func() float64 {
		if node.Halted() {
			return 1
		}
		return 0
	})
}

// exportRaftMetrics shows what Raft and gossip measure of themselves, under their own well-known
// names. It is process-wide: call it once.
func exportRaftMetrics(registry prometheus.Registerer, nodeID string) error {
	sink, err := goprometheus.NewPrometheusSinkFrom(goprometheus.PrometheusOpts{
		Registerer: registry, Expiration: raftMetricExpiry, Name: "raft",
	})
	if err != nil {
		return fmt.Errorf("export Raft's metrics: %w", err)
	}
	config := gometrics.DefaultConfig("")
	config.HostName = nodeID
	config.EnableHostname, config.EnableRuntimeMetrics = false, false
	if _, err := gometrics.NewGlobal(config, sink); err != nil {
		return fmt.Errorf("export Raft's metrics: %w", err)
	}
	return nil
}
