package allocation

import (
	"fmt"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
)

// shape is a way in which a market can be full.
type shape struct {
	name   string
	offers func(n int) []Offer
}

// own says how many of 1000 parts of the cluster its own pods use.
func shapeOf(name string, own func(random *rand.Rand, i, n int) int64, model func(random *rand.Rand, i int) (cores, gib, nano int64)) shape {
	return shape{name, func(n int) []Offer {
		random := rand.New(rand.NewSource(int64(n)))
		offers := make([]Offer, n)
		for i := range offers {
			cores, gib, nano := model(random, i)
			inUse := own(random, i, n)
			cpu, memory := cores*1000, gib<<30
			offers[i] = Offer{
				ClusterID: fmt.Sprintf("cluster-%05d", i),
				Region:    []string{"eu", "us", "asia"}[i%3],
				Account: &Account{
					Allocatable: NewAmounts(Amount{CPU, cpu}, Amount{Memory, memory}),
					Allocated:   NewAmounts(Amount{CPU, cpu * inUse / 1000}, Amount{Memory, memory / 1000 * inUse}),
				},
				LargestFree: NewAmounts(Amount{CPU, min(cpu, 16_000)}, Amount{Memory, min(memory, 64<<30)}),
				Prices:      Prices{Priced: true, Unit: []UnitPrice{{CPU, nano}, {Memory, nano / 10}}},
			}
		}
		return offers
	}}
}

func mixed(random *rand.Rand, _ int) (cores, gib, nano int64) {
	return 8 + random.Int63n(500), 32 + random.Int63n(2000), random.Int63n(1_000_000_000)
}

func alike(*rand.Rand, int) (cores, gib, nano int64) { return 64, 256, 500_000_000 }

var shapes = []shape{
	shapeOf("empty", func(*rand.Rand, int, int) int64 { return 0 }, mixed),
	shapeOf("half", func(random *rand.Rand, _, _ int) int64 { return random.Int63n(1001) }, mixed),
	shapeOf("crowded", func(random *rand.Rand, _, _ int) int64 { return 990 + random.Int63n(11) }, mixed),
	shapeOf("full", func(*rand.Rand, int, int) int64 { return 1000 }, mixed),
	shapeOf("alike-empty", func(*rand.Rand, int, int) int64 { return 0 }, alike),
	shapeOf("alike-crowded", func(*rand.Rand, int, int) int64 { return 999 }, alike),
	shapeOf("rising", func(_ *rand.Rand, i, n int) int64 { return int64(1000 - 1000*i/n) }, alike),
	shapeOf("falling", func(_ *rand.Rand, i, n int) int64 { return int64(1000 * i / n) }, alike),
}

// hardShapes have many ties and near ties, where a bound that is a hair too tight loses a cluster.
var hardShapes = []shape{
	// The best make is not in the first block, so that lower IDs come late.
	shapeOf("makes", func(*rand.Rand, int, int) int64 { return 0 }, func(random *rand.Rand, i int) (cores, gib, nano int64) {
		if i < blockSize {
			return 8, 32, 900_000_000
		}
		make := random.Int63n(3)
		return 64 << make, 256 << make, 500_000_000
	}),
	shapeOf("pennies", func(*rand.Rand, int, int) int64 { return 0 }, func(random *rand.Rand, _ int) (cores, gib, nano int64) {
		return 64, 256, random.Int63n(3000)
	}),
	{"crumbs", func(n int) []Offer {
		random := rand.New(rand.NewSource(int64(n)))
		offers := make([]Offer, n)
		for i := range offers {
			offers[i] = Offer{
				ClusterID: fmt.Sprintf("cluster-%05d", i),
				Account: &Account{
					Allocatable: NewAmounts(Amount{CPU, 3e12}, Amount{Memory, 7e15}),
					Allocated:   NewAmounts(Amount{CPU, random.Int63n(20_000)}, Amount{Memory, random.Int63n(30_000_000)}),
				},
				LargestFree: Amounts{{CPU, 1 + random.Int63n(4000)}},
				Prices:      Prices{Priced: i%5 > 0, PerHour: random.Int63n(5)},
			}
		}
		return offers
	}},
}

func usual(request Request) *Request {
	request.Requester = "cluster-00000"
	request.Amounts = NewAmounts(Amount{CPU, 4000}, Amount{Memory, 8 << 30})
	if request.MaxPriceNano == 0 {
		request.MaxPriceNano = NoPriceLimit
	}
	return &request
}

func BenchmarkDecide(b *testing.B) {
	for _, shape := range shapes {
		for _, n := range []int{10, 100, 1_000, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", shape.name, n), func(b *testing.B) {
				benchmarkDecide(b, shape.offers(n), usual(Request{}))
			})
		}
	}
}

// The other ways through the scan, at 10,000 clusters half used.
func BenchmarkDecideWith(b *testing.B) {
	offers := shapes[1].offers(10_000)
	someUnpriced := append([]Offer(nil), offers...)
	for i := range someUnpriced {
		if i%4 == 0 {
			someUnpriced[i].Prices = Prices{}
		}
	}
	selector, err := labels.Parse("region in (eu,us)")
	require.NoError(b, err)
	b.Run("selector", func(b *testing.B) { benchmarkDecide(b, offers, usual(Request{Selector: selector})) })
	b.Run("target", func(b *testing.B) { benchmarkDecide(b, offers, usual(Request{Target: "cluster-05000"})) })
	b.Run("limit", func(b *testing.B) { benchmarkDecide(b, offers, usual(Request{MaxPriceNano: 2e9})) })
	b.Run("chunk", func(b *testing.B) {
		benchmarkDecide(b, offers, usual(Request{Chunk: Amounts{{CPU, 12_000}}}))
	})
	b.Run("unpriced", func(b *testing.B) { benchmarkDecide(b, someUnpriced, usual(Request{})) })
}

func benchmarkDecide(b *testing.B, offers []Offer, request *Request) {
	m := marketOf(offers)
	var d Decision
	m.Decide(request, &d)
	b.ReportAllocs()
	for b.Loop() {
		m.Decide(request, &d)
	}
}

func BenchmarkMarketUpdate(b *testing.B) {
	offers := shapes[1].offers(10_000)
	m := marketOf(offers)
	amounts := usual(Request{}).Amounts
	b.Run("set", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			m.Set(offers[i%len(offers)])
		}
	})
	b.Run("take-give", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			m.Take(offers[i%len(offers)].ClusterID, amounts)
			m.Give(offers[i%len(offers)].ClusterID, amounts)
		}
	})
}

func TestDecidingAllocatesNothing(t *testing.T) {
	selector, err := labels.Parse("region in (eu,us),!tier")
	require.NoError(t, err)
	for _, shape := range shapes {
		m := marketOf(shape.offers(1000))
		for _, request := range []*Request{
			usual(Request{}), usual(Request{Selector: selector}), usual(Request{Target: "cluster-00500"}),
			usual(Request{MaxPriceNano: 2e9}), usual(Request{Chunk: Amounts{{CPU, 12_000}}}),
		} {
			var d Decision
			require.Zero(t, testing.AllocsPerRun(10, func() { m.Decide(request, &d) }), shape.name)
		}
	}
}
