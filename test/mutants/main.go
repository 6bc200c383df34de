// Command mutants builds each bug of internal/planted in, one at a time, and runs the suites from the
// cheapest to the dearest until one notices. It ends non-zero unless all are noticed by a failed check:
// what doesn't build, hangs or is noticed without a bug, too, doesn't count.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse/internal/planted"
)

var errNotCaught = errors.New("not all were caught")

func main() {
	only := flag.String("only", "", "just this bug, as in its build tag")
	all := flag.Bool("all", false, "ask every suite, also after one has noticed")
	flag.Parse()
	if err := run(context.Background(), *only, *all); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, all bool) error {
	bugs, err := findBugs(".")
	if err != nil {
		return err
	}
	if only != "" {
		bugs = slices.DeleteFunc(bugs, func(b bug) bool { return string(b.fault) != only })
	}
	if len(bugs) == 0 {
		return fmt.Errorf("no bug %q in internal/planted", only)
	}
	dir, err := os.MkdirTemp("", "bourse-mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // temporary
	w := &workshop{dir: dir}
	started := time.Now()
	caught := 0
	fmt.Printf("%-25s %-75s %s\n", "bug", "caught by", "seconds")
	for _, b := range bugs {
		ok, err := hunt(ctx, w, b, all)
		if err != nil {
			return fmt.Errorf("%s: %w", b.fault, err)
		}
		if ok {
			caught++
		}
	}
	fmt.Printf("%d of %d caught in %.0f s\n", caught, len(bugs), time.Since(started).Seconds())
	if caught < len(bugs) {
		return errNotCaught
	}
	return nil
}

// hunt prints who noticed the bug.
func hunt(ctx context.Context, w *workshop, b bug, all bool) (caught bool, err error) {
	started := time.Now()
	for i := range suites {
		s := &suites[i]
		if roomIndex(s.dir) < roomIndex(b.room) {
			continue
		}
		check, err := w.failedCheck(ctx, s, b.fault)
		if err != nil {
			return false, err
		}
		if check == "" {
			continue
		}
		if err := w.passesWithoutBug(ctx, s); err != nil {
			return false, err
		}
		took := time.Since(started)
		fmt.Printf("%-25s %-75s %7.1f\n", b.fault, s.name+": "+check, took.Seconds())
		if took <= caughtWithin {
			caught = true
		} else {
			fmt.Printf("%-25s too late: %v are allowed\n", "", caughtWithin)
		}
		if !all {
			return caught, nil
		}
	}
	if !caught {
		fmt.Printf("%-25s %-75s %7.1f\n", b.fault, "NOBODY", time.Since(started).Seconds())
	}
	return caught, nil
}

// bug is one of internal/planted and the lowest room that it breaks.
type bug struct {
	fault planted.Fault
	room  string
}

// findBugs reads which bugs have a build tag, and where product code asks for each.
func findBugs(root string) ([]bug, error) {
	tagged, err := filepath.Glob(filepath.Join(root, "internal/planted/*.go"))
	if err != nil {
		return nil, err
	}
	source := map[string]string{}
	for _, room := range rooms {
		files, err := filepath.Glob(filepath.Join(root, room, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			source[room] += string(text)
		}
	}
	var bugs []bug
	for _, file := range tagged {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(filepath.Base(file), ".go")
		_, constant, ok := strings.Cut(string(text), "const Bug = ")
		if !ok || name == "none" {
			continue
		}
		constant, _, _ = strings.Cut(constant, "\n")
		at := slices.IndexFunc(rooms, func(room string) bool {
			return strings.Contains(source[room], "planted."+constant+" ") || strings.Contains(source[room], "planted."+constant+"\n")
		})
		if at < 0 {
			return nil, fmt.Errorf("%s is planted nowhere", name)
		}
		bugs = append(bugs, bug{planted.Fault(name), rooms[at]})
	}
	return bugs, nil
}

func roomIndex(dir string) int {
	room, _, _ := strings.Cut(dir, "/")
	return slices.Index(rooms, room)
}
