package main

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheCollectorHasRoomWhateverIsKept(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, memoryLimit, limitFor(0))
	require.EqualValues(t, memoryLimit, limitFor(memoryLimit/2))
	require.EqualValues(t, math.MaxInt64, limitFor(memoryLimit/2+1), "a limit near what is kept has it run all the time")
}
