package main

import (
	"bufio"
	"context"
	"encoding/json"
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

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	adminv1 "github.com/bourse-dev/bourse/api/admin/v1"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

const startWithin = 2 * time.Minute

// exchangeUnderTest is one `bourse dev`.
type exchangeUnderTest struct {
	dir     string
	command *exec.Cmd
	ended   chan error
	api     *rest.RESTClient
	readyIn time.Duration
}

// startExchange starts `bourse dev` with that many member clusters and waits until it says it is ready.
func startExchange(ctx context.Context, bin, dir string, clusters int) (*exchangeUnderTest, error) {
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
	e := &exchangeUnderTest{dir: dir, command: command, ended: make(chan error, 1)}
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
	e.api, err = client(filepath.Join(dir, "kubeconfig"))
	return e, err
}

func (e *exchangeUnderTest) stop() error {
	if err := e.command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return <-e.ended
}

func client(kubeconfig string) (*rest.RESTClient, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := broker.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config.GroupVersion = &broker.SchemeGroupVersion
	config.APIPath = "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.QPS = -1 // what is measured is the exchange, not the client's own limit
	config.WarningHandler = rest.NoWarnings{}
	config.Timeout = 10 * time.Second
	return rest.RESTClientFor(config)
}

func (e *exchangeUnderTest) leader(ctx context.Context) (id string, err error) {
	data, err := e.api.Get().AbsPath(adminv1.PathConfiguration).Do(ctx).Raw()
	if err != nil {
		return "", err
	}
	var configuration adminv1.RaftConfiguration
	if err := json.Unmarshal(data, &configuration); err != nil {
		return "", err
	}
	for _, server := range configuration.Servers {
		if server.Leader {
			return server.ID, nil
		}
	}
	return "", errors.New("no leader")
}

func (e *exchangeUnderTest) pid(node string) (int, error) {
	text, err := os.ReadFile(filepath.Join(e.dir, node, "pid"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// caughtUp says whether every member was heard just now and lacks nothing.
func (e *exchangeUnderTest) caughtUp(ctx context.Context) bool {
	data, err := e.api.Get().AbsPath(adminv1.PathConfiguration).Do(ctx).Raw()
	if err != nil {
		return false
	}
	var configuration adminv1.RaftConfiguration
	if err := json.Unmarshal(data, &configuration); err != nil {
		return false
	}
	for _, server := range configuration.Servers {
		if !server.Leader && (server.LastContactMs < 0 || server.LastContactMs > 500 || server.Lag != 0) {
			return false
		}
	}
	return len(configuration.Servers) == 3
}
