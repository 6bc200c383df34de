package agent

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the agent's, all with the constant label "cluster".
type metrics struct {
	grantLatency    *prometheus.HistogramVec
	grants          *prometheus.CounterVec
	releases        *prometheus.CounterVec
	refusedFences   *prometheus.CounterVec
	reports         *prometheus.CounterVec
	reportSeconds   prometheus.Histogram
	brokerReachable prometheus.Gauge
	brokerWatching  prometheus.Gauge
	memberReachable prometheus.Gauge
	epoch           prometheus.Gauge
	slices          *prometheus.GaugeVec
	sliceInstances  prometheus.Gauge
	sliceActs       *prometheus.CounterVec
	sliceFailures   *prometheus.CounterVec
	sliceReports    *prometheus.CounterVec
	workloadsSeen   prometheus.Gauge
	collectors      []prometheus.Collector
}

func newMetrics(clusterID string, ledger *ledger) *metrics {
	labels := prometheus.Labels{"cluster": clusterID}
	m := &metrics{}
	keep := func(c prometheus.Collector) { m.collectors = append(m.collectors, c) }
	counter := func(name, help, label string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}, []string{label})
		keep(c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels})
		keep(g)
		return g
	}
	computed := func(name, help string, value func() float64) {
		keep(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value))
	}

	m.grantLatency = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:        "bourse_agent_grant_latency_seconds",
		Help:        "Time from the grant's commit to this agent seeing it, once for each fence granted since the process started.",
		ConstLabels: labels,
		// The goal is 50 ms, the bound 1 s; beyond are outages.
		Buckets: []float64{.005, .01, .02, .03, .05, .075, .1, .2, .5, 1, 2, 5, 15, 60},
	}, []string{"role"})
	keep(m.grantLatency)
	m.reportSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "bourse_agent_report_seconds", Help: "Duration of an answered report.", ConstLabels: labels, Buckets: prometheus.DefBuckets,
	})
	keep(m.reportSeconds)

	m.grants = counter("bourse_agent_grants_total", "Grants seen since the process started.", "role")
	m.releases = counter("bourse_agent_releases_total", "Ends of grants seen.", "role")
	m.refusedFences = counter("bourse_agent_refused_fences_total", "Instructions refused because their fence is older than one seen.", "role")
	m.reports = counter("bourse_agent_reports_total", "Reports by outcome: accepted, superseded, unknown_session, senseless, failed.", "outcome")
	m.brokerReachable = gauge("bourse_agent_broker_reachable", "1 where the last request to the exchange was answered.")
	m.brokerWatching = gauge("bourse_agent_broker_watching", "1 where the last list or watch of reservations got through.")
	m.memberReachable = gauge("bourse_agent_member_reachable", "1 where the last list or watch of the member cluster got through.")
	m.epoch = gauge("bourse_agent_epoch", "Epoch of the agent's session, as the exchange gave it; 0: none yet.")
	computed("bourse_agent_usable_nodes", "Nodes whose capacity is advertised.", func() float64 {
		nodes, _ := ledger.size()
		return float64(nodes)
	})
	computed("bourse_agent_pods", "Pods that take room on a node.", func() float64 {
		_, pods := ledger.size()
		return float64(pods)
	})
	m.describeSlices(labels, counter, gauge)
	return m
}

// describeSlices makes the metrics of blueprints' slices in this cluster.
func (m *metrics) describeSlices(labels prometheus.Labels, counter func(name, help, label string) *prometheus.CounterVec, gauge func(name, help string) prometheus.Gauge) {
	m.slices = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "bourse_agent_slices", Help: "Slices of blueprints in this cluster, by state.", ConstLabels: labels,
	}, []string{"state"})
	m.sliceActs = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "bourse_agent_slice_writes_total", Help: "Writes of slices' Deployments, by act (put, delete) and outcome.", ConstLabels: labels,
	}, []string{"act", "outcome"})
	m.collectors = append(m.collectors, m.slices, m.sliceActs)
	m.sliceInstances = gauge("bourse_agent_slice_instances_ready", "Instances of slices that are ready in this cluster.")
	m.sliceFailures = counter("bourse_agent_slice_failures_total",
		"Slices that became Failed, by reason: Timeout, ImagePull, ContainerConfig, CrashLoop, Unschedulable, NotReady, Pods, Foreign, Forbidden, Invalid, NoNamespace, Refused.", "reason")
	m.sliceReports = counter("bourse_agent_slice_reports_total", "Writes of slices' status at the exchange, by outcome.", "outcome")
	m.workloadsSeen = gauge("bourse_agent_deployments_watching", "1 where the Deployments of all namespaces that may run slices are watched.")
}

func (m *metrics) register(with prometheus.Registerer) error {
	var faults []error
	for _, c := range m.collectors {
		faults = append(faults, with.Register(c))
	}
	return errors.Join(faults...)
}

func (m *metrics) unregister(with prometheus.Registerer) {
	for _, c := range m.collectors {
		with.Unregister(c)
	}
}
