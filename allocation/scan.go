package allocation

import (
	"math"
	"math/bits"
)

// scan is the scratch of one decision: the request beside the columns it needs, and the lists so far.
type scan struct {
	needs, chunk []need
	extra        []need // of needs, those whose price the inner loop does not know by name
	matched      []uint64
	feasible     []uint64
	allowed      []uint8
	oneLabel     oneLabel
	selecting    bool

	cpuAmount, memoryAmount int64
	coreMilli               int64  // requested; a whole core where the request names no cpu
	cpuAsked, memoryAsked   uint64 // see column.asked
	cpuPriced               uint64 // all ones where the request names cpu
	memoryFactor            uint64
	leastBase, leastCap     uint64 // of leastCost
	slack                   uint64 // leastCost is less than that below the truth, unless loose
	loose                   bool   // a factor is saturated

	best bestList
	near nearList

	// bar is twice the weighted score that a cluster must reach to come among the best.
	bar int64
	// leastLeft and mostRate are what the bar says of a cluster free of charge, and of an idle one.
	leastLeft, mostRate int64
	// manyAlike says that the last block had many clusters like the last of the best.
	manyAlike bool
	// costHi and costLo are twice the cost weight, times 1e18.
	costHi, costLo uint64
}

// noBar lets everybody through.
const noBar = math.MinInt64 / 2

// prepare reads the request.
func (m *Market) prepare(request *Request) {
	m.stamp++
	s := &m.scan
	s.best.n, s.near.n = 0, 0
	s.cpuAmount, s.memoryAmount = request.Amounts.Get(CPU), request.Amounts.Get(Memory)
	s.coreMilli, s.cpuPriced = milliPerCore, 0
	if s.cpuAmount > 0 {
		s.coreMilli, s.cpuPriced = s.cpuAmount, math.MaxUint64
	}
	s.cpuAsked, s.memoryAsked = m.cpu.asked(s.cpuAmount), m.memory.asked(s.memoryAmount)
	s.needs, s.extra, s.memoryFactor = s.needs[:0], s.extra[:0], 0
	for _, a := range request.Amounts {
		n := m.need(a)
		n.factor = s.rateFactor(&n)
		s.needs = append(s.needs, n)
		switch n.column {
		case m.cpu:
		case m.memory:
			s.memoryFactor = n.factor
		default:
			s.extra = append(s.extra, n)
		}
	}
	s.chunk = s.chunk[:0]
	for _, a := range request.Chunk {
		s.chunk = append(s.chunk, m.need(a))
	}
	s.prepareBounds(m.policy)
}

func (m *Market) need(a Amount) need {
	return need{column: m.column(a.Resource), amount: a.Value, weight: 1 << weightShift / uint64(a.Value)}
}

// rateFactor of a need; see there.
func (s *scan) rateFactor(n *need) uint64 {
	hi, lo := bits.Mul64(uint64(n.amount), milliPerCore)
	up := uint(64 - rateShift)
	if n.column.kind == bytes {
		up -= gibShift
	}
	hi, over := hi<<up|lo>>(64-up), hi>>(64-up)
	if over != 0 || hi >= uint64(s.coreMilli) {
		return math.MaxUint64
	}
	quotient, _ := bits.Div64(hi, lo<<up, uint64(s.coreMilli))
	return quotient
}

// prepareBounds sets what the inner loop needs to pass over clusters that can't come among the best.
func (s *scan) prepareBounds(policy Policy) {
	// Rounding: each addend of a price loses less than one, so the price per core less than
	// needs * 1000 / milli, and one more for its own rounding.
	lost := uint64(len(s.needs))*milliPerCore/uint64(s.coreMilli) + 2
	s.leastBase = billion - lost
	// A price saturates, and its price per core then too.
	s.leastCap = uint64(s.perCore(math.MaxInt64)) + billion - lost
	s.costHi, s.costLo = bits.Mul64(2*uint64(policy.CostWeight), billion*billion)
	// Each addend loses less than two more, by its factor's rounding and its own.
	s.slack, s.loose = lost+2*uint64(len(s.needs))+1, false
	for n := range s.needs {
		s.loose = s.loose || s.needs[n].column.kind != cores && s.needs[n].factor == math.MaxUint64
	}
	s.bar, s.manyAlike = noBar, false
}
