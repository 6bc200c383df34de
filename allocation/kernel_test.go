package allocation

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Few values, so that most figures of two clusters are the same and one differs.
func TestAlikeIsTheSameInEveryFigure(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	drawn := func() *[blockSize]int64 {
		var values [blockSize]int64
		for i := range values {
			values[i] = []int64{0, 0, 0, 0, 0, 0, 1, 8}[random.IntN(8)]
		}
		return &values
	}
	rates := func() *[blockSize]uint64 {
		var values [blockSize]uint64
		for i, v := range drawn() {
			values[i] = uint64(v) << rateShift
		}
		return &values
	}
	figures := func() blockFigures {
		return blockFigures{drawn(), drawn(), drawn(), drawn(), rates(), rates()}
	}
	counts := map[bool]int{}
	for range 100 {
		these, those := figures(), figures()
		for n := range blockSize {
			alike := these.alike(&those, n)
			for i := range blockSize {
				want := these.cpuAvailable[i] == those.cpuAvailable[n] && these.cpuAllocatable[i] == those.cpuAllocatable[n] &&
					these.memoryAvailable[i] == those.memoryAvailable[n] && these.memoryAllocatable[i] == those.memoryAllocatable[n] &&
					these.cpuRate[i] == those.cpuRate[n] && these.memoryRate[i] == those.memoryRate[n]
				counts[want]++
				require.Equal(t, want, alike>>i&1 == 1, "cluster %d beside %d", i, n)
			}
		}
	}
	require.Positive(t, counts[true])
	require.Positive(t, counts[false])
}
