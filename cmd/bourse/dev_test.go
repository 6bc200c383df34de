package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// asCommand makes the test binary behave as bourse: `bourse dev` starts its broker nodes from its own executable.
const asCommand = "BOURSE_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	if err := os.Setenv(asCommand, "1"); err != nil { // for the children only
		panic(err)
	}
	os.Exit(m.Run())
}

// devOutput is read while `bourse dev` writes it.
type devOutput struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *devOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *devOutput) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// startDev runs `bourse dev` in this process, its broker nodes in others, until stop is called.
func startDev(t *testing.T, dir string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, ended := &devOutput{}, make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"dev", "--data-dir", dir, "--listen", "127.0.0.1:0", "--clusters", "rome,paris"}, out, out)
	}()
	require.Eventually(t, func() bool { return strings.Contains(out.String(), "bourse dev ready") || len(ended) > 0 },
		2*time.Minute, 50*time.Millisecond)
	require.Contains(t, out.String(), "bourse dev ready")
	return sync.OnceFunc(func() {
		cancel()
		select {
		case code := <-ended:
			require.Equal(t, exitDone, code, out.String())
		case <-time.After(time.Minute):
			t.Fatal("bourse dev did not stop")
		}
	})
}

func TestADevExchangeSurvivesALeaderKillAndARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	stop := startDev(t, dir)
	defer stop()

	code, stdout, stderr := runs(t, "blueprint", "plan", "-f", firstExample(t, "../../docs/blueprints.md"), "--kubeconfig", kubeconfig)
	require.Equal(t, exitDone, code, "what the manual begins with can be tried: %s", stderr)
	require.Contains(t, stdout, "Instances: 3 more, 0 fewer.")

	code, _, stderr = runs(t, "reserve", "--from", "rome", "--cpu", "1", "--name", "kept", "--kubeconfig", kubeconfig)
	require.Equal(t, exitDone, code, stderr)
	killLeader(t, dir)
	require.Eventually(t, func() bool {
		code, _, _ := runs(t, "reserve", "--from", "paris", "--cpu", "1", "--name", "after-the-kill", "--kubeconfig", kubeconfig)
		return code == exitDone
	}, time.Minute, 100*time.Millisecond)
	code, _, stderr = runs(t, "snapshot", "save", filepath.Join(dir, "backup"), "--kubeconfig", kubeconfig)
	require.Equal(t, exitDone, code, stderr)

	stop()
	for _, node := range []string{"n1", "n2", "n3"} {
		require.NoFileExists(t, filepath.Join(dir, node, "pid"), "its child is gone")
	}
	defer startDev(t, dir)()

	for _, name := range []string{"kept", "after-the-kill"} {
		code, stdout, stderr := runs(t, "explain", name, "--kubeconfig", kubeconfig)
		require.Equal(t, exitDone, code, stderr)
		require.Contains(t, stdout, "Reserved")
	}
}

// firstExample is a file with the first YAML of a page.
func firstExample(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	_, from, found := strings.Cut(string(text), "```yaml\n")
	require.True(t, found)
	example, _, found := strings.Cut(from, "```")
	require.True(t, found)
	path := filepath.Join(t.TempDir(), "example.yaml")
	require.NoError(t, os.WriteFile(path, []byte(example), 0o600))
	return path
}

func killLeader(t *testing.T, dir string) {
	t.Helper()
	code, stdout, stderr := runs(t, "raft", "list-peers", "-o", "json", "--kubeconfig", filepath.Join(dir, "kubeconfig"))
	require.Equal(t, exitDone, code, stderr)
	var configuration struct {
		Servers []struct {
			ID     string
			Leader bool
		}
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &configuration))
	for _, server := range configuration.Servers {
		if !server.Leader {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, server.ID, "pid"))
		require.NoError(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		return
	}
	t.Fatal("no leader:", stdout)
}
