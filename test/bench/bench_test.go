package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func equal[T comparable](t *testing.T, want, got T, what string) {
	t.Helper()
	if want != got {
		t.Errorf("%s: %v, not %v", what, got, want)
	}
}

func TestMedianAndQuantiles(t *testing.T) {
	t.Parallel()
	equal(t, 2.5, series{4, 1, 2, 3}.median(), "median of an even number")
	equal(t, 3, series{5, 1, 3}.median(), "median of an odd number")
	equal(t, 0, series{}.median(), "median of nothing")
	l := latencies{4, 3, 2, 1}
	equal(t, 3, l.quantile(0.5), "p50")
	equal(t, 4, l.quantile(1), "max")
	equal(t, 0, latencies{}.quantile(1), "of nothing")
	equal(t, 4, l[0], "the series is left as it was")
}

func TestATableSaysWhatIsMissingAndMissed(t *testing.T) {
	t.Parallel()
	b := table{progress: io.Discard, started: time.Now()}
	b.add(row{what: "speed", unit: "ms", values: series{1, 2, 3}, goals: []goal{below(2, 5, "ms"), below(9, 5, "ms")}})
	b.missing("weight", errors.New("no\nscale"))
	var text strings.Builder
	if err := b.write(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| speed ", "| 1.00 ", "below 5 ms: met; below 5 ms: **missed**", "NOT MEASURED: no; scale"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
}

func TestGoalsCompareWithTheBetterPeer(t *testing.T) {
	t.Parallel()
	c := comparison{rates: map[string]map[int]series{
		oursAny: {64: {1000}}, kubeOne: {64: {100}}, kubeTuned: {64: {250}}, casSingle: {64: {500}},
	}}
	var got []string
	for _, g := range c.rateGoals(64) {
		got = append(got, g.verdict())
	}
	equal(t, "5x (a): **missed**; moonshot 10x: **missed**; 1.5x (b single): met; moonshot 3x: **missed**", strings.Join(got, "; "), "goals")
	equal(t, "10.0x a1, 4.0x a tuned, 2.0x b single", c.ratios(oursAny, 64), "ratios")
	equal(t, 0, len((&comparison{}).rateGoals(64)), "goals without a peer")
}

func TestRunStopsAtTheMostAndTellsFaults(t *testing.T) {
	t.Parallel()
	b, err := run(t.Context(), func(context.Context, string) error { return nil }, 4, time.Minute, 100)
	if err != nil || len(b.took) != 100 || b.perSecond <= 0 {
		t.Fatalf("%d of 100, %v", len(b.took), err)
	}
	fault := errors.New("broken")
	if _, err := run(t.Context(), func(context.Context, string) error { return fault }, 4, time.Minute, 100); !errors.Is(err, fault) {
		t.Fatalf("%v", err)
	}
}

func TestClustersAreTheSameForAll(t *testing.T) {
	t.Parallel()
	c := clusterOf(7)
	equal(t, clusterOf(7), c, "cluster 7")
	offer := c.offer(3)
	equal(t, 3*requestMilli, offer.Account.HeldOrUsed.Get("cpu"), "held")
	list := c.allocatable()
	equal(t, list.Cpu().MilliValue(), offer.Account.Allocatable.Get("cpu"), "cores")
	equal(t, list.Memory().Value(), offer.Account.Allocatable.Get("memory"), "memory")
}
