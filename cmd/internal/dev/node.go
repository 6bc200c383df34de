package dev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
)

// How a broker node's process is looked after.
const (
	restartAfter = 10 * time.Second // long enough to see failover, short enough to wait for
	stopWithin   = 10 * time.Second // then it is killed
)

// node is one broker node, a child process that is started again when it ends.
type node struct {
	id     string
	dir    string
	ports  nodePorts
	binary string
	args   []string
	log    hclog.Logger
}

// run keeps the node's process alive until ctx ends, then stops it.
func (n *node) run(ctx context.Context) {
	for {
		started := time.Now()
		err := n.runOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		n.log.Warn("broker node ended, starting it again", "node", n.id, "how", err,
			"after", time.Since(started).Round(time.Millisecond), "in", restartAfter, "log", n.logPath())
		select {
		case <-ctx.Done():
			return
		case <-time.After(restartAfter):
		}
	}
}

func (n *node) runOnce(ctx context.Context) error {
	out, err := os.OpenFile(n.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", n.id, err)
	}
	defer out.Close() //nolint:errcheck // the child writes it

	command := exec.Command(n.binary, n.args...)
	command.Stdout, command.Stderr = out, out
	command.SysProcAttr = childAttributes()
	if err := command.Start(); err != nil {
		return fmt.Errorf("start %s: %w", n.id, err)
	}
	pid := filepath.Join(n.dir, "pid")
	writeErr := os.WriteFile(pid, []byte(strconv.Itoa(command.Process.Pid)+"\n"), 0o644)
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = stop(command, ended)
	}
	return errors.Join(writeErr, describe(command, err), os.Remove(pid))
}

// stop ends a child politely, then by force. It returns once the child is gone.
func stop(command *exec.Cmd, ended <-chan error) error {
	if err := command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(stopWithin):
		killErr := command.Process.Kill()
		return errors.Join(killErr, <-ended)
	}
}

func describe(command *exec.Cmd, err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	if command.ProcessState != nil {
		return errors.New(command.ProcessState.String())
	}
	return err
}

func (n *node) logPath() string { return filepath.Join(n.dir, "server.log") }

// lastLogLines is what a person wants to see when a node does not start.
func (n *node) lastLogLines(count int) string {
	data, err := os.ReadFile(n.logPath())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-count):], "\n")
}
