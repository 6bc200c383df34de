// Package allocation decides, and only decides: does a request fit, what does
// it cost, which cluster is best, what is missing. Integers only. It knows no
// clock, no I/O, no goroutine, and keeps nothing between calls but the
// caller's own columns.
package allocation

import (
	"math"
	"math/bits"
	"slices"
	"sort"
	"strings"
)

// Resource names with units of their own.
const (
	CPU    = "cpu"    // in thousandths of a core
	Memory = "memory" // in bytes
)

// Amount is so much of one resource. Unit: see CPU and Memory; names that count bytes
// (ephemeral-storage, hugepages-*) are in bytes, everything else in pieces.
type Amount struct {
	Resource string
	Value    int64
}

// Amounts is a vector of resources, sorted by name, each name once, no zero
// values. nil is the zero vector. Amounts are immutable: operations return new ones.
type Amounts []Amount

// NewAmounts sorts, sums duplicates and drops zeros. It does not change the list.
func NewAmounts(list ...Amount) Amounts {
	sorted := slices.Clone(list)
	slices.SortStableFunc(sorted, func(x, y Amount) int { return strings.Compare(x.Resource, y.Resource) })
	sum := sorted[:0]
	for _, a := range sorted {
		if last := len(sum) - 1; last >= 0 && sum[last].Resource == a.Resource {
			sum[last].Value = saturatingAdd(sum[last].Value, a.Value)
		} else {
			sum = append(sum, a)
		}
	}
	sum = slices.DeleteFunc(sum, func(a Amount) bool { return a.Value == 0 })
	if len(sum) == 0 {
		return nil
	}
	return sum
}

// Get returns the value of one resource, 0 where it is not named.
func (a Amounts) Get(resource string) int64 {
	for i := range a {
		if a[i].Resource == resource {
			return a[i].Value
		}
	}
	return 0
}

// Add returns a + b, saturating.
func (a Amounts) Add(b Amounts) Amounts { return a.combine(b, 1) }

// Sub returns a - b; values may become negative.
func (a Amounts) Sub(b Amounts) Amounts { return a.combine(b, -1) }

// Times returns a * n, saturating.
func (a Amounts) Times(n int) Amounts {
	if n == 0 || len(a) == 0 {
		return nil
	}
	out := make(Amounts, len(a))
	for i := range a {
		hi, product := bits.Mul64(uint64(a[i].Value), uint64(max(n, -n)))
		if hi != 0 || product > math.MaxInt64 {
			product = math.MaxInt64
		}
		if out[i] = (Amount{a[i].Resource, int64(product)}); n < 0 {
			out[i].Value = -out[i].Value
		}
	}
	return out
}

// Max returns the greater value of each resource.
func (a Amounts) Max(b Amounts) Amounts {
	return a.merge(b, func(x, y int64) int64 { return max(x, y) })
}

// Equal says whether both vectors hold the same values.
func (a Amounts) Equal(b Amounts) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// Valid says whether the vector is sorted, without duplicates or zeros, and every value within [1, MaxAmount].
func (a Amounts) Valid() bool {
	for i := range a {
		if a[i].Resource == "" || a[i].Value < 1 || a[i].Value > MaxAmount {
			return false
		}
	}
	return sort.SliceIsSorted(a, func(i, j int) bool { return a[i].Resource < a[j].Resource }) && a.distinct()
}

func (a Amounts) distinct() bool {
	for i := 1; i < len(a); i++ {
		if a[i].Resource == a[i-1].Resource {
			return false
		}
	}
	return true
}

func (a Amounts) combine(b Amounts, sign int64) Amounts {
	switch { // shared, not copied: Amounts are immutable
	case len(b) == 0:
		return a
	case len(a) == 0 && sign > 0:
		return b
	}
	return a.merge(b, func(x, y int64) int64 { return saturatingAdd(x, sign*y) })
}

func (a Amounts) merge(b Amounts, f func(x, y int64) int64) Amounts {
	out := make(Amounts, 0, len(a)+len(b))
	put := func(name string, v int64) {
		if v != 0 {
			out = append(out, Amount{name, v})
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case j == len(b) || i < len(a) && a[i].Resource < b[j].Resource:
			put(a[i].Resource, f(a[i].Value, 0))
			i++
		case i == len(a) || b[j].Resource < a[i].Resource:
			put(b[j].Resource, f(0, b[j].Value))
			j++
		default:
			put(a[i].Resource, f(a[i].Value, b[j].Value))
			i++
			j++
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func saturatingAdd(x, y int64) int64 {
	s := x + y
	if x > 0 && y > 0 && s < 0 {
		return int64(^uint64(0) >> 1)
	}
	if x < 0 && y < 0 && s >= 0 {
		return -int64(^uint64(0)>>1) - 1
	}
	return s
}
