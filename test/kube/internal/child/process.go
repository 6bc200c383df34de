// Package child runs the programs of a test: each in a process group of its own, and none outlives the test.
package child

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// StopTimeout is how long a program may take to end after SIGTERM.
const StopTimeout = 10 * time.Second

// Program is what runs, and can be run again.
type Program struct {
	Name    string // in errors
	Path    string
	Args    []string
	Dir     string // its working directory and HOME
	LogPath string // both outputs are appended
}

// Process is one life of a program.
type Process struct {
	Program

	pid  int
	done chan struct{} // closed once it has ended; err is set before
	err  error
}

// Start runs the program. The kernel kills it if this process dies.
func Start(program Program) (*Process, error) {
	log, err := os.OpenFile(program.LogPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", program.Name, err)
	}
	defer func() { _ = log.Close() }() // the child has its own
	cmd := exec.Command(program.Path, program.Args...)
	cmd.Dir = program.Dir
	// Programs look into HOME for configuration of the person who runs the test.
	cmd.Env = []string{"HOME=" + program.Dir, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}

	p := &Process{Program: program, done: make(chan struct{})}
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
		return nil, fmt.Errorf("starting %s: %w", program.Name, err)
	}
	return p, nil
}

// Done is closed once the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says how the process ended, nil for exit status 0. Ask after Done.
func (p *Process) Err() error { return p.err }

// Exited says how the process ended, or nil while it runs.
func (p *Process) Exited() error {
	select {
	case <-p.done:
		status := "exit status 0"
		if p.err != nil {
			status = p.err.Error()
		}
		return fmt.Errorf("%s ended by itself: %s; see %s", p.Name, status, p.LogPath)
	default:
		return nil
	}
}

// Kill is kill -9 of the process and whatever else is in its group; it returns once the process is gone.
func (p *Process) Kill() {
	_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	<-p.done
}

// Stop asks the process to end, kills it after StopTimeout, and returns once it and its group are gone.
func (p *Process) Stop() (killed bool) {
	_ = syscall.Kill(-p.pid, syscall.SIGTERM)
	timer := time.NewTimer(StopTimeout)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		killed = true
	}
	p.Kill()
	return killed
}
