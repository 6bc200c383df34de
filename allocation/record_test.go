package allocation

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

func asJSON(t require.TestingT, v any) string {
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

func TestARecordReadsAsTheDecisionWas(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := marketOf(offersGen().Draw(t, "offers"))
		request := requestGen().Draw(t, "request")
		var d Decision
		m.Decide(&request, &d)
		record := EncodeDecision([]byte("x"), &d, 42)[1:]
		require.LessOrEqual(t, len(record), MaxRecordBytes)
		got, err := DecodeDecision(record)
		require.NoError(t, err)
		require.Equal(t, int64(42), got.Revision)
		require.Equal(t, "resource=70,cost=30", got.Policy)
		require.Equal(t, d.counts(), got.Counts)
		feasible := 0
		for _, c := range got.Candidates {
			if c.Feasible {
				feasible++
			}
		}
		require.Equal(t, d.Found, feasible > 0)
		missed := len(got.Candidates) - feasible
		require.Equal(t, len(d.Nearest()) > 0, missed > 0)
		if len(d.Ranked())+len(d.Nearest()) <= 2*Listed-4 {
			require.Len(t, got.Candidates, len(d.Ranked())+len(d.Nearest()), "short names fit")
		}
		for i := range feasible {
			want := d.Ranked()[i].object(d.requested, d.chunk)
			require.JSONEq(t, asJSON(t, want), asJSON(t, got.Candidates[i]))
		}
		for i := range missed {
			want := d.Nearest()[i].object(d.requested, d.chunk)
			require.JSONEq(t, asJSON(t, want), asJSON(t, got.Candidates[feasible+i]))
		}
	})
}

// extent is how long the parts of a decision are.
type extent struct {
	name                          string
	idBytes, resources, nameBytes int
	amount, price                 int64
	count                         int
}

// decision is one in which everything is as long as that, with eight of the best and eight misses.
func (e extent) decision() *Decision {
	d := &Decision{Found: true, Policy: Policy{1000, 1000}, Considered: e.count, Feasible: e.count}
	for r := range d.Excluded {
		d.Excluded[r] = e.count
	}
	for i := range e.resources {
		name := CPU
		if i > 0 {
			name = fmt.Sprintf("d%02d", i) + strings.Repeat("r", e.nameBytes-3)
		}
		d.requested = append(d.requested, Amount{name, e.amount})
		d.chunk = append(d.chunk, Amount{name, e.amount})
	}
	d.ranked, d.missed = Listed, Listed
	for i := range Listed {
		c := Candidate{
			ClusterID: strings.Repeat("c", e.idBytes), PriceNano: e.price,
			ResourceScore: billion, CostScore: billion, Score: billion,
		}
		for r := range e.resources {
			c.Available[r], c.LargestFree[r] = e.amount-1, e.amount-1
		}
		d.rankedList[i] = c
		c.Reason = ReasonFragmented
		d.missedList[i] = c
	}
	return d
}

func TestARecordStaysBelowAKibibyte(t *testing.T) {
	t.Parallel()
	require.Less(t, MaxRecordBytes, 1024)
	for _, c := range []struct {
		extent
		kept int
	}{
		{extent{"names of 12, two resources, usual figures", 12, 2, 6, 64 << 30, 2_400_000_000, 10_000}, 16},
		{extent{"names of 24, two resources, usual figures", 24, 2, 6, 64 << 30, 2_400_000_000, 10_000}, 13},
		{extent{"the longest names, two resources", 63, 2, 6, MaxAmount, math.MaxInt64, math.MaxInt}, 7},
		{extent{"the longest names, eight resources", 63, 8, 8, MaxAmount, math.MaxInt64, math.MaxInt}, 3},
		{extent{"the longest of everything", 63, MaxResources, 317, MaxAmount, math.MaxInt64, math.MaxInt}, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			record := EncodeDecision(nil, c.decision(), math.MaxInt64)
			require.LessOrEqual(t, len(record), MaxRecordBytes)
			got, err := DecodeDecision(record)
			require.NoError(t, err)
			t.Logf("%d bytes, %d candidates", len(record), len(got.Candidates))
			require.GreaterOrEqual(t, len(got.Candidates), c.kept)
			require.True(t, got.Candidates[0].Feasible)
			require.False(t, got.Candidates[len(got.Candidates)-1].Feasible)
		})
	}
}

func TestABrokenRecordIsAnErrorAndNoPanic(t *testing.T) {
	t.Parallel()
	whole := EncodeDecision(nil, extent{idBytes: 8, resources: 3, nameBytes: 6, amount: 7, price: 7, count: 7}.decision(), 9)
	rapid.Check(t, func(t *rapid.T) {
		broken := append([]byte(nil), whole[:rapid.IntRange(0, len(whole)).Draw(t, "length")]...)
		for range rapid.IntRange(0, 4).Draw(t, "flips") {
			if len(broken) > 0 {
				broken[rapid.IntRange(0, len(broken)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
			}
		}
		if _, err := DecodeDecision(broken); err != nil {
			require.ErrorIs(t, err, ErrRecord)
		}
	})
	empty, err := DecodeDecision(nil)
	require.NoError(t, err)
	require.Equal(t, broker.Decision{}, empty)
}
