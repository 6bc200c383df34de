package main

import (
	"context"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bourse-dev/bourse/allocation"
)

func write(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "data.csv")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestTwoShapesOfARegionGiveThePriceOfACoreAndAGiB(t *testing.T) {
	t.Parallel()
	books, err := readPrices(write(t, `cloud,region,instance_type,vcpus,memory_gib,usd_per_hour,spot_usd_per_hour
azure,north,D4,4,16,0.24,0.04
gcp,north,n2,4,16,1,1
azure,north,E4,4,32,0.32,0.03
`))
	require.ErrorContains(t, err, "no region", "spot memory would be cheaper than nothing")
	require.Nil(t, books)
	books, err = readPrices(write(t, `cloud,region,instance_type,vcpus,memory_gib,usd_per_hour,spot_usd_per_hour
azure,north,D4,4,16,0.24,0.04
azure,north,E4,4,32,0.32,0.048
`))
	require.NoError(t, err)
	require.Len(t, books, 2)
	unit := books[0].regions[0].Unit
	require.InDelta(t, 0.04*nano, unit[0].Nano, 1)
	require.InDelta(t, 0.005*nano, unit[1].Nano, 1)
	require.InDelta(t, 0.0005*nano, books[1].regions[0].Unit[1].Nano, 1)
}

func TestRequestsWithoutALifetimeAreLeftOut(t *testing.T) {
	t.Parallel()
	list, err := readSizes(write(t, `cpu_milli,memory_mib,num_gpu,creation_s,deletion_s
1000,2048,0,604900,604960
1000,2048,0,604900,
1000,0,0,1,2
`))
	require.NoError(t, err)
	require.Equal(t, []demand{{1000, 2 * gib, 100, 60}}, list)
	_, err = readSizes(write(t, "cpu_milli\n1\n"))
	require.ErrorContains(t, err, "no column")
}

func TestSavedComparesWhatBothGranted(t *testing.T) {
	t.Parallel()
	no := math.NaN()
	ours, theirs := &outcome{costs: []float64{3, 10, no, 3}}, &outcome{costs: []float64{4, no, 10, 4}}
	require.InDelta(t, 25, saved(ours, theirs), 1e-9)
	require.InDelta(t, -100.0/3, saved(theirs, ours), 1e-9)
	require.Zero(t, saved(ours, &outcome{costs: []float64{no, no, no, no}}))
}

func TestSpread(t *testing.T) {
	t.Parallel()
	s := spread{[]float64{3, 1, 2, 10}}
	require.Equal(t, "1.0 / **2.5** / 10.0", s.text(1))
	require.Equal(t, "not measured", (&spread{}).text(1))
	require.Equal(t, []string{"missed", "met", "exceeded"},
		[]string{underRandom.verdict(19.9), underRandom.verdict(20), underRandom.verdict(31)})
}

func TestTheBestIsTheCheapestOfThoseThatRefuseLittle(t *testing.T) {
	t.Parallel()
	of := func(saved, refused float64) figures {
		return figures{savedRandom: spread{[]float64{saved}}, refused: spread{[]float64{refused}}}
	}
	require.Equal(t, 1, bestOf([]figures{of(1, 2), of(5, 2.4), of(9, 2.6)}))
}

func TestTheSameSeedGivesTheSameScene(t *testing.T) {
	t.Parallel()
	a, b := newScene(7, 10, 0.75, generatedPrices(), generatedSizes()), newScene(7, 10, 0.75, generatedPrices(), generatedSizes())
	require.Equal(t, a, b)
	require.NotEqual(t, a.arrivals, newScene(8, 10, 0.75, generatedPrices(), generatedSizes()).arrivals)
	require.True(t, slices.IsSortedFunc(a.arrivals, func(x, y arrival) int { return int(x.at - y.at) }))
}

func TestNoChoiceOverfillsAClusterOrTakesTheRequestersOwn(t *testing.T) {
	t.Parallel()
	s := newScene(3, 4, 1.5, generatedPrices(), generatedSizes())
	for _, c := range choosers() {
		w, err := newWorld(&s, c)
		require.NoError(t, err)
		w.run()
		require.Positive(t, w.out.refused, "%s: at this load somebody is refused", c.name)
		require.Less(t, w.out.refused, w.out.asked, c.name)
		require.Greater(t, w.out.used, 0.3, c.name)
		held := make([]room, len(s.offers))
		for k, cluster := range w.at {
			require.NotEqual(t, s.arrivals[k].from, cluster)
		}
		for k := 0; k < len(s.arrivals); k += 500 {
			for i := range s.arrivals[:k] { // what began before and is not over
				if s.arrivals[i].until > s.arrivals[k].at && w.at[i] != nowhere {
					held[w.at[i]].cpuMilli += s.arrivals[i].size.cpuMilli
					held[w.at[i]].memory += s.arrivals[i].size.memory
				}
			}
			for i := range held {
				require.True(t, held[i].fits(s.spare[i]), "%s: cluster %d holds %v of %v", c.name, i, held[i], s.spare[i])
				held[i] = room{}
			}
		}
	}
}

func TestEveryPlaceIsGivenBack(t *testing.T) {
	t.Parallel()
	s := newScene(5, 6, 0.75, generatedPrices(), generatedSizes())
	w, err := newWorld(&s, standard)
	require.NoError(t, err)
	w.run()
	w.depart(math.MaxInt64)
	require.Equal(t, s.spare, w.free)
}

func TestTheCheapestChoiceSpendsLeastWhereThereIsRoom(t *testing.T) {
	t.Parallel()
	s := newScene(1, 12, 0.05, generatedPrices(), generatedSizes())
	spent := map[string]float64{}
	for _, c := range []chooser{standard, randomChoice, resourceOnly, cheapest, firstFit} {
		out, err := simulate(&s, c)
		require.NoError(t, err)
		require.Zero(t, out.refused, c.name)
		spent[c.name] = out.money
	}
	for name, money := range spent {
		require.GreaterOrEqual(t, money, spent[cheapest.name], name)
	}
	require.Less(t, spent[standard.name], spent[resourceOnly.name])
}

func TestTheTableHoldsEveryComparison(t *testing.T) {
	t.Parallel()
	s := study{books: []book{generatedPrices()}, sizes: generatedSizes(), clusters: []int{4}, loads: []float64{usualLoad}, seeds: 2}
	r, err := s.run(context.Background(), io.Discard)
	require.NoError(t, err)
	var text strings.Builder
	require.NoError(t, s.write(&text, r))
	for _, want := range []string{"| generated | 4 | 75 % |", "| 4 | first-fit |", "| 4 | 70/30 |", "1/1000"} {
		require.Contains(t, text.String(), want)
	}
	require.NotContains(t, text.String(), "NaN")
	require.NotContains(t, text.String(), "not measured")
}

func TestRandomOrderVisitsAll(t *testing.T) {
	t.Parallel()
	order := randomOrder(50, 9)
	require.NotEqual(t, inOrder(50, 0), order)
	slices.Sort(order)
	require.Equal(t, inOrder(50, 0), order)
}

func TestPricesAreThoseOfTheAllocator(t *testing.T) {
	t.Parallel()
	s := newScene(2, 4, 0.1, generatedPrices(), generatedSizes())
	w, err := newWorld(&s, cheapest)
	require.NoError(t, err)
	a := &s.arrivals[0]
	best := w.choose(a)
	prices := s.offers[w.clusters[best.ClusterID]].Prices.Unit
	byHand := float64(a.size.cpuMilli)/1000*float64(prices[0].Nano) + float64(a.size.memory)/gib*float64(prices[1].Nano)
	require.InDelta(t, byHand, best.PriceNano, 2)
	require.Equal(t, allocation.CPU, prices[0].Resource)
}
