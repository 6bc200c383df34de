package allocation

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

func TestAmountsAddAndSubtractAsMapsDo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := amountsGen(testResources, 0).Draw(t, "a")
		b := amountsGen(testResources, 0).Draw(t, "b")
		sum, difference, most := a.Add(b), a.Sub(b), a.Max(b)
		for _, name := range testResources {
			require.Equal(t, a.Get(name)+b.Get(name), sum.Get(name))
			require.Equal(t, a.Get(name)-b.Get(name), difference.Get(name))
			require.Equal(t, max(a.Get(name), b.Get(name)), most.Get(name))
		}
		require.True(t, sum.Sub(b).Equal(a))
		require.True(t, a.Valid() && b.Valid() && most.Valid())
	})
}

func TestNewAmountsSortsSumsAndDropsZeros(t *testing.T) {
	t.Parallel()
	list := []Amount{{Memory, 5}, {CPU, 2}, {gpu, 1}, {CPU, 3}, {gpu, -1}, {"x", 0}}
	require.Equal(t, Amounts{{CPU, 5}, {Memory, 5}}, NewAmounts(list...))
	require.Equal(t, Amount{Memory, 5}, list[0])
	require.Nil(t, NewAmounts())
	require.Nil(t, NewAmounts(Amount{CPU, 0}))
	require.Equal(t, Amounts{{CPU, math.MaxInt64}}, NewAmounts(Amount{CPU, math.MaxInt64}, Amount{CPU, 1}))
}

func TestAResourceListBecomesAmountsAndBack(t *testing.T) {
	t.Parallel()
	list := corev1.ResourceList{
		"memory": resource.MustParse("8Gi"), "cpu": resource.MustParse("1500m"), gpu: resource.MustParse("0"),
	}
	amounts, err := AmountsOf(list, true)
	require.NoError(t, err)
	require.Equal(t, Amounts{{CPU, 1500}, {Memory, 8 * gib}}, amounts)
	require.JSONEq(t, `{"cpu":"1500m","memory":"8Gi"}`, asJSON(t, amounts.ResourceList()))
	require.Nil(t, Amounts(nil).ResourceList())
	_, err = AmountsOf(corev1.ResourceList{"cpu": resource.MustParse("-1")}, true)
	require.ErrorIs(t, err, broker.ErrNegative)
}

// Apply asks Fits, the planner asks the market: they must never disagree.
func TestFitsAgreesWithTheMarket(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		account := accountGen().Draw(t, "account")
		request := Request{Amounts: amountsGen(testResources, 1).Draw(t, "request"), MaxPriceNano: NoPriceLimit}
		m := NewMarket()
		m.Set(Offer{ClusterID: "paris", Account: &account})
		var d Decision
		m.Decide(&request, &d)
		lack, fits := Fits(&account, request.Amounts)
		require.Equal(t, fits, d.Found)
		if !fits {
			require.Less(t, lack.Available, lack.Requested)
			require.Equal(t, ReasonInsufficient, d.Nearest()[0].Reason)
		}
	})
}
