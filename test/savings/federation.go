package main

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/bourse-dev/bourse/allocation"
)

// scene is what all policies of one comparison are given alike.
type scene struct {
	offers   []allocation.Offer
	spare    []room // of each cluster
	arrivals []arrival
	leaving  []int // the arrivals by when they end
}

// room is capacity of one cluster.
type room struct{ cpuMilli, memory int64 }

// arrival is one request of the two weeks that are simulated.
type arrival struct {
	at, until int64 // seconds
	from      int   // the cluster that asks
	size      room
	amounts   allocation.Amounts // the size as the allocator takes it
	luck      uint64             // what a random choice is drawn from
}

const (
	leastCores, mostCores = 32.0, 512.0
	leastOwn, mostOwn     = 0.2, 0.6 // of a cluster's capacity, its own pods
	jitter                = 1800     // seconds; a trace drawn from with replacement repeats itself
)

// newScene draws a federation and the requests that ask load times its spare capacity of it.
func newScene(seed uint64, clusters int, load float64, prices book, sizes []demand) scene {
	random := rand.New(rand.NewPCG(seed, uint64(clusters)))
	s := scene{}
	regions := random.Perm(len(prices.regions))
	for i := range clusters {
		cores := math.Round(logUniform(random, leastCores, mostCores))
		perCore := []float64{4, 8}[random.IntN(2)] // GiB: the two shapes that regions state prices of
		all := room{int64(cores) * 1000, int64(cores*perCore) * gib}
		own := room{share(random, all.cpuMilli), share(random, all.memory)}
		s.offers = append(s.offers, allocation.Offer{
			ClusterID: fmt.Sprintf("cluster-%02d", i),
			Account:   &allocation.Account{Allocatable: all.amounts(), Allocated: own.amounts()},
			Prices:    prices.regions[regions[i%len(regions)]],
		})
		s.spare = append(s.spare, room{all.cpuMilli - own.cpuMilli, all.memory - own.memory})
	}
	s.arrive(random, load, sizes)
	return s
}

// arrive draws two weeks of requests: one to fill the federation, one to measure.
func (s *scene) arrive(random *rand.Rand, load float64, sizes []demand) {
	n := s.weekly(load, sizes)
	for w := range int64(2) {
		for range n {
			d := sizes[random.IntN(len(sizes))]
			at := (d.at+random.Int64N(2*jitter)+week-jitter)%week + w*week
			size := room{d.cpuMilli, d.memory}
			s.arrivals = append(s.arrivals, arrival{
				at: at, until: at + min(d.life, week), from: random.IntN(len(s.offers)),
				size: size, amounts: size.amounts(), luck: random.Uint64(),
			})
		}
	}
	slices.SortStableFunc(s.arrivals, func(x, y arrival) int { return cmp.Compare(x.at, y.at) })
	s.leaving = inOrder(len(s.arrivals), 0)
	slices.SortStableFunc(s.leaving, func(x, y int) int { return cmp.Compare(s.arrivals[x].until, s.arrivals[y].until) })
}

// weekly is how many requests a week ask load times the spare cores, or the spare memory where
// that is scarcer.
func (s *scene) weekly(load float64, sizes []demand) int {
	var spare, asked room
	for _, r := range s.spare {
		spare.cpuMilli += r.cpuMilli
		spare.memory += r.memory / mib
	}
	for _, d := range sizes {
		asked.cpuMilli += d.cpuMilli * min(d.life, week)
		asked.memory += d.memory / mib * min(d.life, week)
	}
	each := 1 / float64(len(sizes)) / week
	return int(load * min(float64(spare.cpuMilli)/(float64(asked.cpuMilli)*each),
		float64(spare.memory)/(float64(asked.memory)*each)))
}

func (r room) amounts() allocation.Amounts {
	return allocation.NewAmounts(allocation.Amount{Resource: allocation.CPU, Value: r.cpuMilli},
		allocation.Amount{Resource: allocation.Memory, Value: r.memory})
}

func (r room) fits(into room) bool { return r.cpuMilli <= into.cpuMilli && r.memory <= into.memory }

func share(random *rand.Rand, of int64) int64 {
	return int64(float64(of) * (leastOwn + (mostOwn-leastOwn)*random.Float64()))
}

func logUniform(random *rand.Rand, low, high float64) float64 {
	return low * math.Pow(high/low, random.Float64())
}
