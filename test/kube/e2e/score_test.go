package e2e

import (
	"fmt"
	"math/big"
	"testing"
)

// The formula of the documents in exact fractions, written apart from the product's fixed-point code:
//
//	left          = (available - requested) / allocatable
//	resourceScore = 0.5*cpuLeft + 0.5*memoryLeft
//	price         = hourly price of the request / requested cores
//	costScore     = 1 / (1 + price)
//	score         = 0.70*resourceScore + 0.30*costScore

// tolerance in parts per billion: fixed-point steps may each round once.
const tolerance = 3

// prices of one core and of one GiB for an hour, as decimal strings.
type prices struct{ cpu, memory string }

// expected is a candidate as it should look, in parts per billion.
type expected struct {
	available                         amounts
	perHour                           *big.Rat
	resourceScore, costScore, score   int64
	resourceExact, costExact, allTold *big.Rat
}

func expect(allocatable, available, requested amounts, p prices) expected {
	e := expected{available: available}
	left := func(available, requested, allocatable int64) *big.Rat {
		return big.NewRat(available-requested, allocatable)
	}
	half, one := big.NewRat(1, 2), big.NewRat(1, 1)
	e.resourceExact = times(half, plus(
		left(available.cpu, requested.cpu, allocatable.cpu),
		left(available.memory, requested.memory, allocatable.memory)))
	cores := big.NewRat(requested.cpu, 1000)
	e.perHour = plus(times(cores, decimal(p.cpu)), times(big.NewRat(requested.memory, gibi), decimal(p.memory)))
	perCore := new(big.Rat).Quo(e.perHour, cores)
	e.costExact = new(big.Rat).Quo(one, plus(one, perCore))
	e.allTold = plus(times(big.NewRat(7, 10), e.resourceExact), times(big.NewRat(3, 10), e.costExact))
	e.resourceScore, e.costScore, e.score = billionths(e.resourceExact), billionths(e.costExact), billionths(e.allTold)
	return e
}

func plus(a, b *big.Rat) *big.Rat  { return new(big.Rat).Add(a, b) }
func times(a, b *big.Rat) *big.Rat { return new(big.Rat).Mul(a, b) }

// sameNumber compares a number that the product shows, with however many zeros, with one of this suite.
func sameNumber(shown, want string) bool {
	r, ok := new(big.Rat).SetString(shown)
	return ok && r.Cmp(decimal(want)) == 0
}

// decimal reads a constant of this suite.
func decimal(s string) *big.Rat {
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		panic(fmt.Sprintf("%q is no decimal number", s))
	}
	return r
}

func billionths(r *big.Rat) int64 {
	scaled := times(r, big.NewRat(1_000_000_000, 1))
	return new(big.Int).Quo(scaled.Num(), scaled.Denom()).Int64()
}

func (e expected) String() string {
	return fmt.Sprintf("available %s; %s per hour; resource %d, cost %d, score %d",
		e.available, e.perHour.FloatString(3), e.resourceScore, e.costScore, e.score)
}

// agrees compares a candidate that the product shows with the arithmetic.
func (e expected) agrees(t *testing.T, c candidate) {
	t.Helper()
	if !c.Feasible {
		t.Errorf("%s is not feasible: %s", c.ClusterID, c.Reason)
	}
	if got := amountsOf(c.Available); got != e.available {
		t.Errorf("%s: available %s, want %s", c.ClusterID, got, e.available)
	}
	if !sameNumber(c.PricePerHour, e.perHour.RatString()) {
		t.Errorf("%s: price per hour %q, want %s", c.ClusterID, c.PricePerHour, e.perHour.FloatString(9))
	}
	for name, pair := range map[string][2]int64{
		"resourceScore": {c.ResourceScore, e.resourceScore},
		"costScore":     {c.CostScore, e.costScore},
		"score":         {c.Score, e.score},
	} {
		if pair[0] < pair[1]-tolerance || pair[0] > pair[1]+tolerance {
			t.Errorf("%s: %s %d, want %d (within %d)", c.ClusterID, name, pair[0], pair[1], tolerance)
		}
	}
	t.Logf("%-6s shows score %d; by arithmetic: %s", c.ClusterID, c.Score, e)
}
