package kube

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Apply runs kubectl apply -f on a manifest or a directory of them.
func (c *Cluster) Apply(ctx context.Context, manifestPath string) error {
	_, err := c.Kubectl(ctx, "apply", "-f", manifestPath)
	return err
}

// Kubectl runs the built kubectl against the cluster with all rights and returns its standard output. The error
// carries what it said on the other one.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(c.binDir, "kubectl"), args...)
	// HOME is where it caches discovery: a test must not use or change the person's own.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "HOME="+c.dir)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("cluster %s: kubectl %s: %w: %s",
			c.name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
