package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/bourse-dev/bourse/internal/planted"
)

// workshop builds suites with a bug in them, and runs them.
type workshop struct {
	dir   string
	built string          // what lies in dir, so that suites of one package share a binary
	sound map[string]bool // suites that passed without a bug
}

// failedCheck names the check that failed, "" where all passed. An error: there was no verdict.
func (w *workshop) failedCheck(ctx context.Context, s *suite, fault planted.Fault) (string, error) {
	bin, err := w.build(ctx, s, fault)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, runWithin)
	defer cancel()
	var args []string
	if s.run != "" {
		args = append(args, "-test.run", s.run, "-test.failfast", "-test.timeout", (runWithin * 9 / 10).String())
		if s.skip != "" {
			args = append(args, "-test.skip", s.skip)
		}
	}
	command := exec.CommandContext(ctx, bin, append(args, s.args...)...)
	if s.run != "" {
		command.Dir = s.dir // where its testdata lies
	}
	// One failed check is enough: what else the bug makes fail, or hang, need not be waited for.
	output := &listener{heard: cancel}
	command.Stdout, command.Stderr = output, output
	err = command.Run()
	switch check := output.check(); {
	case check != "":
		return check, nil
	case err == nil:
		return "", nil
	default:
		return "", fmt.Errorf("%s ended without a verdict: %w\n%s", s.name, err, tail(output.text))
	}
}

// listener keeps what is written to it and calls heard once that tells of a failed check.
type listener struct {
	text  []byte
	heard func()
}

var (
	failure = regexp.MustCompile(`(?m)^(?:--- FAIL: (\S+) \(|seed \d+: (.+)$)`)
	crash   = regexp.MustCompile(`panic: test timed out|panic: runtime error:|(?m)^fatal error:`)
)

func (l *listener) Write(b []byte) (int, error) {
	l.text = append(l.text, b...)
	if l.heard != nil && failure.Match(l.text) {
		time.AfterFunc(afterFailure, l.heard)
		l.heard = nil
	}
	return len(b), nil
}

// check names the first check that failed; "" where none did, or the whole merely crashed or hung.
func (l *listener) check() string {
	match := failure.FindSubmatch(l.text)
	if match == nil || crash.Match(l.text) {
		return ""
	}
	return strings.TrimSpace(string(match[1]) + string(match[2]))
}

// passesWithoutBug: what fails anyway catches nothing.
func (w *workshop) passesWithoutBug(ctx context.Context, s *suite) error {
	if w.sound[s.name] {
		return nil
	}
	check, err := w.failedCheck(ctx, s, planted.None)
	if err == nil && check != "" {
		err = fmt.Errorf("%s fails without a bug, too: %s", s.name, check)
	}
	if err != nil {
		return err
	}
	if w.sound == nil {
		w.sound = map[string]bool{}
	}
	w.sound[s.name] = true
	return nil
}

// build returns the binary of the suite with the bug in it.
func (w *workshop) build(ctx context.Context, s *suite, fault planted.Fault) (string, error) {
	bin := filepath.Join(w.dir, "suite")
	what := s.dir + " with " + string(fault)
	if w.built == what {
		return bin, nil
	}
	ctx, cancel := context.WithTimeout(ctx, buildWithin)
	defer cancel()
	args := []string{"build"}
	if s.run != "" {
		args = []string{"test", "-c"}
	}
	args = append(args, "-o", bin, "-ldflags=-s -w")
	if fault != planted.None {
		args = append(args, "-tags", "planted_"+string(fault))
	}
	command := exec.CommandContext(ctx, "go", append(args, "./"+s.dir)...)
	command.Stderr = os.Stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("build %s: %w", what, err)
	}
	w.built = what
	return bin, nil
}

func tail(output []byte) string {
	const enough = 4000
	return strings.TrimSpace(string(output[max(0, len(output)-enough):]))
}
