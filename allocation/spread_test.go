package allocation

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

var strategies = []broker.BlueprintStrategy{
	broker.StrategyRoundRobin, broker.StrategySpread, broker.StrategyPack, broker.StrategyCheapest, broker.StrategyBalanced,
}

// spreadGen draws sites and one slice to place on them.
func spreadGen(strategies ...broker.BlueprintStrategy) *rapid.Generator[func() *Spread] {
	return rapid.Custom(func(t *rapid.T) func() *Spread {
		offers := offersGen().Draw(t, "offers")
		if len(offers) > 12 {
			offers = offers[:12]
		}
		strategy := rapid.SampledFrom(strategies).Draw(t, "strategy")
		ask := requestGen().Draw(t, "request").Amounts
		offset := rapid.IntRange(0, 30).Draw(t, "offset")
		var running, most []int
		var open []bool
		for range offers {
			running = append(running, rapid.IntRange(0, 3).Draw(t, "running"))
			most = append(most, rapid.SampledFrom([]int{1, 2, 1000}).Draw(t, "most"))
			open = append(open, rapid.IntRange(0, 4).Draw(t, "open") > 0)
		}
		return func() *Spread { // each time the same, anew
			s := &Spread{Strategy: strategy, Ask: ask, Offset: offset}
			for i, o := range offers {
				s.Sites = append(s.Sites, Site{ClusterID: o.ClusterID, Account: *o.Account, Prices: o.Prices, Running: running[i]})
				s.Spots = append(s.Spots, Spot{Open: open[i], Most: most[i]})
			}
			return s
		}
	})
}

func counts(s *Spread) (list []int) {
	for i := range s.Spots {
		list = append(list, s.Spots[i].Count)
	}
	return list
}

func TestSpreadTakesNoMoreThanThereIsAndAllThatFits(t *testing.T) {
	t.Parallel()
	placedAny := 0
	rapid.Check(t, func(t *rapid.T) {
		s := spreadGen(strategies...).Draw(t, "spread")()
		before := make([]Account, len(s.Sites))
		fit := 0
		for i := range s.Sites {
			before[i] = s.Sites[i].Account
			if !s.Spots[i].Open {
				continue
			}
			for n := 1; n <= min(s.Spots[i].Most, 40); n++ {
				if _, ok := Fits(&before[i], s.Ask.Times(n)); !ok {
					break
				}
				fit++
			}
		}
		want := rapid.IntRange(0, 40).Draw(t, "instances")
		placed := s.Fill(want)
		require.Equal(t, min(want, fit), placed)
		placedAny += placed
		sum := 0
		for i, n := range counts(s) {
			sum += n
			require.True(t, n == 0 || s.Spots[i].Open, "closed to new instances")
			require.LessOrEqual(t, n, s.Spots[i].Most)
			if n > 0 {
				_, ok := Fits(&before[i], s.Ask.Times(n))
				require.True(t, ok, "%s is overdrawn", s.Sites[i].ClusterID)
			}
			require.Equal(t, before[i].HeldOrUsed.Add(s.Ask.Times(n)), s.Sites[i].Account.HeldOrUsed)
		}
		require.Equal(t, placed, sum)
	})
	require.Positive(t, placedAny)
}

func TestGrowingStepByStepIsPlacingAtOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		make := spreadGen(strategies...).Draw(t, "spread")
		first, more := rapid.IntRange(0, 12).Draw(t, "first"), rapid.IntRange(0, 12).Draw(t, "more")
		once, again, grown := make(), make(), make()
		once.Fill(first + more)
		again.Fill(first + more)
		require.Equal(t, counts(once), counts(again), "deterministic")
		grown.Fill(first)
		kept := make() // as a later reconciliation finds it
		for i, n := range counts(grown) {
			kept.Keep(i, n)
		}
		kept.Fill(first + more - sum(counts(kept)))
		require.Equal(t, counts(once), counts(kept))
	})
}

func TestWhatIsAddedLastIsRemovedFirst(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// Not Balanced: what an unpriced cluster scores depends on who else has room.
		make := spreadGen(strategies[:4]...).Draw(t, "spread")
		few, more := make(), make()
		n := few.Fill(rapid.IntRange(0, 12).Draw(t, "few"))
		m := more.Fill(n + rapid.IntRange(0, 12).Draw(t, "more"))
		more.Drop(m - n)
		require.Equal(t, counts(few), counts(more))
		more.Drop(1000)
		require.Zero(t, sum(counts(more)))
	})
}

// The second instance on a site ranks before its first, so the last to come is not simply the worst now.
func TestPackEmptiesTheSiteItFilledLast(t *testing.T) {
	t.Parallel()
	two := Account{Allocatable: Amounts{{CPU, 2}}}
	s := &Spread{
		Strategy: broker.StrategyPack, Ask: Amounts{{CPU, 1}},
		Sites: []Site{{ClusterID: "a", Account: two}, {ClusterID: "b", Account: two}},
		Spots: []Spot{{Open: true, Most: 1}, {Open: true, Most: 2}},
	}
	require.Equal(t, 3, s.Fill(3))
	require.Equal(t, []int{1, 2}, counts(s))
	s.Drop(2)
	require.Equal(t, []int{1, 0}, counts(s))
}

func TestInstancesLeaveClosedSitesFirst(t *testing.T) {
	t.Parallel()
	s := &Spread{Ask: Amounts{{CPU, 1000}}, Sites: make([]Site, 3), Spots: []Spot{{Open: true, Most: 9}, {Most: 9}, {Open: true, Most: 9}}}
	for i := range s.Sites {
		s.Keep(i, 2)
	}
	s.Drop(3)
	require.Equal(t, []int{2, 0, 1}, counts(s))
}

// One instance goes where the leader would have granted a reservation of the same size.
func TestBalancedPicksWhatADecisionPicks(t *testing.T) {
	t.Parallel()
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		offers, request := offersGen().Draw(t, "offers"), requestGen().Draw(t, "request")
		request = Request{Amounts: request.Amounts, MaxPriceNano: NoPriceLimit}
		if rapid.Bool().Draw(t, "small") { // what many clusters have
			request.Amounts = Amounts{{CPU, 1}}
		}
		m, s := NewMarket(), &Spread{Strategy: broker.StrategyBalanced, Ask: request.Amounts}
		for _, o := range offers {
			m.Set(o)
			s.Sites = append(s.Sites, Site{ClusterID: o.ClusterID, Account: *o.Account, Prices: o.Prices})
			s.Spots = append(s.Spots, Spot{Open: o.closed() == ReasonNone, Most: 1})
		}
		var d Decision
		m.Decide(&request, &d)
		s.Fill(1)
		winner := ""
		for i, n := range counts(s) {
			if n > 0 {
				winner = s.Sites[i].ClusterID
			}
		}
		if d.Found {
			found++
			require.Equal(t, d.Best().ClusterID, winner)
			at, _ := m.find(winner)
			require.Equal(t, d.Best().PriceNano, m.slots[at].offer.Prices.Price(request.Amounts))
		} else {
			require.Empty(t, winner)
		}
	})
	require.Positive(t, found)
}

func sum(list []int) (total int) {
	for _, n := range list {
		total += n
	}
	return total
}

func TestStrategiesByHand(t *testing.T) {
	t.Parallel()
	price := func(nano int64) Prices { return Prices{Priced: true, PerHour: nano} }
	cores := func(n int64) Account { return Account{Allocatable: Amounts{{CPU, n * 1000}}} }
	for name, c := range map[string]struct {
		strategy broker.BlueprintStrategy
		offset   int
		want     []int
	}{
		"one after another":             {broker.StrategyRoundRobin, 0, []int{3, 2, 2}},
		"one after another from second": {broker.StrategyRoundRobin, 4, []int{2, 3, 2}},
		"fewest of the blueprint":       {broker.StrategySpread, 0, []int{0, 4, 3}},
		"as few clusters as will do":    {broker.StrategyPack, 0, []int{4, 0, 3}},
		"the cheapest until it is full": {broker.StrategyCheapest, 0, []int{0, 5, 2}},
		"no strategy is RoundRobin":     {"", 0, []int{3, 2, 2}},
	} {
		s := &Spread{Strategy: c.strategy, Ask: Amounts{{CPU, 1000}}, Offset: c.offset, Spots: []Spot{{true, 99, 0}, {true, 99, 0}, {true, 99, 0}}}
		s.Sites = []Site{
			{ClusterID: "a", Account: cores(4), Prices: price(3), Running: 5},
			{ClusterID: "b", Account: cores(5), Prices: price(1)},
			{ClusterID: "c", Account: cores(9), Prices: price(2), Running: 1},
		}
		require.Equal(t, 7, s.Fill(7), name)
		require.Equal(t, c.want, counts(s), name)
	}
}
