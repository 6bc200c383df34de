package e2e

import (
	"testing"
)

// The suite's own arithmetic, against numbers worked out on paper.
func TestFormulaByHand(t *testing.T) {
	// left: 60/64 and 248/256; price 4*0.50 + 8*0.05 = 2.40 for 4 cores, 0.60 a core.
	e := expect(capacity, capacity, mlAmounts, parisPrices)
	if e.resourceScore != 953_125_000 || e.costScore != 625_000_000 || e.score != 854_687_500 || e.perHour.RatString() != "12/5" {
		t.Errorf("got %s", e)
	}
}

func TestHistogramIsReadByLabel(t *testing.T) {
	const text = `# TYPE x histogram
x_bucket{cluster="rome",role="requester",le="0.01"} 90
x_bucket{cluster="rome",role="requester",le="0.05"} 96
x_bucket{cluster="rome",role="requester",le="+Inf"} 100
x_bucket{cluster="rome",role="provider",le="0.01"} 7
x_bucket{cluster="rome",role="provider",le="+Inf"} 7
x_sum{cluster="rome",role="requester"} 1.5
`
	h, err := parseHistogram([]byte(text), "x", `role="requester"`)
	must(t, err)
	if h.count != 100 || h.quantile(0.5) != 0.01 || h.quantile(0.95) != 0.05 {
		t.Errorf("got %+v, median %g, p95 %g", h, h.quantile(0.5), h.quantile(0.95))
	}
	later := h.since(histogram{count: 90, buckets: map[float64]float64{0.01: 90, 0.05: 90}})
	if later.count != 10 || later.quantile(0.5) != 0.05 {
		t.Errorf("got %+v since the first 90, median %g", later, later.quantile(0.5))
	}
}
