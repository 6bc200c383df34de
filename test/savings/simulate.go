package main

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/bourse-dev/bourse/allocation"
)

// chooser is one way to place requests. Every one asks the same allocator what fits and what it costs.
type chooser struct {
	name   string
	policy allocation.Policy                     // of a chooser that ranks
	order  func(clusters int, luck uint64) []int // of one that asks about one cluster after the other
}

var (
	standard     = weighing("70/30", 70, 30)
	resourceOnly = weighing("resource-only", 1, 0)
	cheapest     = weighing("cheapest-only", 0, 1)
	randomChoice = chooser{name: "random", order: randomOrder}
	firstFit     = chooser{name: "first-fit", order: inOrder}
)

func weighing(name string, resource, cost int64) chooser {
	return chooser{name: name, policy: allocation.Policy{ResourceWeight: resource, CostWeight: cost}}
}

// outcome is what one chooser made of a scene, over the second week.
type outcome struct {
	asked, refused int
	costs          []float64 // of each arrival; NaN where it was refused
	coreHours      float64   // granted
	money          float64
	fragmented     float64 // mean over the week, a share of the free cores
	used           float64 // mean over the week, a share of the spare cores
}

// simulate places every arrival of the scene.
func simulate(s *scene, c chooser) (outcome, error) {
	w, err := newWorld(s, c)
	if err != nil {
		return outcome{}, err
	}
	w.run()
	return w.out, nil
}

const nowhere = -1

// world is one run in progress.
type world struct {
	scene    *scene
	market   *allocation.Market
	chooser  chooser
	clusters map[string]int
	free     []room
	at       []int // of each arrival so far: its cluster, or nowhere
	gone     int   // how many of scene.leaving are over
	decision allocation.Decision
	samples  int
	out      outcome
}

func newWorld(s *scene, c chooser) (*world, error) {
	w := &world{
		scene: s, market: allocation.NewMarket(), chooser: c, clusters: map[string]int{},
		free: slices.Clone(s.spare), at: make([]int, len(s.arrivals)),
		out: outcome{costs: make([]float64, len(s.arrivals))},
	}
	if c.order == nil {
		if err := w.market.SetPolicy(c.policy); err != nil {
			return nil, err
		}
	}
	for i, offer := range s.offers {
		w.market.Set(offer)
		w.clusters[offer.ClusterID] = i
	}
	return w, nil
}

// run places the arrivals in order, and takes a sample each hour of the second week.
func (w *world) run() {
	const hour = 3600
	next := int64(week)
	for i := range w.scene.arrivals {
		now := w.scene.arrivals[i].at
		for ; next <= now; next += hour {
			w.depart(next)
			w.sample()
		}
		w.depart(now)
		w.place(i)
	}
	w.out.fragmented /= float64(w.samples)
	w.out.used /= float64(w.samples)
}

func (w *world) place(i int) {
	a := &w.scene.arrivals[i]
	measured := a.at >= week
	if measured {
		w.out.asked++
	}
	best := w.choose(a)
	if best == nil {
		w.at[i], w.out.costs[i] = nowhere, math.NaN()
		if measured {
			w.out.refused++
		}
		return
	}
	hours := float64(max(0, min(a.until, 2*week)-max(a.at, week))) / 3600
	w.out.costs[i] = float64(best.PriceNano) / nano * hours
	w.out.money += w.out.costs[i]
	w.out.coreHours += float64(a.size.cpuMilli) / 1000 * hours
	cluster := w.clusters[best.ClusterID]
	w.at[i] = cluster
	w.move(cluster, a.size, -1)
	w.market.Take(best.ClusterID, a.amounts)
}

// choose asks the allocator for the best cluster or, of a chooser that has an order of its own, about
// one cluster after the other.
func (w *world) choose(a *arrival) *allocation.Candidate {
	request := allocation.Request{
		Requester:    w.scene.offers[a.from].ClusterID,
		Amounts:      a.amounts,
		MaxPriceNano: allocation.NoPriceLimit,
	}
	if w.chooser.order == nil {
		w.market.Decide(&request, &w.decision)
		return w.decision.Best()
	}
	for _, i := range w.chooser.order(len(w.scene.offers), a.luck) {
		request.Target = w.scene.offers[i].ClusterID
		w.market.Decide(&request, &w.decision)
		if best := w.decision.Best(); best != nil {
			return best
		}
	}
	return nil
}

func (w *world) depart(now int64) {
	for ; w.gone < len(w.scene.leaving); w.gone++ {
		i := w.scene.leaving[w.gone]
		a := &w.scene.arrivals[i]
		if a.until > now {
			return
		}
		if w.at[i] != nowhere {
			w.move(w.at[i], a.size, +1)
			w.market.Give(w.scene.offers[w.at[i]].ClusterID, a.amounts)
		}
	}
}

func (w *world) move(cluster int, size room, sign int64) {
	w.free[cluster].cpuMilli += sign * size.cpuMilli
	w.free[cluster].memory += sign * size.memory
}

// typical is how many arrivals stand for all where fragmentation is measured.
const typical = 64

// sample measures fragmentation as Weng et al. (ATC 23) do: the share of free cores that a request of
// the usual mix finds where it does not fit.
func (w *world) sample() {
	var free, stranded, spare float64
	for i, f := range w.free {
		free += float64(f.cpuMilli)
		spare += float64(w.scene.spare[i].cpuMilli)
		for k := range typical {
			if !w.scene.arrivals[k*len(w.scene.arrivals)/typical].size.fits(f) {
				stranded += float64(f.cpuMilli) / typical
			}
		}
	}
	w.samples++
	w.out.used += 1 - free/spare
	if free > 0 {
		w.out.fragmented += stranded / free
	}
}

func randomOrder(clusters int, luck uint64) []int {
	return rand.New(rand.NewPCG(luck, 0)).Perm(clusters)
}

func inOrder(clusters int, _ uint64) []int {
	order := make([]int, clusters)
	for i := range order {
		order[i] = i
	}
	return order
}
