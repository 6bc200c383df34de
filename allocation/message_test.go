package allocation

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
)

const gib = int64(1) << 30

func machine(cores, memoryGiB int64) Amounts {
	return NewAmounts(Amount{CPU, cores * 1000}, Amount{Memory, memoryGiB * gib})
}

// The example of DESIGN.md, computed there by hand.
func TestTheWorkedExample(t *testing.T) {
	t.Parallel()
	m := NewMarket()
	m.Set(Offer{
		ClusterID: "paris", Account: &Account{Allocatable: machine(16, 64)},
		Prices: Prices{Priced: true, Unit: []UnitPrice{{CPU, 500_000_000}, {Memory, 50_000_000}}},
	})
	m.Set(Offer{
		ClusterID: "berlin", Account: &Account{Allocatable: machine(12, 48), Allocated: machine(3, 10)},
		Prices: Prices{Priced: true, PerHour: 300_000_000},
	})
	m.Set(Offer{ClusterID: "tokyo", Account: &Account{Allocatable: machine(8, 32)}})
	m.Set(Offer{ClusterID: "rome", Account: &Account{Allocatable: machine(99, 99)}})
	request := Request{Requester: "rome", Amounts: machine(4, 8), MaxPriceNano: NoPriceLimit}
	var d Decision
	m.Decide(&request, &d)
	type row struct {
		id                           string
		price, resource, cost, score int64
	}
	var got []row
	for _, c := range d.Ranked() {
		got = append(got, row{c.ClusterID, c.PriceNano, c.ResourceScore, c.CostScore, c.Score})
	}
	require.Equal(t, []row{
		{"paris", 2_400_000_000, 812_500_000, 625_000_000, 756_250_000},
		{"tokyo", Unpriced, 625_000_000, 625_000_000, 625_000_000},
		{"berlin", 1_200_000_000, 520_833_333, 769_230_769, 595_352_563},
	}, got)
	require.Equal(t, "paris is the best of 3 feasible clusters: score 756250000 ppb, price per hour 2.40", d.Message(&request))
}

func TestAMessageNamesTheNearestCandidatesAndWhatEachLacked(t *testing.T) {
	t.Parallel()
	euOnly, err := labels.Parse("region=eu")
	require.NoError(t, err)
	cheap := Prices{Priced: true, PerHour: 100_000_000}
	full := &Account{Allocatable: machine(8, 32), Allocated: machine(8, 2)}
	offers := func(list ...Offer) []Offer { return list }
	for _, c := range []struct {
		name    string
		offers  []Offer
		request Request
		want    string
	}{
		{
			"the design's example",
			offers(Offer{ClusterID: "paris", Account: full}, Offer{ClusterID: "berlin", Account: full, Stale: true}),
			Request{},
			"Insufficient resources in paris: cpu 8 requested, 0 available; berlin: stale",
		},
		{
			"every lacking resource is named",
			offers(Offer{ClusterID: "paris", Account: &Account{Allocatable: machine(1, 1)}}),
			Request{},
			"Insufficient resources in paris: cpu 8 requested, 1 available, memory 16Gi requested, 1Gi available",
		},
		{
			"a fragmented cluster is nearer than one with too little",
			offers(Offer{ClusterID: "a", Account: full}, Offer{ClusterID: "b", Account: &Account{Allocatable: machine(64, 64)}, LargestFree: machine(3, 3)}),
			Request{Chunk: Amounts{{CPU, 4000}}},
			"No cluster fits: b: cpu 4 on one node requested, 3 on the largest free node; a: cpu 8 requested, 0 available",
		},
		{
			"price limits",
			offers(Offer{ClusterID: "a", Account: full}, Offer{ClusterID: "b", Account: full, Prices: cheap}),
			Request{MaxPriceNano: 500_000_000},
			"No cluster fits: b: over the price limit: 0.80 per hour, at most 0.50; a: without a price under a price limit",
		},
		{
			"the rest is counted by reason",
			offers(
				Offer{ClusterID: "a", Account: full, Region: "us"}, Offer{ClusterID: "b", Account: full, Region: "us"},
				Offer{ClusterID: "c", Account: full, Region: "eu"}, Offer{ClusterID: "d", Cordoned: true}, Offer{ClusterID: "e", Withdrawn: true},
				Offer{ClusterID: "f", Stale: true}, Offer{ClusterID: "g", Stale: true},
			),
			Request{Selector: euOnly},
			"Insufficient resources in c: cpu 8 requested, 0 available; a: not selected by clusterSelector; b: not selected by clusterSelector; " +
				"d: cordoned by its provider; others: 1 withdrawn by its provider, 2 stale",
		},
		{
			"a target is alone",
			offers(Offer{ClusterID: "a", Account: full}, Offer{ClusterID: "b", Account: full}),
			Request{Target: "b"},
			"Insufficient resources in b: cpu 8 requested, 0 available",
		},
		{"an unknown target", offers(Offer{ClusterID: "a", Account: full}), Request{Target: "lyon"}, "targetClusterID lyon is not advertised"},
		{"itself as target", offers(Offer{ClusterID: "rome", Account: full}), Request{Target: "rome"}, "targetClusterID rome is the requester itself"},
		{"an empty exchange", nil, Request{}, "No other cluster is advertised"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			request := c.request
			request.Requester, request.Amounts = "rome", machine(8, 16)
			if request.MaxPriceNano == 0 {
				request.MaxPriceNano = NoPriceLimit
			}
			var d Decision
			marketOf(c.offers).Decide(&request, &d)
			require.Equal(t, c.want, d.Message(&request))
		})
	}
}

func TestAMessageIsBounded(t *testing.T) {
	t.Parallel()
	d := extent{idBytes: 63, resources: MaxResources, nameBytes: 317, amount: MaxAmount}.decision()
	d.Found = false
	message := d.Message(&Request{})
	require.Len(t, message, MaxMessageBytes)
	require.True(t, strings.HasSuffix(message, "..."))
}

func TestPricesOfBothSources(t *testing.T) {
	t.Parallel()
	unit := func(list ...UnitPrice) Prices { return Prices{Priced: true, Unit: list} }
	for _, c := range []struct {
		name              string
		cost, annotations map[string]string
		want              Prices
		currency          string
		fault             string
	}{
		{name: "nothing is unpriced"},
		{name: "a currency alone is unpriced", cost: map[string]string{"currency": "EUR"}, currency: "EUR"},
		{name: "unit prices", cost: map[string]string{"cpu": "0.50", "memory": "0.05"}, want: unit(UnitPrice{CPU, 5e8}, UnitPrice{Memory, 5e7})},
		{
			name: "an annotation wins key by key", cost: map[string]string{"cpu": "1", "memory": "0.05", "currency": "EUR"},
			annotations: map[string]string{"cost.cpu": "0.25", "cost.nvidia.com/gpu": "2", "other": "x"},
			want:        unit(UnitPrice{CPU, 25e7}, UnitPrice{Memory, 5e7}, UnitPrice{gpu, 2e9}), currency: "EUR",
		},
		{
			name: "an annotated unit price replaces perHour", cost: map[string]string{"perHour": "1"},
			annotations: map[string]string{"cost.cpu": "0"}, want: unit(UnitPrice{CPU, 0}),
		},
		{
			name: "an annotated perHour replaces unit prices", cost: map[string]string{"cpu": "1"},
			annotations: map[string]string{"cost.perHour": "0.3"}, want: Prices{Priced: true, PerHour: 3e8},
		},
		{name: "perHour and unit prices at once", cost: map[string]string{"cpu": "1", "perHour": "1"}, fault: "stands alone"},
		{name: "a malformed annotation", annotations: map[string]string{"cost.cpu": "cheap"}, fault: `price "cheap" is malformed`},
		{name: "beyond the limit", cost: map[string]string{"cpu": "10000001"}, fault: "at most 10000000.00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, currency, err := ParsePrices(c.cost, c.annotations)
			if c.fault != "" {
				require.ErrorContains(t, err, c.fault)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			require.Equal(t, c.currency, currency)
		})
	}
}
