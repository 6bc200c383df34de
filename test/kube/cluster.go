package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/bourse-dev/bourse/test/kube/internal/child"
)

// startTimeout bounds Start where its context has no deadline: ten times what a busy two-core machine needs.
const startTimeout = 3 * time.Minute

// Options say which cluster Start starts.
type Options struct {
	Name   string    // rome; a DNS label, and the context's name in kubeconfigs
	Dir    string    // the cluster keeps everything in Dir/Name, which must not exist yet
	BinDir string    // where the programs are; empty: what BinDir finds
	Log    io.Writer // a line per step; nil: none. Shared by several clusters, it must allow concurrent writes.
	Nodes  []Node    // nodes to begin with; Start returns once all are Ready
}

// Cluster is a running control plane. All methods may be called from any goroutine, but for Stop, which ends them.
type Cluster struct {
	name    string
	dir     string
	binDir  string
	started time.Time
	config  *rest.Config
	client  kubernetes.Interface

	logMu sync.Mutex
	log   io.Writer

	pki   *pki
	ports ports

	procMu sync.Mutex
	procs  []*child.Process // in the order in which they were started; Stop goes backwards
	killed map[string]bool  // by Kill, and not revived since
}

// ports are where the programs listen, all on loopback.
type ports struct{ etcdClient, etcdPeer, apiserver, scheduler int }

var clusterName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// Start starts a cluster and returns once it is of use: the API server is ready, the controllers have made the default
// service account, the scheduler has synced, and every node in o.Nodes is Ready. ctx bounds the start only. If
// anything fails, whatever was started is stopped again; the logs stay in Dir/Name/logs.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	c, err := newCluster(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("cluster %q: %w", o.Name, err)
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, startTimeout)
		defer cancel()
	}
	if err := c.start(ctx, o.Nodes); err != nil {
		_ = c.Stop() // err already says which program ended, if one did
		return nil, fmt.Errorf("cluster %s: %w", c.name, err)
	}
	c.logf("ready")
	return c, nil
}

func newCluster(ctx context.Context, o Options) (*Cluster, error) {
	if !clusterName.MatchString(o.Name) {
		return nil, errors.New("the name must be a DNS label")
	}
	if o.Dir == "" {
		return nil, errors.New("no directory given")
	}
	dir, err := filepath.Abs(filepath.Join(o.Dir, o.Name))
	if err != nil {
		return nil, err
	}
	bin := o.BinDir
	if bin == "" {
		if bin, err = BinDir(ctx); err != nil {
			return nil, err
		}
	}
	// An old etcd under a new CA would hold tokens and secrets that nobody accepts any more.
	if _, err := os.Lstat(dir); err == nil {
		return nil, fmt.Errorf("directory %s exists already", dir)
	}
	for _, d := range []string{"pki", "logs", "kubeconfigs", "etcd"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, fmt.Errorf("making its directory: %w", err)
		}
	}
	return &Cluster{name: o.Name, dir: dir, binDir: bin, log: o.Log, started: time.Now(), killed: map[string]bool{}}, nil
}

// start brings the components up in the order of their needs; the last three only need the API server.
func (c *Cluster) start(ctx context.Context, nodes []Node) error {
	var err error
	if c.pki, err = newPKI(filepath.Join(c.dir, "pki")); err != nil {
		return fmt.Errorf("making certificates: %w", err)
	}
	for _, port := range []*int{&c.ports.etcdClient, &c.ports.etcdPeer, &c.ports.apiserver, &c.ports.scheduler} {
		if *port, err = child.FreePort(); err != nil {
			return err
		}
	}
	if err := c.writeKubeconfigs(); err != nil {
		return err
	}
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	if err := c.startAPIServer(ctx); err != nil {
		return err
	}
	if err := c.startControllers(); err != nil {
		return err
	}
	for _, n := range nodes {
		if err := c.createNode(ctx, n); err != nil {
			return err
		}
	}
	if err := c.waitControllers(ctx); err != nil {
		return err
	}
	for _, n := range nodes {
		if err := c.waitNode(ctx, n.Name, true); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends the cluster: kwok, scheduler and controllers, then the API server, then etcd, because an API server whose
// etcd went first hangs. Each has child.StopTimeout to end by itself and is killed after that, so Stop is bounded. The data
// and the logs stay. The error names the programs that had ended before they were asked to. A second call does nothing.
func (c *Cluster) Stop() error {
	c.procMu.Lock()
	defer c.procMu.Unlock()
	var errs []error
	for len(c.procs) > 0 {
		p := c.procs[len(c.procs)-1]
		c.procs = c.procs[:len(c.procs)-1]
		began := time.Now()
		if err := p.Exited(); err != nil && !c.killed[p.Name] {
			errs = append(errs, err)
		}
		if killed := p.Stop(); killed {
			c.logf("%s killed: it did not stop within %s", p.Name, child.StopTimeout)
			continue
		}
		c.logf("%s stopped in %s", p.Name, seconds(time.Since(began)))
	}
	return errors.Join(errs...)
}

// Name is the cluster's name.
func (c *Cluster) Name() string { return c.name }

// Dir is where the cluster keeps its data, keys and logs.
func (c *Cluster) Dir() string { return c.dir }

// LogPath is the log of one program: etcd, kube-apiserver, kube-controller-manager, kube-scheduler or kwok.
func (c *Cluster) LogPath(program string) string {
	return filepath.Join(c.dir, "logs", program+".log")
}

// URL is the address of the API server.
func (c *Cluster) URL() string { return "https://" + loopback(c.ports.apiserver) }

// Client is a client with all rights. It has no rate limit.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// Config is a copy of what Client uses, for other kinds of clients.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

func (c *Cluster) logf(format string, args ...any) {
	if c.log == nil {
		return
	}
	c.logMu.Lock()
	defer c.logMu.Unlock()
	// One Write per line, so that lines of several clusters do not mix.
	_, _ = fmt.Fprintf(c.log, "kube: %s: %6s: %s\n", c.name, seconds(time.Since(c.started)), fmt.Sprintf(format, args...))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
