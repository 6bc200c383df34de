package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// series is what the rounds of one measurement gave, in the unit of its row.
type series []float64

func (s series) median() float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// latencies of many requests.
type latencies []time.Duration

// quantile by nearest rank; 0 where there is no data.
func (l latencies) quantile(q float64) time.Duration {
	if len(l) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(l))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func (l latencies) milliseconds() series {
	out := make(series, len(l))
	for i, d := range l {
		out[i] = milliseconds(d)
	}
	return out
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// goal is what a row's figure, or its ratio to a peer's, should be. The zero value is none.
type goal struct {
	text string
	met  bool
}

func (g goal) verdict() string {
	switch {
	case g.text == "":
		return ""
	case g.met:
		return g.text + ": met"
	}
	return g.text + ": **missed**"
}

func atMost(figure, limit float64, unit string) goal {
	return goal{fmt.Sprintf("at most %g %s", limit, unit), figure <= limit}
}

func below(figure, limit float64, unit string) goal {
	return goal{fmt.Sprintf("below %g %s", limit, unit), figure < limit}
}

// row is one line of the table.
type row struct {
	what, unit string
	values     series
	note       string // ratios to peers
	goals      []goal
}

// table gathers rows and tells each as soon as it is measured.
type table struct {
	rows     []row
	progress io.Writer
	started  time.Time
}

func (t *table) say(format string, args ...any) {
	fmt.Fprintf(t.progress, "bench: %5.0fs: %s\n", time.Since(t.started).Seconds(), fmt.Sprintf(format, args...)) //nolint:errcheck // to the terminal
}

func (t *table) add(r row) {
	t.rows = append(t.rows, r)
	t.say("%s: %s %s %s", r.what, r.spread(), r.unit, r.note)
}

// missing is a row that could not be measured, with the reason.
func (t *table) missing(what string, err error) {
	t.rows = append(t.rows, row{what: what, note: "NOT MEASURED: " + strings.ReplaceAll(err.Error(), "\n", "; ")})
	t.say("%s: not measured: %v", what, err)
}

func (r *row) spread() string {
	if len(r.values) == 0 {
		return ""
	}
	return fmt.Sprintf("%s / %s / %s", figure(slices.Min(r.values)), figure(r.values.median()), figure(slices.Max(r.values)))
}

// figure keeps three digits.
func figure(v float64) string {
	switch {
	case v >= 100 || v == 0:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// write prints Markdown, with columns wide enough to be read as they are.
func (t *table) write(w io.Writer) error {
	cells := [][]string{{"what", "unit", "n", "min", "median", "max", "beside", "goal"}}
	for i := range t.rows {
		r := &t.rows[i]
		line := []string{r.what, r.unit, "", "", "", "", r.note, ""}
		if len(r.values) > 0 {
			line[2] = fmt.Sprint(len(r.values))
			line[3], line[4], line[5] = figure(slices.Min(r.values)), figure(r.values.median()), figure(slices.Max(r.values))
		}
		for _, g := range r.goals {
			line[7] = strings.TrimPrefix(line[7]+"; "+g.verdict(), "; ")
		}
		cells = append(cells, line)
	}
	widths := make([]int, len(cells[0]))
	for _, line := range cells {
		for i, cell := range line {
			widths[i] = max(widths[i], len(cell))
		}
	}
	var text strings.Builder
	for n, line := range cells {
		for i, cell := range line {
			fmt.Fprintf(&text, "| %-*s ", widths[i], cell)
		}
		text.WriteString("|\n")
		if n == 0 {
			for _, width := range widths {
				text.WriteString("|" + strings.Repeat("-", width+2))
			}
			text.WriteString("|\n")
		}
	}
	_, err := io.WriteString(w, text.String())
	return err
}
