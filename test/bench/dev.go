package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
)

// devExchange is one `bourse dev`: three nodes, real agents of simulated clusters, one address for all.
type devExchange struct {
	dir     string
	command *exec.Cmd
	ended   chan error
	node    *serverNode // the forwarding address
	readyIn time.Duration
}

// startDev waits until it says it is ready.
func startDev(ctx context.Context, bin, dir string, clusters int) (*devExchange, error) {
	var ids []string
	for i := range clusters {
		ids = append(ids, fmt.Sprintf("c%d", i))
	}
	command := exec.CommandContext(ctx, bin, "dev", "--data-dir", dir, "--listen", "127.0.0.1:0",
		"--clusters", strings.Join(ids, ","), "--log-level", "error")
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	started := time.Now()
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", bin, err)
	}
	e := &devExchange{dir: dir, command: command, ended: make(chan error, 1)}
	ready := make(chan struct{})
	var once sync.Once
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "bourse dev ready") {
				once.Do(func() { close(ready) })
			}
		}
		e.ended <- command.Wait()
	}()
	select {
	case <-ready:
	case err := <-e.ended:
		return nil, fmt.Errorf("bourse dev ended: %w", err)
	case <-time.After(startWithin):
		return nil, errors.Join(fmt.Errorf("bourse dev was not ready within %s", startWithin), e.stop())
	}
	e.readyIn = time.Since(started)
	config, err := clientConfig(filepath.Join(dir, "kubeconfig"))
	if err != nil {
		return nil, errors.Join(err, e.stop())
	}
	client, err := rest.RESTClientFor(config)
	e.node = &serverNode{rest: client, raw: config}
	return e, err
}

func (e *devExchange) stop() error {
	if err := e.command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return <-e.ended
}

// leaderPID is the process of the node that leads.
func (e *devExchange) leaderPID(ctx context.Context) (int, error) {
	c, err := e.node.configuration(ctx)
	if err != nil {
		return 0, err
	}
	for _, s := range c.Servers {
		if s.Leader {
			text, err := os.ReadFile(filepath.Join(e.dir, s.ID, "pid"))
			if err != nil {
				return 0, err
			}
			return strconv.Atoi(strings.TrimSpace(string(text)))
		}
	}
	return 0, errors.New("no leader")
}

// devSection measures what `bourse dev` shows a newcomer: how soon it is there, what 50 clusters with
// real agents cost, how long a create takes.
func (b *bench) devSection(ctx context.Context) error {
	var ready series
	for i := range b.size.rounds {
		e, err := startDev(ctx, b.bin, filepath.Join(b.dir, fmt.Sprintf("start%d", i)), 1)
		if err != nil {
			return err
		}
		ready = append(ready, e.readyIn.Seconds())
		if err := e.stop(); err != nil {
			return err
		}
	}
	b.table.add(row{what: "bourse dev: start of three empty nodes to ready", unit: "s", values: ready, goals: []goal{below(ready.median(), 3, "s")}})
	e, err := startDev(ctx, b.bin, filepath.Join(b.dir, "dev"), 50)
	if err != nil {
		return err
	}
	return errors.Join(b.idle(ctx, e), b.devCreates(ctx, e), e.stop())
}

// idle is what the leader costs while agents only advertise.
func (b *bench) idle(ctx context.Context, e *devExchange) error {
	pid, err := e.leaderPID(ctx)
	if err != nil {
		return err
	}
	cores, err := b.cores(ctx, pid)
	if err != nil {
		return err
	}
	rss, err := residentMiB(pid)
	if err != nil {
		return err
	}
	b.table.add(row{what: "RSS of the leader, 50 clusters with real agents", unit: "MiB", values: series{rss}, goals: []goal{below(rss, 128, "MiB")}})
	b.table.add(row{what: "CPU of the leader, 50 clusters with real agents", unit: "core", values: series{cores}, goals: []goal{below(cores, 0.1, "core")}})
	return nil
}

// cores is how many a process keeps busy.
func (b *bench) cores(ctx context.Context, pid int) (float64, error) {
	before, err := cpuTime(pid)
	if err != nil {
		return 0, err
	}
	started := time.Now()
	select {
	case <-time.After(b.size.idleFor):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	after, err := cpuTime(pid)
	return (after - before).Seconds() / time.Since(started).Seconds(), err
}

func (b *bench) devCreates(ctx context.Context, e *devExchange) error {
	for _, clients := range []int{1, 32} {
		all, err := run(ctx, e.node.reserve, clients, time.Minute, b.size.creates)
		if err != nil {
			return err
		}
		b.table.add(row{
			what: fmt.Sprintf("bourse dev: create to Reserved through its forwarder, %d clients", clients), unit: "ms",
			values: all.took.milliseconds(), note: fmt.Sprintf("p99 %s, %s/s", figure(milliseconds(all.took.quantile(0.99))), figure(all.perSecond)),
		})
	}
	return nil
}
