package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// stats is what traces did, added up.
type stats struct {
	traces, steps, entries, elections, terms, grants int
	fewestSteps, fewestFaults                        int
	faults                                           map[string]int
	counts                                           map[string]map[string]int // by group and name
}

func newStats() *stats { return &stats{faults: map[string]int{}, counts: map[string]map[string]int{}} }

func (s *stats) count(group, name string) {
	if s.counts[group] == nil {
		s.counts[group] = map[string]int{}
	}
	s.counts[group][name]++
}

// entry counts the commands of a committed entry and what became of them.
func (s *stats) entry(e *fsm.Entry, results []fsm.Result) {
	s.entries++
	if len(results) == 0 && e.Behaviour == 0 {
		s.count("command", "tick")
	}
	for i := range e.Txns {
		s.count("command", "txn")
		for _, m := range e.Txns[i].Moves {
			s.count("move", [...]string{"", "hold", "release", "transfer", "resize"}[m.Op])
		}
	}
	for i := range e.Reports {
		s.count("command", "report")
		if e.Reports[i].Open {
			s.count("command", "open session")
		}
	}
	for i := range results {
		if r := results[i].Refusal; r != nil {
			s.count("refused by Apply", r.Kind.String())
		}
	}
}

// answered counts how an intent ended on the leader.
func (s *stats) answered(r cluster.Reply) {
	switch {
	case r.Err == nil && r.Result.Refusal == nil:
		s.count("intent", "done")
	case r.Err == nil:
		s.count("refusal", r.Result.Refusal.Kind.String())
	case errors.Is(r.Err, cluster.ErrNotProposed):
		s.count("intent", "not proposed")
	case errors.Is(r.Err, store.ErrUnknownOutcome):
		s.count("intent", "unknown outcome")
	}
}

func (s *stats) add(o *stats) {
	if s.traces == 0 {
		s.fewestSteps, s.fewestFaults = o.fewestSteps, o.fewestFaults
	}
	s.fewestSteps, s.fewestFaults = min(s.fewestSteps, o.fewestSteps), min(s.fewestFaults, o.fewestFaults)
	s.traces += o.traces
	s.steps += o.steps
	s.entries += o.entries
	s.elections += o.elections
	s.terms += o.terms
	s.grants += o.grants
	for name, n := range o.faults {
		s.faults[name] += n
	}
	for group, names := range o.counts {
		for name, n := range names {
			if s.counts[group] == nil {
				s.counts[group] = map[string]int{}
			}
			s.counts[group][name] += n
		}
	}
}

func (s *stats) print(w io.Writer) {
	_, _ = fmt.Fprintf(w, "traces %d, steps %d (fewest of a trace %d), faults in a trace at least %d\n", s.traces, s.steps, s.fewestSteps, s.fewestFaults)
	_, _ = fmt.Fprintf(w, "entries %d, elections %d, terms %d, grants %d\n", s.entries, s.elections, s.terms, s.grants)
	printCounts(w, "faults fired", s.faults)
	for _, group := range sortedKeys(s.counts) {
		printCounts(w, group, s.counts[group])
	}
}

func printCounts(w io.Writer, title string, counts map[string]int) {
	var parts []string
	for _, name := range sortedKeys(counts) {
		parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
	}
	_, _ = fmt.Fprintf(w, "%s: %s\n", title, strings.Join(parts, ", "))
}

// missing names what a long run must have met and did not.
func (s *stats) missing() (names []string) {
	for _, kind := range faultKinds {
		if s.faults[kind.name] == 0 {
			names = append(names, "fault "+kind.name)
		}
	}
	for _, kind := range incidents {
		if s.faults[kind] == 0 {
			names = append(names, "fault "+kind)
		}
	}
	for _, group := range sortedKeys(mustCover) {
		for _, name := range mustCover[group] {
			if s.counts[group][name] == 0 {
				names = append(names, group+" "+name)
			}
		}
	}
	return names
}

// mustCover is every command, every move and every refusal, but for the one by an id so old that its
// result was forgotten: that takes 65,536 commands.
var mustCover = map[string][]string{
	"command":          {"txn", "report", "open session", "tick", "behaviour", "passed over"},
	"move":             {"hold", "release", "transfer", "resize"},
	"refused by Apply": {"guard", "exists", "missing", "capacity", "closed", "held", "inUse", "epoch", "invalid"},
	"refusal":          {"session", "late"},
	"atomic batch":     {"granted", "not granted at once", "extended", "deleted", "Expired", "ProviderWithdrawn"},
	"split":            {"granted", "not granted at once", "extended", "deleted", "Expired", "ProviderWithdrawn"},
	"batch":            {"granted", "not granted at once", "deleted", "Released"},
	"blueprint":        {"reconciled", "moved", "failed", "refused", "activated", "gone"},
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
