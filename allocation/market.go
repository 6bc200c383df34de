package allocation

import (
	"slices"
	"strings"
)

// blockSize clusters are decided at a time: one bit each in a word.
const blockSize = 64

// Market holds every offer in packed columns, so that a decision is a scan over a few arrays. It is used
// by one goroutine at a time; Decide too writes to its scratch. Clusters are kept sorted by ID: an
// equal score is broken by position, and a new cluster moves those behind it.
type Market struct {
	policy Policy

	ids    []string // sorted
	slots  []*slot  // as ids
	flags  []flags  // padded to whole blocks, as every column
	open   []uint64 // a bit for each cluster that no provider or silence has closed
	priced []uint64 // a bit for each cluster that states prices
	closed [reasonCount]int

	named        map[string]int // how many offers name a resource
	columns      map[string]*column
	cpu, memory  *column
	none         *column // of every resource that no offer names: zeros
	stamp        uint64  // of the request that used a column last
	labelColumns map[string]*labelColumn

	scan scan
}

// slot is what columns are made from.
type slot struct {
	offer   Offer   // Account nil
	account Account // with what was taken
}

// flags are the closing reason, and whether the cluster is priced.
type flags uint8

const (
	flagPriced flags = 1 << 7
	flagReason flags = 1<<7 - 1
)

// NewMarket returns an empty market that weighs by DefaultPolicy.
func NewMarket() *Market {
	m := &Market{
		policy:       DefaultPolicy(),
		named:        map[string]int{},
		columns:      map[string]*column{},
		labelColumns: map[string]*labelColumn{},
		cpu:          newColumn(CPU),
		memory:       newColumn(Memory),
		none:         newColumn(""),
	}
	m.columns[CPU], m.columns[Memory] = m.cpu, m.memory
	return m
}

// SetPolicy changes the weights of later decisions.
func (m *Market) SetPolicy(policy Policy) error {
	if err := policy.Validate(); err != nil {
		return err
	}
	m.policy = policy
	return nil
}

// Len is how many clusters there are.
func (m *Market) Len() int { return len(m.ids) }

// Set adds a cluster or replaces what is known of it; what was taken before is forgotten. It keeps the
// offer's labels, prices and figures, which nobody changes afterwards. O(resources) for a known cluster.
func (m *Market) Set(offer Offer) {
	i, known := m.find(offer.ClusterID)
	s := &slot{offer: offer}
	s.offer.Account = nil
	if offer.Account != nil {
		s.account = *offer.Account
	}
	if known {
		m.count(m.slots[i], -1)
		m.slots[i] = s
	} else {
		m.insert(i, s)
	}
	m.count(s, +1)
	m.flag(i)
	for _, c := range m.columns {
		c.set(i, s)
	}
	for key, c := range m.labelColumns {
		if c.set(i, s); c.overgrown(len(m.ids)) {
			delete(m.labelColumns, key)
		}
	}
}

// Remove forgets a cluster. Unknown ones are no fault.
func (m *Market) Remove(clusterID string) {
	i, known := m.find(clusterID)
	if !known {
		return
	}
	m.count(m.slots[i], -1)
	m.ids = slices.Delete(m.ids, i, i+1)
	m.slots = slices.Delete(m.slots, i, i+1)
	closeGap(m.flags, i)
	for _, c := range m.columns {
		c.remove(i)
	}
	for _, c := range m.labelColumns {
		closeGap(c.values, i)
	}
	m.markAll()
}

// Take is one more hold on a cluster until the next Set of it: what a planner has proposed and the state
// does not show yet. It does not ask whether it fits.
func (m *Market) Take(clusterID string, amounts Amounts) { m.move(clusterID, amounts, +1) }

// Give takes back a Take.
func (m *Market) Give(clusterID string, amounts Amounts) { m.move(clusterID, amounts, -1) }

func (m *Market) move(clusterID string, amounts Amounts, sign int64) {
	i, known := m.find(clusterID)
	if !known {
		return
	}
	s := m.slots[i]
	m.closed[s.offer.closed()]--
	s.offer.Holds += int(sign)
	m.closed[s.offer.closed()]++
	m.flag(i)
	s.account.HeldOrUsed = s.account.HeldOrUsed.combine(amounts, sign)
	for _, a := range amounts {
		if c := m.columns[a.Resource]; c != nil {
			c.setAvailable(i, &s.account)
		}
	}
}

func (m *Market) find(clusterID string) (int, bool) { return slices.BinarySearch(m.ids, clusterID) }

func (m *Market) insert(i int, s *slot) {
	if len(m.ids) == len(m.flags) {
		m.flags = append(m.flags, make([]flags, blockSize)...)
		m.open, m.priced = append(m.open, 0), append(m.priced, 0)
		for _, c := range m.columns {
			c.grow()
		}
		m.none.grow()
		for _, c := range m.labelColumns {
			c.values = append(c.values, make([]uint32, blockSize)...)
		}
	}
	last := i == len(m.ids)
	m.ids = slices.Insert(m.ids, i, strings.Clone(s.offer.ClusterID))
	m.slots = slices.Insert(m.slots, i, s)
	if last {
		return
	}
	openGap(m.flags, i)
	for _, c := range m.columns {
		c.insert(i)
	}
	for _, c := range m.labelColumns {
		openGap(c.values, i)
	}
	m.markAll()
}

// count keeps the totals that a decision needs without a scan.
func (m *Market) count(s *slot, by int) {
	m.closed[s.offer.closed()] += by
	name := func(resource string) {
		if m.named[resource] += by; m.named[resource] == 0 {
			delete(m.named, resource)
		}
	}
	for _, a := range s.account.Allocatable {
		name(a.Resource)
	}
	for _, a := range s.offer.LargestFree {
		name(a.Resource)
	}
	for _, p := range s.offer.Prices.Unit {
		name(p.Resource)
	}
}

// flag brings one cluster's flags up to its offer.
func (m *Market) flag(i int) {
	offer := &m.slots[i].offer
	m.flags[i] = flags(offer.closed())
	if offer.Prices.Priced {
		m.flags[i] |= flagPriced
	}
	m.mark(i)
}

// mark brings one cluster's bits up to its flags.
func (m *Market) mark(i int) {
	word, bit := i/blockSize, uint64(1)<<(i%blockSize)
	m.open[word] &^= bit
	m.priced[word] &^= bit
	if m.flags[i]&flagReason == flags(ReasonNone) {
		m.open[word] |= bit
	}
	if m.flags[i]&flagPriced != 0 {
		m.priced[word] |= bit
	}
}

func (m *Market) markAll() {
	clear(m.open)
	clear(m.priced)
	for i := range m.ids {
		m.mark(i)
	}
}

// column returns a resource's column, made from the slots where it is not there yet.
func (m *Market) column(resource string) *column {
	if c := m.columns[resource]; c != nil {
		c.stamp = m.stamp
		return c
	}
	if m.named[resource] == 0 {
		return m.none
	}
	if len(m.columns) >= maxColumns {
		m.dropColumn()
	}
	c := newColumn(strings.Clone(resource))
	for range len(m.flags) / blockSize {
		c.grow()
	}
	for i, s := range m.slots {
		c.set(i, s)
	}
	c.stamp = m.stamp
	m.columns[c.resource] = c
	return c
}

// dropColumn forgets the column that requests named longest ago.
func (m *Market) dropColumn() {
	var oldest *column
	for _, c := range m.columns {
		if c != m.cpu && c != m.memory && (oldest == nil || c.stamp < oldest.stamp) {
			oldest = c
		}
	}
	delete(m.columns, oldest.resource)
}

// openGap moves the values from i on by one; the last one, padding, is lost.
func openGap[T any](column []T, i int) { copy(column[i+1:], column[i:]) }

// closeGap moves the values behind i back by one; the last becomes zero.
func closeGap[T any](column []T, i int) {
	copy(column[i:], column[i+1:])
	var zero T
	column[len(column)-1] = zero
}
