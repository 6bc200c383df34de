package allocation

import "math"

// The loops of a decision over one block: each makes a word with a bit for each of the block's clusters,
// without a branch. A value below its bar turns the difference's sign bit on; four chains of sixteen
// keep the processor busy. Values and bars are within [0, 2^63), so no difference overflows.

const quarter = blockSize / 4

// atLeast has the clusters whose value is not below the bar.
func atLeast(values *[blockSize]int64, bar int64) uint64 {
	var w0, w1, w2, w3 uint64
	for j := quarter - 1; j >= 0; j-- {
		w0 = w0*2 + uint64(values[j]-bar)>>63
		w1 = w1*2 + uint64(values[j+quarter]-bar)>>63
		w2 = w2*2 + uint64(values[j+2*quarter]-bar)>>63
		w3 = w3*2 + uint64(values[j+3*quarter]-bar)>>63
	}
	return ^(w0 | w1<<quarter | w2<<(2*quarter) | w3<<(3*quarter))
}

// bothAtLeast has the clusters of which neither value is below its bar.
func bothAtLeast(values *[blockSize]int64, bar int64, others *[blockSize]int64, otherBar int64) uint64 {
	var w0, w1, w2, w3 uint64
	for j := quarter - 1; j >= 0; j-- {
		w0 = w0*2 + uint64((values[j]-bar)|(others[j]-otherBar))>>63
		w1 = w1*2 + uint64((values[j+quarter]-bar)|(others[j+quarter]-otherBar))>>63
		w2 = w2*2 + uint64((values[j+2*quarter]-bar)|(others[j+2*quarter]-otherBar))>>63
		w3 = w3*2 + uint64((values[j+3*quarter]-bar)|(others[j+3*quarter]-otherBar))>>63
	}
	return ^(w0 | w1<<quarter | w2<<(2*quarter) | w3<<(3*quarter))
}

// sieve has the clusters with enough left, before the request takes its part, and a cpu that is cheap enough.
func sieve(cpuLeft, memoryLeft *[blockSize]uint32, leastLeft int64, cpuRate *[blockSize]uint64, mostRate int64) uint64 {
	var even, odd uint64
	for j := blockSize - 2; j >= 0; j -= 2 {
		left := int64(cpuLeft[j]) + int64(memoryLeft[j]) - leastLeft
		even = even*4 + uint64(left|(mostRate-int64(cpuRate[j])))>>63
		left = int64(cpuLeft[j+1]) + int64(memoryLeft[j+1]) - leastLeft
		odd = odd*4 + uint64(left|(mostRate-int64(cpuRate[j+1])))>>63
	}
	return ^(even | odd<<1)
}

// blockFigures are what a cluster's score for a request of cpu and memory is made of.
type blockFigures struct {
	cpuAvailable, cpuAllocatable, memoryAvailable, memoryAllocatable *[blockSize]int64
	cpuRate, memoryRate                                              *[blockSize]uint64
}

// alike has the clusters whose figures are those of cluster n of the other block.
func (f *blockFigures) alike(o *blockFigures, n int) uint64 {
	cpuAvailable, cpuAllocatable, cpuRate := o.cpuAvailable[n], o.cpuAllocatable[n], o.cpuRate[n]
	memoryAvailable, memoryAllocatable, memoryRate := o.memoryAvailable[n], o.memoryAllocatable[n], o.memoryRate[n]
	var other uint64
	for j := blockSize - 1; j >= 0; j-- {
		differ := (f.cpuAvailable[j] ^ cpuAvailable) | (f.memoryAvailable[j] ^ memoryAvailable) |
			(f.cpuAllocatable[j] ^ cpuAllocatable) | (f.memoryAllocatable[j] ^ memoryAllocatable) |
			int64((f.cpuRate[j]^cpuRate)|(f.memoryRate[j]^memoryRate)) // ^ binds no closer than |
		// All figures are below 2^63, and so is what differs: its negative has the sign bit.
		other = other*2 + uint64(-differ)>>63
	}
	return ^other
}

// noMostRate and noLeastLeft keep nobody out of a sieve.
const (
	noMostRate  = math.MaxInt64
	noLeastLeft = 0
)
