package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bourse-dev/bourse/fsm"
)

// oldCommit closed the previous issue: what was released then must run beside what is built now.
//
//go:embed old-commit
var oldCommit string

// build makes the binaries that were not given.
func (c *config) build(ctx context.Context) (err error) {
	if c.commit, err = git(ctx, "describe", "--always", "--dirty", "--abbrev=12"); err != nil {
		c.commit = "unknown: " + err.Error()
	}
	if c.binary == "" {
		c.binary = filepath.Join(c.dir, "bourse")
		if err := compile(ctx, ".", c.binary); err != nil {
			return err
		}
	}
	c.oldCommit = strings.TrimSpace(c.oldCommit)
	if c.raises, err = raises(ctx, c.oldCommit); err != nil {
		return err
	}
	if c.old == "" {
		c.old = filepath.Join(c.dir, "bourse-old")
		if err := compileCommit(ctx, c.oldCommit, filepath.Join(c.dir, "old-source"), c.old); err != nil {
			return err
		}
	}
	if c.binary, err = filepath.Abs(c.binary); err != nil {
		return err
	}
	c.old, err = filepath.Abs(c.old)
	return err
}

// raises says whether what the commit supports is less than what this checkout does.
func raises(ctx context.Context, commit string) (bool, error) {
	limits, err := git(ctx, "show", commit+":fsm/limits.go")
	if err != nil {
		return false, err
	}
	var supported uint32
	_, after, _ := strings.Cut(limits, "SupportedBehaviour uint32 =")
	if _, err := fmt.Sscan(after, &supported); err != nil {
		return false, fmt.Errorf("the behaviour version of %s: %w", commit, err)
	}
	return supported < fsm.SupportedBehaviour, nil
}

// compile as `make build` does, but for the clock (faults_clock.go).
func compile(ctx context.Context, source, to string) error {
	fmt.Printf("building %s\n", to)
	command := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-tags", "skewed", "-o", to, "./cmd/bourse")
	command.Dir = source
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("build: %w", err)
	}
	return nil
}

// compileCommit builds another commit, in a work tree of its own that is removed again.
func compileCommit(ctx context.Context, commit, tree, to string) (err error) {
	if _, err := git(ctx, "worktree", "add", "--detach", tree, commit); err != nil {
		return fmt.Errorf("the old commit %s (fetch it, or name another by -old-commit): %w", commit, err)
	}
	defer func() {
		_, removeErr := git(context.WithoutCancel(ctx), "worktree", "remove", "--force", tree)
		err = errors.Join(err, removeErr)
	}()
	return compile(ctx, tree, to)
}

func git(ctx context.Context, args ...string) (string, error) {
	data, err := exec.CommandContext(ctx, "git", args...).CombinedOutput()
	text := strings.TrimSpace(string(data))
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, text)
	}
	return text, nil
}
