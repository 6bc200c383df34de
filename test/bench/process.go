package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stopWithin is how long a process may take to end by itself.
const stopWithin = 10 * time.Second

// process is one program under test. The kernel kills it if the benchmark dies.
type process struct {
	name string
	log  string
	args []string
	pid  int
	done chan struct{}
	err  error // of Wait; set before done is closed
}

// start runs args with its output in dir/name.log.
func start(dir, name string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), args: args, done: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close() //nolint:errcheck // the child has its own
	command := exec.Command(args[0], args[1:]...)
	command.Stdout, command.Stderr = out, out
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() {
		// The death signal comes when the thread that started the child ends: it must live as long.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		if err := command.Start(); err != nil {
			started <- err
			return
		}
		p.pid = command.Process.Pid
		started <- nil
		p.err = command.Wait()
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// again starts the same program after its end.
func (p *process) again() (*process, error) { return start(filepath.Dir(p.log), p.name, p.args...) }

// ended says how it ended, nil while it runs.
func (p *process) ended() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s ended: %w\n%s", p.name, errors.Join(p.err, errors.New("too early")), p.lastLines(5))
	default:
		return nil
	}
}

// kill is the power cut.
func (p *process) kill() error {
	err := syscall.Kill(p.pid, syscall.SIGKILL)
	<-p.done
	return err
}

// stop asks, then kills.
func (p *process) stop() {
	if p == nil {
		return
	}
	_ = syscall.Kill(p.pid, syscall.SIGTERM) // it may have ended
	select {
	case <-p.done:
	case <-time.After(stopWithin):
		_ = p.kill()
	}
}

func (p *process) lastLines(count int) string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-count):], "\n")
}

// freePorts finds ports that nobody uses just now.
func freePorts(count int) ([]string, error) {
	var ports []string
	for range count {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() //nolint:errcheck // all are freed together, so that each is another
		ports = append(ports, l.Addr().String())
	}
	return ports, nil
}

// clockTick is what /proc counts CPU time in; Linux has 100 per second everywhere.
const clockTick = 10 * time.Millisecond

func cpuTime(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The command's name may hold spaces: fields are counted from behind it. utime and stime are the 14th and 15th.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+2:]))
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * clockTick, err
}

func residentMiB(pid int) (float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return float64(kib) / 1024, err
		}
	}
	return 0, fmt.Errorf("no VmRSS in the status of process %d", pid)
}
