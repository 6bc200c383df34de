package allocation

import (
	"math"
	"math/bits"
)

// need is one resource of a request, or of its chunk, beside its column.
type need struct {
	column *column
	amount int64
	// weight turns what is missing into a share of the amount: floor(2^62 / amount).
	weight uint64
	// factor turns a unit price << rateShift into an addend of the price per requested core, rounded
	// down: floor(2^(64-rateShift) * units per core), saturating.
	factor uint64
	// near and nearOrTied are the least that a cluster must have to be a nearer miss, or as near a one,
	// than the farthest that is listed.
	near, nearOrTied int64
}

const (
	// A missing share is missing * weight >> shareLoss, in parts of 2^30.
	weightShift = 62
	shareLoss   = 32
)

// missing is the share of the amount that is not there, from 0 to 2^30.
func (n *need) missing(have int64) uint64 {
	if have >= n.amount {
		return 0
	}
	return uint64(n.amount-have) * n.weight >> shareLoss
}

// priceAt is the hourly price of the request at a priced cluster: each addend rounded down, saturating.
func (s *scan) priceAt(i int) int64 {
	var sum int64
	for n := range s.needs {
		need := &s.needs[n]
		sum = saturatingAdd(sum, need.column.kind.price(uint64(need.amount), need.column.rate[i]>>rateShift))
	}
	return sum
}

// perCore is the price per requested core, rounded down, saturating; of the whole request where it
// names no cpu.
func (s *scan) perCore(price int64) int64 { return pricePerCore(price, s.coreMilli) }

func pricePerCore(price, coreMilli int64) int64 {
	hi, lo := bits.Mul64(uint64(price), milliPerCore)
	if hi >= uint64(coreMilli) {
		return math.MaxInt64
	}
	quotient, _ := bits.Div64(hi, lo, uint64(coreMilli))
	return int64(min(quotient, math.MaxInt64))
}

// costScore of a price of the request, in ppb, rounded down: 1 / (1 + price per core).
func (s *scan) costScore(price int64) int64 { return costScore(s.perCore(price)) }

func costScore(perCore int64) int64 { return billion * billion / saturatingAdd(billion, perCore) }

// resourceScore of a feasible cluster: the mean of what is left of cpu and of memory, each rounded down.
func (m *Market) resourceScore(i int) int64 {
	cpuLeft := floorShare(m.cpu.available[i]-m.scan.cpuAmount, m.cpu.allocatable[i])
	memoryLeft := floorShare(m.memory.available[i]-m.scan.memoryAmount, m.memory.allocatable[i])
	return (cpuLeft + memoryLeft) / 2
}

// lacks says whether a need is not met, and the greatest missing share.
func lacks(needs []need, i int, of func(*column) []int64) (share uint64, short bool) {
	for n := range needs {
		need := &needs[n]
		have := of(need.column)[i]
		if have < need.amount {
			short = true
			share = max(share, need.missing(have))
		}
	}
	return share, short
}

func availableOf(c *column) []int64 { return c.available }
func largestOf(c *column) []int64   { return c.largest }

// classify asks every filter of one cluster, in order. distance orders the misses of one reason.
func (m *Market) classify(i int, request *Request) (reason Reason, distance uint64) {
	s := &m.scan
	slot := m.slots[i]
	if closed := slot.offer.closed(); closed != ReasonNone {
		return closed, 0
	}
	if request.Target != "" && request.Target != m.ids[i] {
		return ReasonWrongTarget, 0
	}
	if selecting(request.Selector) && !request.Selector.Matches(slot) {
		return ReasonLabelMismatch, 0
	}
	if request.MaxPriceNano >= 0 {
		if !slot.offer.Prices.Priced {
			return ReasonUnpriced, 0
		}
		if price := s.priceAt(i); price > request.MaxPriceNano {
			return ReasonOverPrice, overPrice(price, request.MaxPriceNano)
		}
	}
	if share, short := lacks(s.needs, i, availableOf); short {
		return ReasonInsufficient, share
	}
	if share, short := lacks(s.chunk, i, largestOf); short {
		return ReasonFragmented, share
	}
	return ReasonNone, 0
}

// overPrice is how far above the limit, as a distance.
func overPrice(price, limit int64) uint64 { return min(uint64(price-limit), maxDistance) }
