package allocation

import (
	"math/bits"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// rank offers the priced feasible clusters of one block to the list of the best. Most of them can't come
// among the best, and that is found out without a division: first by a sieve for the whole block, then
// with left and cost bounded from above,
//
//	2*weighted = resourceWeight*(cpuLeft+memoryLeft) + 2*costWeight*1e18/(1e9+perCore)
//
// reaches the bar only if (bar - resourceWeight*(cpuLeft+memoryLeft)) * (1e9+perCore) <= 2*costWeight*1e18.
func (m *Market) rank(block int, feasible uint64) {
	s := &m.scan
	if s.best.full() {
		if s.manyAlike {
			feasible = m.dropAlike(block, feasible)
		}
		if feasible != 0 {
			feasible &= sieve(blockOf(m.cpu.left, block), blockOf(m.memory.left, block), s.leastLeft,
				blockOf(m.cpu.rate, block), s.mostRate)
		}
		if bits.OnesCount64(feasible) >= manyAlike {
			feasible = m.dropAlike(block, feasible)
		}
	}
	weight, costHi, costLo := m.policy.ResourceWeight, s.costHi, s.costLo
	for ; feasible != 0; feasible &= feasible - 1 {
		i := block*blockSize + bits.TrailingZeros64(feasible)
		if open := s.bar - weight*m.mostLeft(i); open > 0 {
			hi, lo := bits.Mul64(uint64(open), m.leastCost(i))
			if hi > costHi || hi == costHi && lo > costLo {
				continue
			}
		}
		m.consider(i)
	}
}

// mostLeft is what at most is left of cpu and memory together, in ppb.
func (m *Market) mostLeft(i int) int64 {
	cpuGone, _ := bits.Mul64(m.cpu.share[i], m.scan.cpuAsked)
	memoryGone, _ := bits.Mul64(m.memory.share[i], m.scan.memoryAsked)
	return int64(m.cpu.left[i]) + int64(m.memory.left[i]) - int64(cpuGone) - int64(memoryGone)
}

// leastCost is what 1 + price per core is at least, in billionths.
func (m *Market) leastCost(i int) uint64 {
	s := &m.scan
	least, _ := bits.Mul64(m.memory.rate[i], s.memoryFactor)
	least += s.leastBase + m.cpu.rate[i]>>rateShift&s.cpuPriced
	if len(s.extra) > 0 {
		least = s.addExtra(least, i)
	}
	return min(least, s.leastCap)
}

// manyAlike is from how many clusters on dropAlike costs less than ranking them. Where it drops as many,
// the next block is likely to be of the same kind and tries it first.
const manyAlike = 12

// dropAlike leaves out the clusters that have the same figures as the last of the best and come behind it
// by ID: idle clusters of one make are common, and bounds can't tell a tie from a little more.
func (m *Market) dropAlike(block int, feasible uint64) uint64 {
	s := &m.scan
	last := s.best.last().at
	if block*blockSize <= last || len(s.extra) > 0 || !m.isPriced(last) {
		return feasible
	}
	these, those := m.figures(block), m.figures(last/blockSize)
	alike := feasible & these.alike(&those, last%blockSize)
	s.manyAlike = bits.OnesCount64(alike) >= manyAlike
	return feasible &^ alike
}

func (m *Market) figures(block int) blockFigures {
	return blockFigures{
		cpuAvailable: blockOf(m.cpu.available, block), cpuAllocatable: blockOf(m.cpu.allocatable, block),
		memoryAvailable: blockOf(m.memory.available, block), memoryAllocatable: blockOf(m.memory.allocatable, block),
		cpuRate: blockOf(m.cpu.rate, block), memoryRate: blockOf(m.memory.rate, block),
	}
}

func (m *Market) isPriced(i int) bool { return m.priced[i/blockSize]>>(i%blockSize)&1 != 0 }

// addExtra adds the addends of resources other than cpu and memory, saturating.
func (s *scan) addExtra(least uint64, i int) uint64 {
	for n := range s.extra {
		addend, _ := bits.Mul64(s.extra[n].column.rate[i], s.extra[n].factor)
		least = min(least, 1<<62) + addend // addend < 2^63
	}
	return least
}

// consider ranks a priced feasible cluster exactly.
func (m *Market) consider(i int) {
	s := &m.scan
	if s.best.full() && i > s.best.last().at && m.sameFigures(i, s.best.last().at) {
		return // its equal, and behind it by ID: many clusters alike are common
	}
	price := s.priceAt(i)
	m.enter(ranked{at: i, resource: m.resourceScore(i), costScore: s.costScore(price), price: price})
}

// considerUnpriced ranks an unpriced feasible cluster at the cost score of the dearest.
func (m *Market) considerUnpriced(i int, costScore int64) {
	m.enter(ranked{at: i, resource: m.resourceScore(i), costScore: costScore, price: pricelessTie})
}

func (m *Market) enter(r ranked) {
	s := &m.scan
	r.score = m.policy.score(r.resource, r.costScore)
	if s.best.offer(r) && s.best.full() {
		s.raiseBar(m.policy)
	}
}

// raiseBar sets the bars by the last of the best.
func (s *scan) raiseBar(policy Policy) {
	s.bar = 2 * policy.total() * s.best.last().score
	s.leastLeft, s.mostRate = noLeastLeft, noMostRate
	if open := s.bar - 2*policy.CostWeight*billion; open > 0 && policy.ResourceWeight > 0 {
		s.leastLeft = open / policy.ResourceWeight // were it free of charge
	}
	open := s.bar - 2*policy.ResourceWeight*billion
	if open <= 0 || s.cpuPriced == 0 || s.costHi >= uint64(open) {
		return
	}
	most, _ := bits.Div64(s.costHi, s.costLo, uint64(open)) // were it idle
	if most < s.leastCap {
		rate := min(max(int64(most-s.leastBase), -1), broker.MaxUnitPrice)
		s.mostRate = (rate+1)<<rateShift - 1
	}
}

// sameFigures says whether two priced clusters score the same because all that counts is the same.
func (m *Market) sameFigures(i, j int) bool {
	if !m.isPriced(j) {
		return false
	}
	for _, c := range [...]*column{m.cpu, m.memory} {
		if c.available[i] != c.available[j] || c.allocatable[i] != c.allocatable[j] {
			return false
		}
	}
	for n := range m.scan.needs {
		if rate := m.scan.needs[n].column.rate; rate[i] != rate[j] {
			return false
		}
	}
	return true
}

// rankUnpriced ranks the feasible clusters without prices as if they were as dear as the dearest
// feasible one. It needs all others to be decided.
func (m *Market) rankUnpriced() {
	s := &m.scan
	costScore, known := int64(0), false
	for block, feasible := range s.feasible {
		unpriced := feasible &^ m.priced[block]
		if unpriced == 0 {
			continue
		}
		if !known {
			costScore, known = m.leastCostScore(), true
		}
		for ; unpriced != 0; unpriced &= unpriced - 1 {
			i := block*blockSize + bits.TrailingZeros64(unpriced)
			if s.bar-m.policy.ResourceWeight*m.mostLeft(i) > 2*m.policy.CostWeight*costScore {
				continue
			}
			m.considerUnpriced(i, costScore)
		}
	}
}

// leastCostScore is that of the dearest feasible cluster; 0 where none is priced.
func (m *Market) leastCostScore() int64 {
	dearest := Unpriced
	for block, feasible := range m.scan.feasible {
		for priced := feasible & m.priced[block]; priced != 0; priced &= priced - 1 {
			dearest = max(dearest, m.scan.priceAt(block*blockSize+bits.TrailingZeros64(priced)))
		}
	}
	if dearest == Unpriced {
		return 0
	}
	return m.scan.costScore(dearest)
}
