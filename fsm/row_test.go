package fsm

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReadersThatComeAtOnceGetOneMemo(t *testing.T) {
	t.Parallel()
	var row Row
	var other any
	mine := row.Memo(func() any {
		other = row.Memo(func() any { return new(int) }) // comes while the first is being made
		return new(int)
	})
	require.Same(t, other, mine)
}
