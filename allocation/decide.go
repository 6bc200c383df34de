package allocation

import (
	"math"
	"math/bits"
)

// Decide finds the best cluster for the request, the Listed best, the Listed nearest misses, and counts
// the clusters that each filter excludes. The request's Amounts and Chunk are Valid. The caller owns
// both arguments. No allocation, once the resources and label keys have been named before.
//
// The result is exact and depends on nothing but the offers and the request: see DESIGN.md.
func (m *Market) Decide(request *Request, d *Decision) {
	d.reset(request, m.policy)
	m.prepare(request)
	own := m.exclude(request.Requester, d)
	if request.Target != "" {
		m.decideTarget(request, own, d)
	} else {
		m.decideAll(request, own, d)
	}
	m.report(d)
}

// exclude leaves the requester's own cluster out and counts those that are closed to everybody.
func (m *Market) exclude(requester string, d *Decision) (own int) {
	d.Considered = len(m.ids)
	for _, reason := range closedReasons {
		d.Excluded[reason] = m.closed[reason]
	}
	own, known := m.find(requester)
	if !known {
		return -1
	}
	d.Considered--
	if reason := m.slots[own].offer.closed(); reason != ReasonNone {
		d.Excluded[reason]--
	}
	return own
}

var closedReasons = [...]Reason{ReasonFull, ReasonCordoned, ReasonWithdrawn, ReasonStale}

// decideTarget looks at one cluster only; of the others, none but counts are known.
func (m *Market) decideTarget(request *Request, own int, d *Decision) {
	others := d.Considered
	for _, reason := range closedReasons {
		others -= d.Excluded[reason]
	}
	d.Excluded[ReasonWrongTarget] = others
	i, known := m.find(request.Target)
	if !known || i == own {
		return
	}
	closed := m.slots[i].offer.closed() != ReasonNone
	if !closed {
		d.Excluded[ReasonWrongTarget]--
	}
	switch reason, distance := m.classify(i, request); {
	case reason != ReasonNone:
		if !closed {
			d.Excluded[reason]++
		}
		m.scan.near.offer(miss{missKey(reason, distance), i})
	case m.slots[i].offer.Prices.Priced:
		d.Feasible = 1
		m.consider(i)
	default:
		d.Feasible = 1
		m.considerUnpriced(i, 0)
	}
}

func (m *Market) decideAll(request *Request, own int, d *Decision) {
	s := &m.scan
	blocks := len(m.open)
	for len(s.feasible) < blocks {
		s.feasible = append(s.feasible, 0)
		s.matched = append(s.matched, 0)
	}
	s.feasible, s.matched = s.feasible[:blocks], s.matched[:blocks]
	s.selecting = selecting(request.Selector)
	if s.selecting {
		m.selectBlocks(request.Selector, s.matched)
	}
	// Far strides: where clusters happen to be sorted by price or size, each would otherwise beat
	// the one before it and the bars would keep nobody out.
	block, step := 0, stride(blocks)
	for range blocks {
		m.decideBlock(block, request, own, d)
		if block += step; block >= blocks {
			block -= blocks
		}
	}
	m.rankUnpriced()
	m.listTheRest(own, d)
}

// stride is about 0.618 of n and has no divisor in common with it.
func stride(n int) int {
	step := max(1, n*618/1000)
	for gcd(step, n) > 1 {
		step++
	}
	return step
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// decideBlock asks the filters of one block, a bit for each cluster, and ranks those that pass.
func (m *Market) decideBlock(block int, request *Request, own int, d *Decision) {
	s := &m.scan
	candidates := m.openBut(block, own)
	if s.selecting {
		selected := candidates & s.matched[block]
		d.Excluded[ReasonLabelMismatch] += bits.OnesCount64(candidates &^ selected)
		candidates = selected
	}
	if request.MaxPriceNano >= 0 {
		candidates = m.withinPrice(block, candidates, request.MaxPriceNano, d)
	}
	fit := candidates & met(s.needs, block, availableOf)
	if short := candidates &^ fit; short != 0 {
		d.Excluded[ReasonInsufficient] += bits.OnesCount64(short)
		m.listShort(block, short, ReasonInsufficient, s.needs, availableOf)
	}
	if len(s.chunk) > 0 && fit != 0 {
		whole := fit & met(s.chunk, block, largestOf)
		if fragmented := fit &^ whole; fragmented != 0 {
			d.Excluded[ReasonFragmented] += bits.OnesCount64(fragmented)
			m.listShort(block, fragmented, ReasonFragmented, s.chunk, largestOf)
		}
		fit = whole
	}
	s.feasible[block] = fit
	if fit != 0 {
		d.Feasible += bits.OnesCount64(fit)
		m.rank(block, fit&m.priced[block])
	}
}

// met has a bit for each cluster of the block that has what is needed.
func met(needs []need, block int, of func(*column) []int64) uint64 {
	met := ^uint64(0)
	for ; len(needs) >= 2; needs = needs[2:] {
		met &= bothAtLeast(blockOf(of(needs[0].column), block), needs[0].amount,
			blockOf(of(needs[1].column), block), needs[1].amount)
	}
	if len(needs) == 1 {
		met &= atLeast(blockOf(of(needs[0].column), block), needs[0].amount)
	}
	return met
}

func (m *Market) openBut(block, own int) uint64 {
	open := m.open[block]
	if own >= 0 && own/blockSize == block {
		open &^= 1 << (own % blockSize)
	}
	return open
}

func blockOf[T any](column []T, block int) *[blockSize]T {
	return (*[blockSize]T)(column[block*blockSize:])
}

// withinPrice keeps the clusters that state a price, and one within the limit. The bound of the price
// per core tells most of them apart; the price itself is asked where it can't.
func (m *Market) withinPrice(block int, candidates uint64, limit int64, d *Decision) uint64 {
	s := &m.scan
	priced := candidates & m.priced[block]
	d.Excluded[ReasonUnpriced] += bits.OnesCount64(candidates &^ priced)
	if priced == 0 {
		return 0
	}
	within, far := m.priceMasks(block, billion+uint64(s.perCore(limit)), s.tooFar(limit))
	within &= priced
	for rest := priced &^ within &^ far; rest != 0; rest &= rest - 1 {
		i := block*blockSize + bits.TrailingZeros64(rest)
		if price := s.priceAt(i); price <= limit {
			within |= rest & -rest
		} else {
			s.list(miss{missKey(ReasonOverPrice, overPrice(price, limit)), i})
		}
	}
	d.Excluded[ReasonOverPrice] += bits.OnesCount64(priced &^ within)
	return within
}

// priceMasks has the clusters whose cost is surely below most, and those whose cost is surely above
// tooFar. Signs again instead of branches, so all is kept below 2^63.
func (m *Market) priceMasks(block int, most, tooFar uint64) (within, far uint64) {
	const huge = 1 << 62
	s := &m.scan
	slack, sure, tooFar := int64(s.slack), int64(most), min(tooFar, huge)
	if s.loose || most > huge {
		sure = 0
	}
	for j := blockSize - 1; j >= 0; j-- {
		least := min(m.leastCost(block*blockSize+j), huge)
		within = within*2 + uint64(int64(least)+slack-sure)>>63
		far = far*2 + uint64(int64(tooFar)-int64(least))>>63
	}
	return within, far
}

// tooFar is the least cost above which a cluster is over the limit and no nearer miss than what is listed.
func (s *scan) tooFar(limit int64) uint64 {
	if !s.near.full() {
		return math.MaxUint64
	}
	switch last := s.near.last(); {
	case last.key < missKey(ReasonOverPrice, 0):
		return billion + uint64(s.perCore(limit))
	case last.reason() == ReasonOverPrice:
		return billion + uint64(s.perCore(saturatingAdd(limit, int64(last.distance()))))
	}
	return math.MaxUint64
}

// listShort lists those of the clusters in short that are nearer misses than what is listed.
func (m *Market) listShort(block int, short uint64, reason Reason, needs []need, of func(*column) []int64) {
	s := &m.scan
	if s.near.full() {
		last := s.near.last()
		if last.key < missKey(reason, 0) {
			return
		}
		if last.reason() == reason {
			short &= s.nearBlock(block, last.at, needs, of)
		}
	}
	for ; short != 0; short &= short - 1 {
		i := block*blockSize + bits.TrailingZeros64(short)
		share, _ := lacks(needs, i, of)
		s.list(miss{missKey(reason, share), i})
	}
}

// nearBlock has a bit for each cluster of the block that would displace the last of the list.
func (s *scan) nearBlock(block, lastAt int, needs []need, of func(*column) []int64) uint64 {
	behind := block*blockSize > lastAt
	near := ^uint64(0)
	for ; len(needs) >= 2; needs = needs[2:] {
		near &= bothAtLeast(blockOf(of(needs[0].column), block), needs[0].nearBar(behind),
			blockOf(of(needs[1].column), block), needs[1].nearBar(behind))
	}
	if len(needs) == 1 {
		near &= atLeast(blockOf(of(needs[0].column), block), needs[0].nearBar(behind))
	}
	return near
}

// nearBar is what a cluster must have to displace the last of the list; behind that by ID, a tie won't do.
func (n *need) nearBar(behind bool) int64 {
	if behind {
		return n.near
	}
	return n.nearOrTied
}

// list offers a miss and, where it was nearer, raises the bars.
func (s *scan) list(x miss) {
	if !s.near.offer(x) || !s.near.full() {
		return
	}
	last := s.near.last()
	switch last.reason() {
	case ReasonInsufficient:
		raiseBars(s.needs, last.distance())
	case ReasonFragmented:
		raiseBars(s.chunk, last.distance())
	}
}

func raiseBars(needs []need, share uint64) {
	for n := range needs {
		need := &needs[n]
		need.nearOrTied = need.least(share)
		need.near = need.amount
		if share > 0 {
			need.near = need.least(share - 1)
		}
	}
}

// least is what a cluster must have so that its missing share is no more than this.
func (n *need) least(share uint64) int64 {
	most := ((share+1)<<shareLoss - 1) / n.weight
	return max(0, n.amount-int64(most))
}

// listTheRest fills the list of misses with clusters whose reason knows no distance, by ID.
func (m *Market) listTheRest(own int, d *Decision) {
	s := &m.scan
	for _, reason := range [...]Reason{ReasonUnpriced, ReasonLabelMismatch, ReasonFull, ReasonCordoned, ReasonWithdrawn, ReasonStale} {
		if d.Excluded[reason] == 0 {
			continue
		}
		for block := 0; block < len(m.open) && !s.near.full(); block++ {
			for rest := m.excludedBy(reason, block, own); rest != 0 && !s.near.full(); rest &= rest - 1 {
				s.near.offer(miss{missKey(reason, 0), block*blockSize + bits.TrailingZeros64(rest)})
			}
		}
	}
}

// excludedBy has a bit for each cluster of the block that one of the filters without a distance excludes.
func (m *Market) excludedBy(reason Reason, block, own int) uint64 {
	s := &m.scan
	open := m.openBut(block, own)
	switch reason {
	case ReasonLabelMismatch:
		return open &^ s.matched[block]
	case ReasonUnpriced:
		if s.selecting {
			open &= s.matched[block]
		}
		return open &^ m.priced[block]
	}
	var closed uint64
	for j, f := range blockOf(m.flags, block) {
		if at := block*blockSize + j; f&flagReason == flags(reason) && at != own {
			closed |= 1 << j
		}
	}
	return closed
}

// report copies the lists to the decision, with their figures.
func (m *Market) report(d *Decision) {
	s := &m.scan
	for n := range s.best.n {
		r := &s.best.list[n]
		c := &d.rankedList[n]
		m.describe(c, r.at, ReasonNone)
		c.ResourceScore, c.CostScore, c.Score = r.resource, r.costScore, r.score
	}
	for n := range s.near.n {
		x := s.near.list[n]
		m.describe(&d.missedList[n], x.at, x.reason())
	}
	d.ranked, d.missed = s.best.n, s.near.n
	d.Found = d.ranked > 0
}

// describe fills everything of a candidate but its scores.
func (m *Market) describe(c *Candidate, i int, reason Reason) {
	s := &m.scan
	*c = Candidate{ClusterID: m.ids[i], Reason: reason, PriceNano: Unpriced}
	if m.flags[i]&flagPriced != 0 {
		c.PriceNano = s.priceAt(i)
	}
	for n := range min(len(s.needs), MaxResources) {
		c.Available[n] = s.needs[n].column.available[i]
	}
	for n := range min(len(s.chunk), MaxResources) {
		c.LargestFree[n] = s.chunk[n].column.largest[i]
	}
}
