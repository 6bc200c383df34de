package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// kubectl is one kubectl program with one identity at one broker node.
type kubectl struct {
	path       string
	home       string // where it caches discovery: never the person's own
	kubeconfig string
	namespace  string // empty: the kubeconfig's
}

// said is what one run of kubectl left behind.
type said struct {
	args        []string
	out, errOut string
	code        int
}

func (s said) String() string {
	return fmt.Sprintf("kubectl %s: exit status %d\nstdout: %s\nstderr: %s", strings.Join(s.args, " "), s.code, s.out, s.errOut)
}

// command prepares a run with input on its standard input.
func (k kubectl) command(ctx context.Context, input string, args ...string) *exec.Cmd {
	if k.namespace != "" {
		args = append([]string{"--namespace=" + k.namespace}, args...)
	}
	cmd := exec.CommandContext(ctx, k.path, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+k.kubeconfig, "HOME="+k.home)
	cmd.Stdin = strings.NewReader(input)
	return cmd
}

// try runs kubectl and returns whatever it said; it fails the test only where kubectl can't be run at all.
func (k kubectl) try(t *testing.T, ctx context.Context, input string, args ...string) said {
	t.Helper()
	cmd := k.command(ctx, input, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("running kubectl %s: %v", strings.Join(args, " "), err)
	}
	if ctx.Err() != nil {
		t.Fatalf("kubectl %s did not end: %v\n%s", strings.Join(args, " "), context.Cause(ctx), errOut.String())
	}
	return said{args: args, out: out.String(), errOut: errOut.String(), code: cmd.ProcessState.ExitCode()}
}

// run runs kubectl, which must succeed, and returns its standard output.
func (k kubectl) run(t *testing.T, ctx context.Context, args ...string) string {
	t.Helper()
	return k.feed(t, ctx, "", args...)
}

// feed is run with input on kubectl's standard input.
func (k kubectl) feed(t *testing.T, ctx context.Context, input string, args ...string) string {
	t.Helper()
	s := k.try(t, ctx, input, args...)
	if s.code != 0 {
		t.Fatal(s)
	}
	return s.out
}

// reservation runs a kubectl command that prints one reservation as JSON.
func (k kubectl) reservation(t *testing.T, ctx context.Context, input string, args ...string) *reservation {
	t.Helper()
	out := k.feed(t, ctx, input, append(args, "-o", "json")...)
	r := &reservation{}
	if err := json.Unmarshal([]byte(out), r); err != nil {
		t.Fatalf("kubectl %s printed no reservation: %v\n%s", strings.Join(args, " "), err, out)
	}
	return r
}

// contains fails the test for each of the words that text lacks.
func contains(t *testing.T, what, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%s lacks %q:\n%s", what, word, text)
		}
	}
}

// columns are the words of the first line of a table.
func columns(table string) string {
	first, _, _ := strings.Cut(table, "\n")
	return strings.Join(strings.Fields(first), " ")
}
