package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/bourse-dev/bourse/test/kube/internal/child"
)

// exchange is the group of broker nodes under test.
type exchange struct {
	dir    string // everything of it
	bourse string // the program
	nodes  []*node
	args   []string // of every node, beside its own
}

// node is one broker node. Its addresses and data stay the same when it is killed and started again.
type node struct {
	id                string
	api, raft, gossip string // addresses
	args              []string
	logPath           string
	proc              *child.Process
	client            dynamic.Interface // as admin
	web               *http.Client      // as admin
}

// newExchange makes certificates and command lines of n nodes; it starts none of them.
func newExchange(ctx context.Context, dir, bourse string, n int, args ...string) (*exchange, error) {
	x := &exchange{dir: dir, bourse: bourse, args: args}
	for _, d := range []string{"data", "logs", "kubeconfigs"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, err
		}
	}
	if err := x.run(ctx, "pki", "init", "--dir", x.pki("")); err != nil {
		return nil, err
	}
	var gossips []string
	for i := range n {
		node := &node{id: fmt.Sprintf("n%d", i+1)}
		for _, address := range []*string{&node.api, &node.raft, &node.gossip} {
			var err error
			if *address, err = freeAddress(); err != nil {
				return nil, err
			}
		}
		gossips = append(gossips, node.gossip)
		x.nodes = append(x.nodes, node)
	}
	for _, node := range x.nodes {
		if err := x.prepare(ctx, node, gossips); err != nil {
			return nil, err
		}
	}
	return x, nil
}

func (x *exchange) prepare(ctx context.Context, n *node, gossips []string) error {
	if err := x.run(ctx, "pki", "issue", "--dir", x.pki(""), "--node", n.id, "--out", x.pki(n.id)); err != nil {
		return err
	}
	n.logPath = filepath.Join(x.dir, "logs", n.id+".log")
	n.args = []string{
		"server", "--node-id", n.id, "--data-dir", filepath.Join(x.dir, "data", n.id),
		"--listen", n.api, "--raft-listen", n.raft, "--gossip-listen", n.gossip,
		"--bootstrap-expect", fmt.Sprint(len(gossips)), "--join", strings.Join(gossips, ","),
		"--tls-ca", x.pki("ca.crt"), "--tls-cert", x.pki(n.id + ".crt"), "--tls-key", x.pki(n.id + ".key"),
		"--gossip-key-file", x.pki("gossip.key"),
	}
	n.args = append(n.args, x.args...)
	path, err := x.kubeconfig(ctx, n, "admin")
	if err != nil {
		return err
	}
	config, err := restConfig(path)
	if err != nil {
		return err
	}
	if n.client, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	n.web, err = rest.HTTPClientFor(config)
	return err
}

func (x *exchange) pki(file string) string { return filepath.Join(x.dir, "pki", file) }

// run runs a command of the product that ends by itself.
func (x *exchange) run(ctx context.Context, args ...string) error {
	if out, err := exec.CommandContext(ctx, x.bourse, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("bourse %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// kubeconfig issues a kubeconfig for a role at one node, or returns the one issued before.
func (x *exchange) kubeconfig(ctx context.Context, at *node, role string) (string, error) {
	path := filepath.Join(x.dir, "kubeconfigs", strings.ReplaceAll(role, ":", "-")+"-"+at.id)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return path, x.run(ctx, "pki", "kubeconfig", "--dir", x.pki(""), "--for", role, "--server", "https://"+at.api, "--out", path)
}

// restConfig reads a kubeconfig for clients without a rate limit of their own.
func restConfig(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.UserAgent = "bourse-e2e"
	return config, nil
}

// program starts the product once more.
func (x *exchange) program(name, logPath string, args []string) (*child.Process, error) {
	return child.Start(child.Program{Name: name, Path: x.bourse, Args: args, Dir: x.dir, LogPath: logPath})
}

// stop asks a process to end. The error says that it had ended before, or did not end when asked.
func stop(p *child.Process) error {
	if err := p.Exited(); err != nil {
		return err
	}
	if killed := p.Stop(); killed {
		return fmt.Errorf("%s did not end within %s of SIGTERM; its log: %s", p.Name, child.StopTimeout, p.LogPath)
	}
	return nil
}

func freeAddress() (string, error) {
	port, err := child.FreePort()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}

func (x *exchange) start(n *node) (err error) {
	n.proc, err = x.program("bourse server "+n.id, n.logPath, n.args)
	return err
}

// waitReady waits until every node answers /readyz.
func (x *exchange) waitReady(ctx context.Context) error {
	return waitFor(ctx, patience, "all broker nodes to be ready", func(ctx context.Context) error {
		for _, n := range x.nodes {
			if err := n.proc.Exited(); err != nil {
				return err
			}
			if _, err := n.get(ctx, "/readyz"); err != nil {
				return err
			}
		}
		return nil
	})
}

func (x *exchange) stop() error {
	var errs []error
	for _, n := range x.nodes {
		if n.proc != nil {
			errs = append(errs, stop(n.proc))
		}
	}
	return errors.Join(errs...)
}

// leader asks every running node who leads and returns once a majority of all nodes agrees.
func (x *exchange) leader(ctx context.Context) (*node, error) {
	var leader *node
	err := waitFor(ctx, patience, "a leader that a majority knows", func(ctx context.Context) error {
		votes, seen := map[string]int{}, []error{}
		for _, n := range x.nodes {
			id, err := n.leaderSeen(ctx)
			if err != nil {
				seen = append(seen, err)
				continue
			}
			if votes[id]++; 2*votes[id] > len(x.nodes) {
				leader = x.node(id)
				return nil
			}
		}
		return errors.Join(append(seen, fmt.Errorf("votes: %v", votes))...)
	})
	return leader, err
}

// transition is what changes when leadership does.
type transition struct {
	id   string
	term uint64
}

func (n *node) leadership(ctx context.Context) (transition, error) {
	body, err := n.get(ctx, "/admin/v1/raft/configuration")
	if err != nil {
		return transition{}, err
	}
	view, err := readView(body)
	if err != nil {
		return transition{}, fmt.Errorf("%s: %w", n.id, err)
	}
	for _, server := range view.Servers {
		if server.Leader {
			return transition{server.ID, view.Term}, nil
		}
	}
	return transition{}, fmt.Errorf("%s sees no leader: %s", n.id, body)
}

// groupView is the answer of /admin/v1/raft/configuration, and what `bourse raft list-peers -o json` prints.
type groupView struct {
	Servers []struct {
		ID       string `json:"id"`
		Suffrage string `json:"suffrage"`
		Leader   bool   `json:"leader"`
	} `json:"servers"`
	Term uint64 `json:"term"`
}

func readView(body []byte) (groupView, error) {
	var view groupView
	if err := json.Unmarshal(body, &view); err != nil {
		return view, fmt.Errorf("raft configuration: %w: %s", err, body)
	}
	return view, nil
}

func (n *node) leaderSeen(ctx context.Context) (string, error) {
	seen, err := n.leadership(ctx)
	return seen.id, err
}

func (x *exchange) node(id string) *node {
	for _, n := range x.nodes {
		if n.id == id {
			return n
		}
	}
	return nil
}

// others are all nodes but one.
func (x *exchange) others(but *node) []*node {
	var out []*node
	for _, n := range x.nodes {
		if n != but {
			out = append(out, n)
		}
	}
	return out
}

// revive starts a killed node again on its data and waits until it serves.
func (x *exchange) revive(t *testing.T, ctx context.Context, n *node) {
	t.Helper()
	began := time.Now()
	must(t, x.start(n))
	must(t, x.waitReady(ctx))
	t.Logf("%s is ready again %s after its start", n.id, time.Since(began).Round(time.Millisecond))
}

// get is an HTTP GET as admin; any answer but 200 is an error.
func (n *node) get(ctx context.Context, path string) ([]byte, error) {
	a, err := n.call(ctx, n.web, http.MethodGet, path, "", "")
	if err != nil {
		return nil, err
	}
	if a.code != http.StatusOK {
		return nil, fmt.Errorf("%s: GET %s: %d: %s", n.id, path, a.code, a.body)
	}
	return a.body, nil
}

// answer is what a node said to one HTTP request.
type answer struct {
	code     int
	body     []byte
	warnings []string
}

func (n *node) call(ctx context.Context, web *http.Client, method, path, contentType, body string) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, "https://"+n.api+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := web.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, content, response.Header.Values("Warning")}, err
}
