package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A few seeds in each test run; `make sim` has many. Each runs twice: the same seed, the same trace.
func TestSeeds(t *testing.T) {
	t.Parallel()
	const seeds = 25
	sum := newStats()
	for seed := range uint64(seeds) {
		st, first, err := one(plan{seed: seed + 1})
		require.NoError(t, err, "seed %d", seed+1)
		if seed%2 == 0 {
			_, second, err := one(plan{seed: seed + 1})
			require.NoError(t, err)
			require.Equal(t, first, second, "seed %d is not replayable", seed+1)
		}
		sum.add(st)
	}
	require.Greater(t, sum.grants, seeds, "too little happens")
}

func BenchmarkSeed(b *testing.B) {
	seed := uint64(0)
	for b.Loop() {
		seed++
		if _, _, err := one(plan{seed: seed}); err != nil {
			b.Fatal(err)
		}
	}
}
