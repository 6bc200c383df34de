package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// node is one broker node: a data directory, addresses, and at most one process at a time.
type node struct {
	id, dir string
	flags   []string          // the same for every start
	binary  string            // that the next start runs
	proper  string            // that it runs where nothing is wrong
	api     string            // where its API really listens
	via     string            // where clients reach it
	said    func(line []byte) // is told every line of its log

	mu      sync.Mutex
	process *process
}

// process is one life of a node.
type process struct {
	command *exec.Cmd
	ended   chan struct{} // closed once it is gone
	allowed bool          // its end was meant, or may come
}

func (n *node) dataDir() string { return filepath.Join(n.dir, "data") }
func (n *node) logPath() string { return filepath.Join(n.dir, "server.log") }

// start begins another life.
func (n *node) start(more ...string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process != nil && !n.process.gone() {
		return fmt.Errorf("%s runs already", n.id)
	}
	out, err := os.OpenFile(n.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "--- %s %s %s\n", time.Now().UTC().Format(time.RFC3339), n.binary, strings.Join(more, " ")) //nolint:errcheck // a log
	command := exec.Command(n.binary, append(append([]string{}, n.flags...), more...)...)
	log := &lines{out: out, said: n.said}
	command.Stdout, command.Stderr = log, log
	command.Env = append(os.Environ(), fmt.Sprintf("BOURSE_SNAPSHOT_TRAILING=%d", trailingLogs), "GOTRACEBACK=all", "BOURSE_SKEWED_CLOCK="+n.clockPath())
	command.SysProcAttr = childAttributes()
	if err := command.Start(); err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", n.id, err), out.Close())
	}
	p := &process{command: command, ended: make(chan struct{})}
	n.process = p
	go func() {
		_ = command.Wait() // how it ended is in ProcessState
		_ = out.Close()
		close(p.ended)
	}()
	return nil
}

func (p *process) gone() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// exitCode of a process that is gone; -1 where a signal ended it.
func (p *process) exitCode() int { return p.command.ProcessState.ExitCode() }

func (n *node) current() *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process
}

// running says whether a process is there, paused or not.
func (n *node) running() bool {
	p := n.current()
	return p != nil && !p.gone()
}

func (n *node) pid() int {
	if p := n.current(); p != nil && !p.gone() {
		return p.command.Process.Pid
	}
	return 0
}

// allowEnd says that the process may end from now on.
func (n *node) allowEnd() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process != nil {
		n.process.allowed = true
	}
}

// expectLife takes allowEnd back for a process that went on.
func (n *node) expectLife() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process != nil && !n.process.gone() {
		n.process.allowed = false
	}
}

// diedUnasked names a process that ended though nobody asked it to.
func (n *node) diedUnasked() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.process; p != nil && p.gone() && !p.allowed {
		return fmt.Errorf("%w: %s ended by itself (%s): see %s", errViolated, n.id, p.command.ProcessState, n.logPath())
	}
	return nil
}

// end sends the signal and waits until the process is gone; one that doesn't go is killed.
func (n *node) end(signal syscall.Signal, within time.Duration) error {
	p := n.current()
	if p == nil || p.gone() {
		return nil
	}
	n.allowEnd()
	if err := p.command.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(within):
		_ = p.command.Process.Kill()
		<-p.ended
		return fmt.Errorf("%w: %s did not end within %s of %s", errViolated, n.id, within, signal)
	}
}

func (n *node) kill() error { return n.end(syscall.SIGKILL, killWithin) }

// stop asks it to end in good order.
func (n *node) stop() error { return n.end(syscall.SIGTERM, stopWithin) }

func (n *node) signal(s syscall.Signal) error {
	p := n.current()
	if p == nil || p.gone() {
		return fmt.Errorf("%s does not run", n.id)
	}
	return p.command.Process.Signal(s)
}

// lines writes a log through and tells every whole line of it.
type lines struct {
	out  *os.File
	said func([]byte)
	part []byte
}

func (l *lines) Write(p []byte) (int, error) {
	rest := p
	for {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		if !whole {
			l.part = append(l.part, rest...)
			break
		}
		l.said(append(l.part, line...))
		l.part, rest = l.part[:0], after
	}
	return l.out.Write(p)
}

// freePorts finds addresses that nobody has, all at once so that none is chosen twice.
func freePorts(count int) (addresses []string, err error) {
	var open []net.Listener
	defer func() {
		for _, l := range open {
			err = errors.Join(err, l.Close())
		}
	}()
	for range count {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		open = append(open, l)
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}
