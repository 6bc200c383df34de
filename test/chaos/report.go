package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const progressEvery = 10 * time.Second

// say prints one line beside the progress.
func (r *run) say(format string, args ...any) {
	fmt.Printf("%7s  %s\n", r.since().Round(time.Second), fmt.Sprintf(format, args...))
}

// progress prints a line now and then.
func (r *run) progress(ctx context.Context) {
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		doing := "calm"
		if p := r.doing.Load(); p != nil {
			doing = *p
		}
		_, changes := r.group.heard.leaderships()
		r.say("%d operations, %d faults, %d leader changes, %d windows judged; now: %s",
			r.clientOps(), r.faults.sum(), changes, r.windows.Load(), doing)
	}
}

// clientOps are what clients asked for; what they were told by watches is not.
func (r *run) clientOps() int64 {
	sum := int64(0)
	for kind, n := range r.ops.all() {
		if !asides[kind] {
			sum += n
		}
	}
	return sum
}

// asides are counted beside the operations.
var asides = map[string]bool{
	"watch event": true, "unknown outcome": true, "refused for lack of capacity": true,
	"report superseded": true, "report of an unknown session": true, "retry after an unknown outcome": true,
	batchHeld: true, piecesHeld: true,
}

// report writes what is kept of a run, and says whether it was one.
func (r *run) report(err error) error {
	if err == nil {
		err = r.enough()
	}
	summary := r.summary(err)
	fmt.Println(summary)
	errs := []error{err, os.WriteFile(filepath.Join(r.config.dir, "summary.md"), []byte(summary), 0o644)}
	if r.history != nil && err != nil {
		errs = append(errs, r.writeTo("history.txt", func(w io.Writer) error {
			for _, row := range r.history.Tail() {
				if _, err := fmt.Fprintf(w, "%+v\n", row); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	if r.bad != nil {
		errs = append(errs, r.writeTo("window.html", r.bad.Draw), r.writeTo("window.txt", r.bad.Write))
	}
	return errors.Join(errs...)
}

func (r *run) writeTo(name string, write func(io.Writer) error) error {
	file, err := os.Create(filepath.Join(r.config.dir, name))
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}

func (r *run) summary(err error) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	terms, changes := r.group.heard.leaderships()
	line("\n# Chaos: %s, seed %d\n", r.since().Round(time.Second), r.config.seed)
	verdict := "0 violations"
	if err != nil {
		verdict = "FAILED: " + err.Error()
	}
	line("%s\n", verdict)
	line("| | |\n| --- | ---: |")
	line("| client operations | %d |", r.clientOps())
	line("| per second | %.0f |", float64(r.clientOps())/r.since().Seconds())
	line("| faults that took effect | %d of %d kinds |", r.faults.sum(), len(r.faults.all()))
	line("| terms led | %d |", terms)
	line("| leader changes | %d |", changes)
	line("| refused for lack of capacity | %d |", r.ops.of("refused for lack of capacity"))
	line("| unknown outcomes | %d |", r.ops.of("unknown outcome"))
	line("| windows judged by porcupine | %d, of %d objects each; %d undecided |", r.windows.Load(), plainObjects, r.undecided.Load())
	line("| names given up | %d |", r.retired.Load())
	if r.history != nil {
		c := r.history.Counts()
		line("| changes in the history | %d |", c.Events)
		line("| the same, told to further watchers | %d |", c.Repeats)
		line("| grants, extensions, ends, of them expired | %d, %d, %d, %d |", c.Grants, c.Extensions, c.Ends, c.Expiries)
		line("| writes, deletes, reads, lists judged | %d, %d, %d, %d |", c.Writes, c.Deletes, c.Rows, c.Lists)
	}
	resumed, relisted := int64(0), int64(0)
	for _, w := range r.watchers {
		resumed += w.resumed.Load()
		relisted += w.relisted.Load()
	}
	line("| watches resumed, begun anew | %d, %d |", resumed, relisted)
	line("| machine | %d CPUs, %s/%s, %s |", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
	line("| commit | %s |", r.config.commit)
	for _, t := range []struct {
		title string
		tally tally
	}{
		{"operation", r.ops},
		{"answer other than success", r.failures},
		{"fault that took effect", r.faults},
		{"fault without effect", r.missed},
	} {
		if t.tally.sum() == 0 {
			continue
		}
		line("\n| %s | |\n| --- | ---: |", t.title)
		for _, name := range t.tally.names() {
			line("| %s | %d |", name, t.tally.of(name))
		}
	}
	line("\nAgain: `make chaos DURATION=%s SEED=%d` (the same faults and choices; processes are never quite the same)", r.config.duration, r.config.seed)
	return b.String()
}

// enough says whether the run was one: a run that did nothing proves nothing.
func (r *run) enough() error {
	var short []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			short = append(short, fmt.Errorf(format, args...))
		}
	}
	seconds := int64(r.config.duration.Seconds())
	_, changes := r.group.heard.leaderships()
	need(r.clientOps() >= 50*seconds, "%d operations in %d s: too little traffic", r.clientOps(), seconds)
	need(changes > 0, "the leader never changed")
	need(r.ops.of("refused for lack of capacity") > 0, "no request was refused for lack of capacity")
	need(r.windows.Load() > 0, "no window was judged")
	need(r.undecided.Load()*20 <= r.windows.Load()*plainObjects, "%d windows were too hard for porcupine", r.undecided.Load())
	if r.config.duration >= allFaultsWithin && r.config.faults == "" {
		for _, f := range append(allFaults(), upgrade) {
			need(r.faults.of(f.name) > 0, "fault %q never took effect", f.name)
		}
		for _, held := range []string{batchHeld, piecesHeld} { // once all nodes are upgraded
			need(r.ops.of(held) > 0, "never: %s", held)
		}
	}
	need(r.faults.sum() > 0, "no fault took effect")
	if r.config.duration >= longRun {
		need(r.clientOps() >= 1_000_000, "a long run has a million operations, this had %d", r.clientOps())
		need(changes >= 100, "in a long run the leader changes a hundred times, in this %d times", changes)
	}
	if short != nil {
		return fmt.Errorf("this run proves nothing: %w", errors.Join(short...))
	}
	return nil
}

// longRun is one whose figures are quoted.
const longRun = time.Hour

// allFaultsWithin: a run as long as this must have seen every kind.
const allFaultsWithin = 20 * time.Minute
