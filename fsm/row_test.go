package fsm

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReadersThatComeAtOnceGetOneMemo(t *testing.T) {
	t.Parallel()
	var row Row
	var other *int
	mine := Memo(&row, func() *int {
		other = Memo(&row, func() *int { return new(int) }) // comes while the first is being made
		return new(int)
	})
	require.Same(t, other, mine)
	require.Same(t, other, Memo(&row, func() *int { return new(int) }))
	runtime.KeepAlive(other)
}

func TestMemoThatNobodyHoldsIsCollected(t *testing.T) {
	t.Parallel()
	var row Row
	require.NotNil(t, Memo(&row, func() *Row { return new(Row) }))
	runtime.GC()
	derived := false
	Memo(&row, func() *Row { derived = true; return new(Row) })
	require.True(t, derived)
}
