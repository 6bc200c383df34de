package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// BinEnv names a directory with the programs; it wins over build.sh's cache.
const BinEnv = "BOURSE_KUBE_BIN"

// programs are what a cluster needs; build.sh builds them.
var programs = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok"}

// ErrNotBuilt is returned by BinDir where the programs are missing. Tests skip with it.
var ErrNotBuilt = errors.New("the control plane's programs are not built")

// BinDir finds the programs in $BOURSE_KUBE_BIN or in the cache that build.sh keeps. It builds nothing.
func BinDir(ctx context.Context) (string, error) {
	if dir := os.Getenv(BinEnv); dir != "" {
		for _, name := range programs {
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				return "", fmt.Errorf("%w: %s: %w", ErrNotBuilt, BinEnv, err)
			}
		}
		return dir, nil
	}
	_, source, _, _ := runtime.Caller(0)
	script := filepath.Join(filepath.Dir(source), "build.sh")
	if _, err := os.Stat(script); err != nil {
		return "", fmt.Errorf("looking for build.sh (set %s instead): %w", BinEnv, err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, script, "where")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w: %s", ErrNotBuilt, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}
