package reservation

import (
	"fmt"
	"testing"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/cluster"
)

// BenchmarkCreates is a Step with a full entry of creates, applied and answered, on 1,000 clusters.
func BenchmarkCreates(b *testing.B) {
	x := newExchange(b)
	for i := range 1000 {
		x.cluster(fmt.Sprintf("c%04d", i), "cpu=64,memory=256Gi", "0.5")
	}
	p := x.planner(Config{})
	p.run()
	n := 0
	for b.Loop() {
		var batch []*cluster.Intent
		for range maxItems {
			n++
			batch = append(batch, x.creation(reservation(fmt.Sprintf("r%d", n), "cpu=1m", duration("2h"))))
		}
		p.submit(batch...)
		p.run()
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(n), "µs/create")
}

// BenchmarkWaitersThatFitNowhere is what a report costs where 10,000 requests wait in vain.
func BenchmarkWaitersThatFitNowhere(b *testing.B) {
	x := newExchange(b)
	x.cluster("berlin", "cpu=64,memory=256Gi", "0.5")
	p := x.planner(Config{})
	for i := range 10_000 {
		p.submit(x.creation(reservation(fmt.Sprintf("r%d", i), "cpu=65", waitFor("1h"))))
	}
	p.run()
	n := 0
	for b.Loop() {
		n++
		x.report("berlin", fmt.Sprintf("cpu=%dm,memory=256Gi", 60_000+n%4_000), "")
		p.run()
	}
}

// BenchmarkBegin is a takeover with 10,000 reservations that run and 1,000 that wait.
func BenchmarkBegin(b *testing.B) {
	x := newExchange(b)
	for i := range 100 {
		x.cluster(fmt.Sprintf("c%04d", i), "cpu=200,memory=256Gi", "0.5")
	}
	p := x.planner(Config{})
	for i := range 11_000 {
		resources := "cpu=1"
		if i%11 == 0 {
			resources = "cpu=300"
		}
		p.submit(x.creation(reservation(fmt.Sprintf("r%d", i), resources, waitFor("1h"))))
	}
	p.run()
	for b.Loop() {
		New(Config{}).Begin(x.state, x.now)
	}
}

// BenchmarkBatch is a batch of 1,000 reservations on 1,000 clusters, from its intent to its answer; atomic
// is one of 100.
func BenchmarkBatch(b *testing.B) {
	for _, kind := range []struct {
		name   string
		atomic bool
		items  int
	}{{"chunks", false, 1000}, {"atomic", true, 100}} {
		b.Run(kind.name, func(b *testing.B) {
			x := newExchange(b)
			for i := range 1000 {
				x.cluster(fmt.Sprintf("c%04d", i), "cpu=64,memory=256Gi", "0.5")
			}
			p := x.planner(Config{})
			p.run()
			items := make([]broker.ReservationSpec, kind.items)
			for i := range items {
				items[i] = item("cpu=1m")
			}
			n := 0
			for b.Loop() {
				n++
				p.submit(x.batchCreation(batch(fmt.Sprintf("b%d", n), kind.atomic, items...)))
				p.run()
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(n*kind.items), "µs/item")
		})
	}
}
