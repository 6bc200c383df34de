package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// profileEnv is where a server that was built for it writes profiles (see bench.sh).
	profileEnv     = "BOURSE_PROFILE"
	profileFor     = 10 * time.Second
	profileCluster = 1000
)

var errNoProfile = errors.New(profileEnv + " is not set: run it by PROFILE=DIR test/bench.sh")

// profileSection has all nodes write a CPU profile while 64 clients create one by one.
func (b *bench) profileSection(ctx context.Context) error {
	dir := os.Getenv(profileEnv)
	if dir == "" {
		return errNoProfile
	}
	e, err := startExchange(ctx, b.bin, filepath.Join(b.dir, "profile"), "--stale-after=24h")
	if err != nil {
		return err
	}
	defer e.stop()
	m := &members{exchange: e}
	if err := m.grow(ctx, profileCluster); err != nil {
		return err
	}
	leader, _, err := e.leader(ctx)
	if err != nil {
		return err
	}
	toggle := func() (err error) {
		for _, n := range e.nodes {
			err = errors.Join(err, syscall.Kill(n.pid, syscall.SIGUSR1))
		}
		return err
	}
	if err := toggle(); err != nil {
		return err
	}
	all, err := run(ctx, anyNode{m}.reserve, goalClients, profileFor, 1<<30)
	if err := errors.Join(err, toggle()); err != nil {
		return err
	}
	time.Sleep(time.Second) // until the files are written
	b.table.add(row{
		what: fmt.Sprintf("creates with profiling, %d clusters, %d clients, any node", profileCluster, goalClients), unit: "/s",
		values: series{all.perSecond}, note: fmt.Sprintf("the leader's profile: %s/%d-0.cpu", dir, leader.pid),
	})
	return nil
}
