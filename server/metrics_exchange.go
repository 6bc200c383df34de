package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/store"
)

// exchangeCollector reads the replicated state, and what store counted, at each scrape. The state is the same on
// every node: sum over clusters, not over nodes.
type exchangeCollector struct {
	db    *store.DB
	admin Admin
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("bourse_"+name, help, labels, nil)
}

var (
	leaderDesc       = describe("leader", "1 on the node that leads.")
	revisionDesc     = describe("revision", "Revision that this node has applied.")
	stateTimeDesc    = describe("state_time_seconds", "Time in the replicated state.")
	entriesDesc      = describe("applied_entries_total", "Raft entries applied by this process.")
	rowsDesc         = describe("applied_rows_total", "Rows written by them.")
	restoresDesc     = describe("restored_snapshots_total", "Snapshots installed into this running process.")
	watchEventsDesc  = describe("watch_events_total", "Watch events sent.")
	overrunsDesc     = describe("watch_overruns_total", "Watches ended because the client fell out of the history.")
	historyDesc      = describe("history_bytes", "Bytes that the change history keeps.")
	oldestDesc       = describe("history_oldest_revision", "A watch can resume from here.")
	reservationsDesc = describe("reservations", "Reservations by phase.", "phase")
	amountDesc       = describe("account_amount", "A cluster's account: cpu in cores, memory in bytes, else pieces.", "cluster", "resource", "figure")
	shortDesc        = describe("account_short", "How far a cluster is promised beyond what it has, in the same units.", "cluster", "resource")
	holdsDesc        = describe("account_holds", "Live holds on a cluster.", "cluster")
	phaseDesc        = describe("advertisement_phase", "1 for the phase that the advertisement is in.", "cluster", "phase")
)

func (exchangeCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		leaderDesc, revisionDesc, stateTimeDesc, entriesDesc, rowsDesc, restoresDesc, watchEventsDesc, overrunsDesc,
		historyDesc, oldestDesc, reservationsDesc, amountDesc, shortDesc, holdsDesc, phaseDesc,
	} {
		out <- d
	}
}

func (c exchangeCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}
	leads := 0.0
	if c.admin.IsLeader() {
		leads = 1
	}
	state, counted := c.db.State(), c.db.Counters()
	gauge(leaderDesc, leads)
	gauge(revisionDesc, float64(state.Revision()))
	gauge(stateTimeDesc, float64(state.Time())/1000)
	count(entriesDesc, counted.Entries)
	count(rowsDesc, counted.Rows)
	count(restoresDesc, counted.Restores)
	count(watchEventsDesc, counted.Events)
	count(overrunsDesc, counted.Overruns)
	gauge(historyDesc, float64(counted.HistoryBytes))
	gauge(oldestDesc, float64(counted.OldestRevision))

	phases := map[broker.ReservationPhase]int{
		broker.ReservationPending: 0, broker.ReservationReserved: 0, broker.ReservationReleased: 0, broker.ReservationFailed: 0,
	}
	for row := range state.Scan(broker.ReservationsPrefix) {
		phases[store.PhaseOf(row)]++
	}
	for phase, n := range phases {
		gauge(reservationsDesc, float64(n), string(phase))
	}
	for row := range state.Scan(broker.AdvertisementsPrefix) {
		cluster, ok := broker.ClusterIDOf(row.Key[len(broker.AdvertisementsPrefix):])
		a := store.AdvertisementOf(row)
		if !ok || a == nil {
			continue
		}
		gauge(phaseDesc, 1, cluster, string(a.Status.Phase))
		if row.Account == nil {
			continue
		}
		holds := 0
		for range row.Account.Holds() {
			holds++
		}
		gauge(holdsDesc, float64(holds), cluster)
		for _, amount := range row.Account.Allocatable.Max(row.Account.HeldOrUsed) {
			r := amount.Resource
			gauge(amountDesc, units(r, row.Account.Allocatable.Get(r)), cluster, r, "allocatable")
			gauge(amountDesc, units(r, row.Account.OwnAllocated().Get(r)), cluster, r, "allocated")
			gauge(amountDesc, units(r, row.Account.HeldOrUsed.Get(r)), cluster, r, "reserved")
			gauge(amountDesc, units(r, row.Account.Available(r)), cluster, r, "available")
			gauge(shortDesc, units(r, row.Account.Short(r)), cluster, r)
		}
	}
}

// units are Prometheus' base units: cores, bytes, pieces.
func units(resource string, v int64) float64 {
	if resource == allocation.CPU {
		return float64(v) / 1000
	}
	return float64(v)
}
