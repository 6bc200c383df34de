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
)

// oldCommit closed the previous issue: what was released then must run beside what is built now.
//
//go:embed old-commit
var oldCommit string

// build makes the binaries that were not given.
func (c *config) build(ctx context.Context) (err error) {
	if c.commit, err = output(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12"); err != nil {
		c.commit = "unknown: " + err.Error()
	}
	if c.binary == "" {
		c.binary = filepath.Join(c.dir, "bourse")
		if err := compile(ctx, ".", c.binary, "-tags", "skewed"); err != nil {
			return err
		}
	}
	if c.old == "" {
		c.old = filepath.Join(c.dir, "bourse-old")
		if err := compileCommit(ctx, strings.TrimSpace(c.oldCommit), filepath.Join(c.dir, "old-source"), c.old); err != nil {
			return err
		}
	}
	if c.binary, err = filepath.Abs(c.binary); err != nil {
		return err
	}
	c.old, err = filepath.Abs(c.old)
	return err
}

// compile as `make build` does.
func compile(ctx context.Context, source, to string, flags ...string) error {
	fmt.Printf("building %s\n", to)
	command := exec.CommandContext(ctx, "go", append(append([]string{"build", "-ldflags", "-s -w", "-o", to}, flags...), "./cmd/bourse")...)
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
	if _, err := output(ctx, "git", "worktree", "add", "--detach", tree, commit); err != nil {
		return fmt.Errorf("the old commit %s (fetch it, or name another by -old-commit): %w", commit, err)
	}
	defer func() {
		_, removeErr := output(context.WithoutCancel(ctx), "git", "worktree", "remove", "--force", tree)
		err = errors.Join(err, removeErr)
	}()
	return compile(ctx, tree, to)
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	data, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	text := strings.TrimSpace(string(data))
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, args[0], err, text)
	}
	return text, nil
}
