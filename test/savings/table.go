package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// claim is by how many per cent 70/30 was said to be cheaper.
type claim struct{ low, high float64 }

var (
	underRandom   = claim{20, 30}
	underResource = claim{10, 15}
)

func (c claim) verdict(found float64) string {
	switch {
	case found < c.low:
		return "missed"
	case found > c.high:
		return "exceeded"
	}
	return "met"
}

// write prints the study as Markdown.
func (s *study) write(w io.Writer, r *results) error {
	var text strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	s.writeClaim(line, r)
	for _, b := range s.books {
		s.writeChoosers(line, r, b)
	}
	s.writeSweep(line, r)
	_, err := io.WriteString(w, text.String())
	return err
}

type printer func(format string, args ...any)

// table starts a table.
func table(line printer, columns ...string) {
	line("")
	line("| %s |", strings.Join(columns, " | "))
	line("|%s", strings.Repeat("---|", len(columns)))
}

func (s *study) writeClaim(line printer, r *results) {
	line("### The claim: 70/30 costs %.0f to %.0f %% less than random, %.0f to %.0f %% less than resource-only",
		underRandom.low, underRandom.high, underResource.low, underResource.high)
	line("")
	line("In per cent, min / **median** / max of %d seeds. Met, missed or exceeded goes by the median.", s.seeds)
	table(line, "prices", "clusters", "load", "less than random", "", "less than resource-only", "")
	for _, b := range s.books {
		for _, clusters := range s.clusters {
			for _, load := range s.loads {
				f := r.of[key{b.name, clusters, load, standard.name}]
				line("| %s | %d | %.0f %% | %s | %s | %s | %s |", b.name, clusters, 100*load,
					f.savedRandom.text(1), underRandom.verdict(f.savedRandom.median()),
					f.savedResource.text(1), underResource.verdict(f.savedResource.median()))
			}
		}
	}
}

func (s *study) writeChoosers(line printer, r *results, b book) {
	line("")
	line("### Each way to choose, %s prices, load %.0f %%", b.name, 100*usualLoad)
	table(line, "clusters", "choice", "money spent", "per core-hour", "less than random, %", "refused, %", "fragmented, %", "used, %")
	for _, clusters := range s.clusters {
		for _, c := range append([]chooser{standard}, rivals...) {
			f := r.of[key{b.name, clusters, usualLoad, c.name}]
			line("| %d | %s | %s | %s | %s | %s | %s | %s |", clusters, c.name, f.money.text(0), f.perCoreHour.text(4),
				f.savedRandom.text(1), f.refused.text(2), f.fragmented.text(1), f.used.text(0))
		}
	}
}

// tolerable is by how many points more than the least a choice may refuse and still be called best.
const tolerable = 0.5

func (s *study) writeSweep(line printer, r *results) {
	line("")
	line("### Which weights do best")
	line("")
	line("%% less than random (%% refused), medians over seeds and sizes of federation. **The best** is the cheapest of those")
	line("that refuse at most %.1f points more than the least.", tolerable)
	ranking := slices.Concat([]chooser{resourceOnly, standard}, sweep, []chooser{cheapest})
	columns := []string{"prices", "load"}
	for _, c := range ranking {
		columns = append(columns, c.name)
	}
	table(line, columns...)
	for _, b := range s.books {
		for _, load := range s.loads {
			pooled := make([]figures, len(ranking))
			for i, c := range ranking {
				pooled[i] = s.pool(r, b, load, c)
			}
			cells := make([]string, len(ranking))
			for i := range pooled {
				cells[i] = fmt.Sprintf("%.1f (%.2f)", pooled[i].savedRandom.median(), pooled[i].refused.median())
			}
			best := bestOf(pooled)
			cells[best] = "**" + cells[best] + "**"
			line("| %s | %.0f %% | %s |", b.name, 100*load, strings.Join(cells, " | "))
		}
	}
}

// pool puts all sizes of federation together.
func (s *study) pool(r *results, b book, load float64, c chooser) (all figures) {
	for _, clusters := range s.clusters {
		f := r.of[key{b.name, clusters, load, c.name}]
		all.savedRandom.values = append(all.savedRandom.values, f.savedRandom.values...)
		all.refused.values = append(all.refused.values, f.refused.values...)
	}
	return all
}

func bestOf(list []figures) (best int) {
	least := list[0].refused.median()
	for i := range list {
		least = min(least, list[i].refused.median())
	}
	most := math.Inf(-1)
	for i := range list {
		if saving := list[i].savedRandom.median(); list[i].refused.median() <= least+tolerable && saving > most {
			best, most = i, saving
		}
	}
	return best
}
