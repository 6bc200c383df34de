package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// report prints rows as soon as they are measured.
type report struct{ out io.Writer }

func (r *report) heading() {
	fmt.Fprintf(r.out, "%-46s %8s %10s %10s %10s %10s  %s\n", "what", "n", "median", "p95", "p99", "max", "goal") //nolint:errcheck // to the terminal
}

// durations prints the quantiles of a series.
func (r *report) durations(what string, series []time.Duration, goal string) {
	slices.Sort(series)
	fmt.Fprintf(r.out, "%-46s %8d %10s %10s %10s %10s  %s\n", what, len(series), //nolint:errcheck // to the terminal
		round(quantile(series, 0.5)), round(quantile(series, 0.95)), round(quantile(series, 0.99)), round(quantile(series, 1)), goal)
}

// value prints one figure.
func (r *report) value(what, value, goal string) {
	fmt.Fprintf(r.out, "%-46s %8d %10s %10s %10s %10s  %s\n", what, 1, value, "", "", "", goal) //nolint:errcheck // to the terminal
}

// quantile of a sorted series; 0 where there is no data.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func round(d time.Duration) time.Duration {
	if d < 10*time.Millisecond {
		return d.Round(time.Microsecond)
	}
	return d.Round(time.Millisecond)
}
