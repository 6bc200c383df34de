package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// stopTimeout is how long a program may take to end after SIGTERM before that is a fault.
const stopTimeout = 10 * time.Second

// process is one running program of the product, in a process group of its own.
type process struct {
	name    string
	logPath string
	pid     int
	done    chan struct{} // closed once it has ended; err is set before
	err     error
}

// startProcess runs path with both outputs appended to logPath. The kernel kills the program if this process dies.
func startProcess(name, logPath, path string, args ...string) (*process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	defer log.Close()
	cmd := exec.Command(path, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}

	p := &process{name: name, logPath: logPath, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The death signal comes when the thread that started the child ends: keep it for the child's life.
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
		return fmt.Errorf("%s ended by itself: %s; its log: %s", p.name, status, p.logPath)
	default:
		return nil
	}
}

// kill is kill -9; it returns once the process is gone.
func (p *process) kill() {
	_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	<-p.done
}

// stop asks the process to end. The error says that it had ended before, or did not end when asked.
func (p *process) stop() error {
	if err := p.exited(); err != nil {
		return err
	}
	_ = syscall.Kill(p.pid, syscall.SIGTERM)
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		p.kill()
		return fmt.Errorf("%s did not end within %s of SIGTERM; its log: %s", p.name, stopTimeout, p.logPath)
	}
}

// freeAddress returns a loopback address whose port is free for TCP and UDP. A connection made and closed from its
// side leaves the port in TIME_WAIT, so that the kernel gives it to nobody who asks for any port before the server is
// up; the server itself may bind it, as servers set SO_REUSEADDR.
func freeAddress() (string, error) {
	const attempts = 10 // each fails only where another program uses the UDP port of the same number
	var last error
	for range attempts {
		address, err := freeTCP()
		if err != nil {
			return "", fmt.Errorf("finding a free port: %w", err)
		}
		packets, err := net.ListenPacket("udp", address)
		if err != nil {
			last = err
			continue
		}
		return address, packets.Close()
	}
	return "", fmt.Errorf("finding a free port: %w", last)
}

func freeTCP() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		return "", err
	}
	defer client.Close()
	server, err := listener.Accept()
	if err != nil {
		return "", err
	}
	if err := server.Close(); err != nil {
		return "", err
	}
	// The client must see the close before it closes itself, or TIME_WAIT could end up on its side.
	_, _ = client.Read(make([]byte, 1))
	return listener.Addr().String(), nil
}
