package main

import (
	"fmt"
	"math"
	"slices"
)

// spread is what the seeds of one comparison gave.
type spread struct{ values []float64 }

func (s *spread) add(v float64) { s.values = append(s.values, v) }

func (s *spread) median() float64 {
	sorted := slices.Sorted(slices.Values(s.values))
	n := len(sorted)
	switch {
	case n == 0:
		return math.NaN()
	case n%2 == 1:
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// text is min / median / max.
func (s *spread) text(decimals int) string {
	if len(s.values) == 0 {
		return "not measured"
	}
	return fmt.Sprintf("%.*f / **%.*f** / %.*f", decimals, slices.Min(s.values), decimals, s.median(), decimals, slices.Max(s.values))
}

// saved is by how many per cent ours cost less than theirs, over the arrivals that both granted: one
// that refuses the dear ones is not the cheaper for it.
func saved(ours, theirs *outcome) float64 {
	var mine, other float64
	for i, cost := range ours.costs {
		if !math.IsNaN(cost) && !math.IsNaN(theirs.costs[i]) {
			mine += cost
			other += theirs.costs[i]
		}
	}
	if other == 0 {
		return 0
	}
	return 100 * (1 - mine/other)
}
