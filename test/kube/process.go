package kube

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// stopTimeout is how long a program may take to end after SIGTERM.
const stopTimeout = 10 * time.Second

// process is one running program of a cluster, in a process group of its own.
type process struct {
	name    string
	path    string
	dir     string
	args    []string
	logPath string
	pid     int
	done    chan struct{} // closed once it has ended; err is set before
	err     error
}

// startProcess runs path with both outputs in logPath. The kernel kills the program if this process dies.
func startProcess(name, path, dir, logPath string, args []string) (*process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	defer func() { _ = log.Close() }() // the child has its own
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	// Programs look into HOME for configuration of the person who runs the test.
	cmd.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}

	p := &process{name: name, path: path, dir: dir, args: args, logPath: logPath, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The death signal comes when the thread that started the child ends, so this goroutine keeps its thread
		// for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		p.pid = cmd.Process.Pid
		started <- nil
		p.err = cmd.Wait()
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	return p, nil
}

// exited says how the process ended, or nil while it runs.
func (p *process) exited() error {
	select {
	case <-p.done:
		status := "exit status 0"
		if p.err != nil {
			status = p.err.Error()
		}
		return fmt.Errorf("%s ended by itself: %s; see %s", p.name, status, p.logPath)
	default:
		return nil
	}
}

// stop ends the process and whatever else is in its group, and returns once it is gone.
func (p *process) stop() (killed bool) {
	_ = syscall.Kill(-p.pid, syscall.SIGTERM)
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		killed = true
	}
	_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	<-p.done
	return killed
}
