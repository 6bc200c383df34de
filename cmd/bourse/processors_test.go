package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestASmallMachineRunsMoreGoroutinesThanItHasCores(t *testing.T) {
	t.Parallel()
	require.Equal(t, leastProcessors, processorsFor(1, 1))
	require.Equal(t, leastProcessors, processorsFor(2, 2))
	require.Zero(t, processorsFor(2, 1), "a container's limit")
	require.Zero(t, processorsFor(64, 2), "a container's limit")
	require.Zero(t, processorsFor(4, 4))
	require.Zero(t, processorsFor(64, 64))
}
