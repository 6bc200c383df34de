package allocation

import (
	"math/bits"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func marketOf(offers []Offer) *Market {
	m := NewMarket()
	for _, o := range offers {
		m.Set(o)
	}
	return m
}

// requireCandidate compares what a decision says of one cluster with what the oracle says.
func requireCandidate(t require.TestingT, want *oracleCluster, got *Candidate) {
	require.Equal(t, want.id, got.ClusterID)
	require.Equal(t, want.reason, got.Reason, want.id)
	price := Unpriced
	if want.price != nil {
		price = want.price.Int64()
	}
	require.Equal(t, price, got.PriceNano, want.id)
	require.Equal(t, want.available, append([]int64(nil), got.Available[:len(want.available)]...), want.id)
	require.Equal(t, want.largest, append([]int64(nil), got.LargestFree[:len(want.largest)]...), want.id)
	if want.reason == ReasonNone {
		require.Equal(t, want.resource.Int64(), got.ResourceScore, want.id)
		require.Equal(t, want.costScore.Int64(), got.CostScore, want.id)
		require.Equal(t, want.score.Int64(), got.Score, want.id)
	}
}

func requireDecision(t require.TestingT, want oracleVerdict, d *Decision) {
	require.Equal(t, want.considered, d.Considered)
	require.Equal(t, len(want.feasible), d.Feasible)
	require.Equal(t, want.excluded, d.Excluded)
	require.Equal(t, len(want.feasible) > 0, d.Found)
	require.Len(t, d.Ranked(), min(Listed, len(want.feasible)))
	for i := range d.Ranked() {
		requireCandidate(t, &want.feasible[i], &d.Ranked()[i])
	}
	var listed []oracleCluster
	for _, c := range want.misses {
		if c.reason != ReasonWrongTarget && len(listed) < Listed {
			listed = append(listed, c)
		}
	}
	require.Len(t, d.Nearest(), len(listed))
	for i := range listed {
		requireCandidate(t, &listed[i], &d.Nearest()[i])
	}
}

// oracleFor leaves out of the misses what Decide does not list when there is a target.
func oracleFor(offers []Offer, request *Request, policy Policy) oracleVerdict {
	want := oracleDecide(offers, request, policy)
	if request.Target != "" {
		kept := want.misses[:0:0]
		for _, c := range want.misses {
			if c.id == request.Target {
				kept = append(kept, c)
			}
		}
		want.misses = kept
	}
	return want
}

func TestDecisionsAreWhatTheOracleSays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		offers := offersGen().Draw(t, "offers")
		m := marketOf(offers)
		policy := rapid.SampledFrom([]Policy{DefaultPolicy(), {1, 0}, {0, 1}, {1000, 1000}, {1, 3}}).Draw(t, "policy")
		require.NoError(t, m.SetPolicy(policy))
		var d Decision
		for range 3 {
			request := requestGen().Draw(t, "request")
			m.Decide(&request, &d)
			requireDecision(t, oracleFor(offers, &request, policy), &d)

			want := oracleDecide(offers, &request, policy)
			table := m.Explain(&request)
			require.Len(t, table, want.considered)
			for i, c := range append(want.feasible, want.misses...) {
				requireCandidate(t, &c, &table[i])
			}
		}
	})
}

// Large markets reach the bars and the strides that small ones do not.
func TestLargeMarketsAreDecidedAsTheOracleSays(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewSource(1))
	for _, shape := range append(hardShapes, shapes...) {
		for _, n := range []int{700, 3000} {
			offers := shape.offers(n)
			m := marketOf(offers)
			var d Decision
			for i := range 16 {
				policy := []Policy{DefaultPolicy(), {0, 1}, {1, 0}, {1, 999}}[i%4]
				require.NoError(t, m.SetPolicy(policy))
				request := Request{
					Requester:    offers[random.Intn(n)].ClusterID,
					Amounts:      NewAmounts(Amount{CPU, 1 + random.Int63n(8000)}, Amount{Memory, 1 + random.Int63n(16<<30)}),
					MaxPriceNano: NoPriceLimit,
				}
				if random.Intn(2) == 0 {
					request.Amounts = NewAmounts(Amount{CPU, 1 + random.Int63n(9)}, Amount{Memory, 1 + random.Int63n(9)})
				}
				if random.Intn(3) == 0 {
					request.Chunk = Amounts{{CPU, 1 + random.Int63n(4000)}}
				}
				if random.Intn(3) == 0 {
					request.MaxPriceNano = random.Int63n(4e9)
				}
				m.Decide(&request, &d)
				requireDecision(t, oracleFor(offers, &request, policy), &d)
			}
		}
	}
}

// The guard before the division that finds the highest rate: a bar just above what an idle cluster has.
func TestABarThatHardlyAnyPriceMissesLetsEveryRateThrough(t *testing.T) {
	t.Parallel()
	policy := Policy{ResourceWeight: 1, CostWeight: 1000}
	s := scan{cpuPriced: 1, leastCap: 1}
	s.costHi, s.costLo = bits.Mul64(2*1000, billion*billion)
	s.best.n = 1
	for score := int64(0); score < 100; score++ {
		s.best.list[0].score = 2*billion/2002 + score
		s.raiseBar(policy)
		require.Positive(t, s.mostRate)
	}
}

func TestTakingAndGivingIsTheSameAsSetting(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		offers := offersGen().Filter(func(o []Offer) bool { return len(o) > 0 }).Draw(t, "offers")
		taken := marketOf(offers)
		request := requestGen().Draw(t, "request")
		var d Decision
		taken.Decide(&request, &d) // so that its columns are there
		for range rapid.IntRange(1, 20).Draw(t, "moves") {
			i := rapid.IntRange(0, len(offers)-1).Draw(t, "cluster")
			amounts := amountsGen(testResources, 1).Draw(t, "amounts")
			taken.Take(offers[i].ClusterID, amounts)
			if rapid.Bool().Draw(t, "given back") {
				taken.Give(offers[i].ClusterID, amounts)
				continue
			}
			account := *offers[i].Account
			account.HeldOrUsed = account.HeldOrUsed.Add(amounts)
			offers[i].Account = &account
			offers[i].Holds++
		}
		taken.Take("nobody", request.Amounts)
		taken.Decide(&request, &d)
		requireDecision(t, oracleFor(offers, &request, DefaultPolicy()), &d)
	})
}

// Whatever order clusters come and go in, the market is as if made anew.
func TestSettingAndRemovingInAnyOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		offers := offersGen().Draw(t, "offers")
		m := NewMarket()
		request := requestGen().Draw(t, "request")
		var d Decision
		order := rapid.Permutation(offers).Draw(t, "order")
		for i := range order {
			m.Set(order[i])
			if i == len(order)/2 {
				m.Decide(&request, &d) // makes columns half-way
			}
		}
		var kept []Offer
		for i := range offers {
			switch rapid.IntRange(0, 3).Draw(t, "fate") {
			case 0:
				m.Remove(offers[i].ClusterID)
				continue
			case 1:
				id := offers[i].ClusterID
				offers[i] = offerGen(id).Draw(t, "changed")
				m.Set(offers[i])
			}
			kept = append(kept, offers[i])
		}
		m.Remove("nobody")
		require.Equal(t, len(kept), m.Len())
		m.Decide(&request, &d)
		requireDecision(t, oracleFor(kept, &request, DefaultPolicy()), &d)
	})
}

func TestColumnsOfForgottenResourcesAreMadeAgain(t *testing.T) {
	t.Parallel()
	var names []string
	var list []Amount
	for i := range 3 * maxColumns {
		names = append(names, "vendor.example/r"+string(rune('a'+i%26))+string(rune('a'+i/26)))
		list = append(list, Amount{names[i], int64(i + 1)})
	}
	m := NewMarket()
	account := Account{Allocatable: NewAmounts(list...)}
	m.Set(Offer{ClusterID: "paris", Account: &account})
	var d Decision
	for round := range 2 {
		for i, name := range names {
			m.Decide(&Request{Amounts: Amounts{{name, int64(i + 1)}}, MaxPriceNano: NoPriceLimit}, &d)
			require.True(t, d.Found, "%d %s", round, name)
			m.Decide(&Request{Amounts: Amounts{{name, int64(i + 2)}}, MaxPriceNano: NoPriceLimit}, &d)
			require.False(t, d.Found, "%d %s", round, name)
		}
	}
	require.LessOrEqual(t, len(m.columns), maxColumns)
}
