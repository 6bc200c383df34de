package kube

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/client-go/rest"

	"github.com/bourse-dev/bourse/test/kube/internal/child"
)

// APIServer is the program without which a cluster does not answer.
const APIServer = "kube-apiserver"

// Kill is kill -9 of one program. It returns once it is gone; Revive starts it again.
func (c *Cluster) Kill(program string) error {
	p, _, err := c.process(program)
	if err != nil {
		return err
	}
	c.procMu.Lock()
	c.killed[program] = true
	c.procMu.Unlock()
	p.Kill()
	c.logf("%s killed", program)
	return nil
}

// Revive starts a killed program again, on the same port and data. For the API server it returns once that is ready, and
// starts kwok anew: by itself that renews the nodes' leases again only after they have lapsed, where kubelets are quicker.
func (c *Cluster) Revive(ctx context.Context, program string) error {
	old, at, err := c.process(program)
	if err != nil {
		return err
	}
	p, err := child.Start(old.Program)
	if err != nil {
		return err
	}
	c.procMu.Lock()
	c.procs[at] = p // where it was, so that Stop keeps its order
	delete(c.killed, program)
	c.procMu.Unlock()
	if program != APIServer {
		return nil
	}
	client, err := rest.HTTPClientFor(c.config)
	if err != nil {
		return fmt.Errorf("making a client of the API server: %w", err)
	}
	defer client.CloseIdleConnections()
	if err := c.waitFor(ctx, "the API server", func(ctx context.Context) error {
		return ready(ctx, client, c.URL()+"/readyz")
	}); err != nil {
		return err
	}
	if err := c.Kill("kwok"); err != nil {
		return err
	}
	return c.Revive(ctx, "kwok")
}

func (c *Cluster) process(program string) (p *child.Process, at int, err error) {
	c.procMu.Lock()
	defer c.procMu.Unlock()
	at = slices.IndexFunc(c.procs, func(p *child.Process) bool { return p.Name == program })
	if at < 0 {
		return nil, 0, fmt.Errorf("cluster %s runs no %s", c.name, program)
	}
	return c.procs[at], at, nil
}
