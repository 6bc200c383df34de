package allocation

import (
	"math"
	"math/bits"
)

const (
	// billion parts make a whole: the unit of every score.
	billion = 1_000_000_000

	// rateShift makes room below a unit price, so that the high word of its product with a factor of
	// the request is a price: MaxUnitPrice has 54 bits, 54 + 9 = 63.
	rateShift = 9
	// coreShareShift and byteShareShift place the point of a column's share: billion << shift, divided
	// by an allocatable of at least 60 millicores or 64 MiB, fits a word. Below that it saturates, and
	// the upper bound that is made of it is only less tight.
	coreShareShift = 40
	byteShareShift = 60
)

// column is one resource of all clusters, by position. Padded with zeros to whole blocks.
type column struct {
	resource string
	kind     unitKind
	stamp    uint64 // of the last request that named it

	available   []int64
	allocatable []int64  // at least available
	largest     []int64  // free on one single node
	rate        []uint64 // unit price << rateShift

	// Only of cpu and memory, which make the resource score.
	scored bool
	shift  uint     // of share
	left   []uint32 // available / allocatable in ppb, rounded up
	share  []uint64 // of one unit in the allocatable: ppb << shift, rounded down
}

func newColumn(resource string) *column {
	c := &column{resource: resource, kind: kindOf(resource)}
	switch resource {
	case CPU:
		c.scored, c.shift = true, coreShareShift
	case Memory:
		c.scored, c.shift = true, byteShareShift
	}
	return c
}

func (c *column) grow() {
	c.available = append(c.available, make([]int64, blockSize)...)
	c.allocatable = append(c.allocatable, make([]int64, blockSize)...)
	c.largest = append(c.largest, make([]int64, blockSize)...)
	c.rate = append(c.rate, make([]uint64, blockSize)...)
	if c.scored {
		c.left = append(c.left, make([]uint32, blockSize)...)
		c.share = append(c.share, make([]uint64, blockSize)...)
	}
}

func (c *column) insert(i int) {
	openGap(c.available, i)
	openGap(c.allocatable, i)
	openGap(c.largest, i)
	openGap(c.rate, i)
	if c.scored {
		openGap(c.left, i)
		openGap(c.share, i)
	}
}

func (c *column) remove(i int) {
	closeGap(c.available, i)
	closeGap(c.allocatable, i)
	closeGap(c.largest, i)
	closeGap(c.rate, i)
	if c.scored {
		closeGap(c.left, i)
		closeGap(c.share, i)
	}
}

func (c *column) set(i int, s *slot) {
	c.largest[i] = s.offer.LargestFree.Get(c.resource)
	c.rate[i] = uint64(s.offer.Prices.rate(c.resource)) << rateShift
	c.allocatable[i] = max(0, s.account.Allocatable.Get(c.resource))
	if c.scored {
		c.share[i] = shareOfOne(c.allocatable[i], c.shift)
	}
	c.setAvailable(i, &s.account)
}

// setAvailable is the part of set that a hold changes.
func (c *column) setAvailable(i int, account *Account) {
	whole := c.allocatable[i]
	c.available[i] = min(account.Available(c.resource), whole)
	if c.scored {
		c.left[i] = uint32(ceilShare(c.available[i], whole))
	}
}

// shareOfOne is the ppb of one unit in the whole, << shift, rounded down; it saturates.
func shareOfOne(whole int64, shift uint) uint64 {
	if whole <= 0 {
		return 0
	}
	hi, lo := uint64(billion)>>(64-shift), uint64(billion)<<shift
	if hi >= uint64(whole) {
		return math.MaxUint64
	}
	quotient, _ := bits.Div64(hi, lo, uint64(whole))
	return quotient
}

// floorShare is part / whole in ppb, rounded down; 0 where there is no whole. part is within [0, whole].
func floorShare(part, whole int64) int64 {
	quotient, _ := share(part, whole)
	return quotient
}

// ceilShare is the same, rounded up.
func ceilShare(part, whole int64) int64 {
	quotient, exact := share(part, whole)
	if !exact {
		quotient++
	}
	return quotient
}

func share(part, whole int64) (ppb int64, exact bool) {
	if whole <= 0 {
		return 0, true
	}
	hi, lo := bits.Mul64(uint64(part), billion)
	quotient, rest := bits.Div64(hi, lo, uint64(whole))
	return int64(quotient), rest == 0
}

// asked is an amount as it multiplies with share: the high word of the product is its ppb of the
// allocatable, rounded down.
func (c *column) asked(amount int64) uint64 {
	if uint64(amount)>>c.shift != 0 {
		return math.MaxUint64
	}
	return uint64(amount) << (64 - c.shift)
}
