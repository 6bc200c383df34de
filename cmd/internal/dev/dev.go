// Package dev runs a whole exchange on one machine: broker nodes as child
// processes on data directories that survive, a forwarding address, and agents
// on simulated member clusters. Only the member clusters are simulated.
package dev

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/validation"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/cmd/internal/pki"
)

// Limits of a set-up that is meant for one machine.
const (
	maxServers   = 7
	maxClusters  = 64
	readyTimeout = 60 * time.Second
)

// anyRegistry holds the artifacts of all coordinates: no simulated cluster pulls any.
const anyRegistry = "registry.simulated.invalid"

// Config is what `bourse dev` is told.
type Config struct {
	DataDir  string
	Servers  int
	Clusters []string
	Listen   string
	Binary   string // that runs `server`; our own
	Out      io.Writer
	Log      hclog.Logger
}

// Validate reports all faults at once.
func (c *Config) Validate() error {
	var faults []error
	if c.DataDir == "" {
		faults = append(faults, errors.New("data-dir is empty"))
	}
	if c.Servers < 1 || c.Servers > maxServers || c.Servers%2 == 0 {
		faults = append(faults, fmt.Errorf("servers %d: must be odd, 1 to %d", c.Servers, maxServers))
	}
	if len(c.Clusters) > maxClusters {
		faults = append(faults, fmt.Errorf("clusters: %d given, at most %d", len(c.Clusters), maxClusters))
	}
	for i, id := range c.Clusters {
		if problems := validation.IsDNS1123Label(id); len(problems) > 0 {
			faults = append(faults, fmt.Errorf("clusters: %q: %s", id, problems[0]))
		}
		if slices.Contains(c.Clusters[:i], id) {
			faults = append(faults, fmt.Errorf("clusters: %q is given twice", id))
		}
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		faults = append(faults, fmt.Errorf("listen %q: must be a loopback address with a port, as 127.0.0.1:7440", c.Listen))
	}
	return errors.Join(faults...)
}

// Run starts everything, says so, and keeps it running until ctx ends.
func Run(ctx context.Context, c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	dir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return err
	}
	c.DataDir = dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the data directory: %w", err)
	}
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s (is another bourse dev running?): %w", c.Listen, err)
	}
	defer listener.Close() //nolint:errcheck // closed by the forwarder in good time
	authority, err := openAuthority(filepath.Join(dir, "pki"))
	if err != nil {
		return err
	}
	nodes, err := c.prepareNodes(authority)
	if err != nil {
		return err
	}
	url := "https://" + listener.Addr().String()
	files, err := c.writeKubeconfigs(authority, url)
	if err != nil {
		return err
	}
	probe, err := newHealth(authority, nodes)
	if err != nil {
		return err
	}
	return c.supervise(ctx, nodes, probe, &forwarder{listener: listener, health: probe}, files)
}

// supervise stops in the order: agents, then the forwarder and nodes.
func (c *Config) supervise(ctx context.Context, nodes []*node, probe *health, forward *forwarder, files *kubeconfigs) error {
	below, stopBelow := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBelow()
	group, groupCtx := errgroup.WithContext(below)
	for _, n := range nodes {
		group.Go(func() error { n.run(groupCtx); return nil })
	}
	group.Go(func() error { return probe.run(groupCtx) })
	group.Go(func() error { return forward.run(groupCtx) })

	above, stopAbove := context.WithCancel(ctx)
	defer stopAbove()
	context.AfterFunc(groupCtx, stopAbove)
	err := c.waitReady(above, nodes, probe)
	if err == nil {
		err = c.runMembers(above, files)
	}
	interrupted := ctx.Err() != nil
	if interrupted {
		fmt.Fprintln(c.Out, "stopping") //nolint:errcheck // nowhere left to report
	}
	stopBelow()
	if waitErr := group.Wait(); waitErr != nil {
		err = errors.Join(waitErr, err)
	}
	if interrupted && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (c *Config) waitReady(ctx context.Context, nodes []*node, probe *health) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	ticker := time.NewTicker(probeEvery / 5)
	defer ticker.Stop()
	for !probe.allReady() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return ctx.Err()
			}
			var lines []string
			for _, n := range nodes {
				lines = append(lines, fmt.Sprintf("%s (%s):\n%s", n.id, n.logPath(), n.lastLogLines(5)))
			}
			return fmt.Errorf("the broker nodes did not get ready within %s:\n%s", readyTimeout, strings.Join(lines, "\n"))
		}
	}
	return nil
}

func openAuthority(dir string) (*pki.Authority, error) {
	authority, err := pki.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return pki.Init(dir)
	}
	return authority, err
}

// prepareNodes issues certificates and composes the command lines of all broker nodes.
func (c *Config) prepareNodes(authority *pki.Authority) ([]*node, error) {
	var ids []string
	for i := range c.Servers {
		ids = append(ids, fmt.Sprintf("n%d", i+1))
	}
	ports, err := loadPorts(c.DataDir, ids)
	if err != nil {
		return nil, err
	}
	var join []string
	for _, id := range ids {
		join = append(join, ports[id].Gossip)
	}
	var nodes []*node
	for _, id := range ids {
		dir := filepath.Join(c.DataDir, id)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("create the directory of %s: %w", id, err)
		}
		pair, err := authority.Server(id, nil)
		if err != nil {
			return nil, err
		}
		base := filepath.Join(dir, "tls")
		if err := pair.Write(base); err != nil {
			return nil, err
		}
		n := &node{
			id: id, dir: dir, ports: ports[id], binary: c.Binary, log: c.Log,
			args: []string{
				"server",
				"--node-id", id,
				"--data-dir", filepath.Join(dir, "data"),
				"--listen", ports[id].API,
				"--raft-listen", ports[id].Raft,
				"--gossip-listen", ports[id].Gossip,
				"--bootstrap-expect", fmt.Sprint(c.Servers),
				"--tls-ca", authority.CertFile(),
				"--tls-cert", base + ".crt",
				"--tls-key", base + ".key",
				"--gossip-key-file", authority.GossipKeyFile(),
				"--blueprint-registries", broker.AnyGroup + "=" + anyRegistry,
			},
		}
		if c.Servers > 1 {
			n.args = append(n.args, "--join", strings.Join(join, ","))
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// kubeconfigs are the paths of what was issued.
type kubeconfigs struct {
	admin  string
	agents map[string]string // by cluster id
}

func (c *Config) writeKubeconfigs(authority *pki.Authority, url string) (*kubeconfigs, error) {
	files := &kubeconfigs{admin: filepath.Join(c.DataDir, "kubeconfig"), agents: map[string]string{}}
	agentDir := filepath.Join(c.DataDir, "agents")
	if err := os.MkdirAll(agentDir, 0o700); err != nil {
		return nil, fmt.Errorf("create the agents' directory: %w", err)
	}
	write := func(path, role string) error {
		identity, err := pki.ParseRole(role, nil)
		if err != nil {
			return err
		}
		return authority.WriteKubeconfig(path, identity, url)
	}
	if err := write(files.admin, "admin"); err != nil {
		return nil, err
	}
	for _, id := range c.Clusters {
		files.agents[id] = filepath.Join(agentDir, id+".kubeconfig")
		if err := write(files.agents[id], "agent:"+id); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func newHealth(authority *pki.Authority, nodes []*node) (*health, error) {
	ca, err := os.ReadFile(authority.CertFile())
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s holds no certificate", authority.CertFile())
	}
	probe := &health{
		ready: map[string]bool{},
		client: &http.Client{
			Timeout:   dialTimeout,
			Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}},
		},
	}
	for _, n := range nodes {
		probe.addresses = append(probe.addresses, n.ports.API)
	}
	return probe, nil
}
