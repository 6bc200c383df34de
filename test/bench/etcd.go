package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// etcdGroup is three etcd members with fsync, as ours are three nodes. All peers stand on it.
type etcdGroup struct {
	members []*etcdMember
	client  *clientv3.Client
}

type etcdMember struct {
	*process
	url    string
	client *clientv3.Client // to this member only
}

func startEtcd(ctx context.Context, bin, dir string, extra ...string) (*etcdGroup, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	ports, err := freePorts(6)
	if err != nil {
		return nil, err
	}
	var initial []string
	for i := range 3 {
		initial = append(initial, fmt.Sprintf("e%d=http://%s", i, ports[2*i+1]))
	}
	g := &etcdGroup{}
	for i := range 3 {
		name, client, peer := fmt.Sprintf("e%d", i), "http://"+ports[2*i], "http://"+ports[2*i+1]
		p, err := start(dir, name, append([]string{
			filepath.Join(bin, "etcd"), "--name", name, "--data-dir", filepath.Join(dir, name),
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--initial-cluster", strings.Join(initial, ","), "--log-level", "error",
			"--quota-backend-bytes", fmt.Sprint(8 << 30),
		}, extra...)...)
		if err != nil {
			g.stop()
			return nil, err
		}
		m := &etcdMember{process: p, url: client}
		g.members = append(g.members, m)
		if m.client, err = etcdClient(client); err != nil {
			g.stop()
			return nil, err
		}
	}
	if g.client, err = etcdClient(g.urls()...); err != nil {
		g.stop()
		return nil, err
	}
	if err := g.whole(ctx); err != nil {
		g.stop()
		return nil, err
	}
	return g, nil
}

func etcdClient(urls ...string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: urls, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
}

func (g *etcdGroup) urls() (urls []string) {
	for _, m := range g.members {
		urls = append(urls, m.url)
	}
	return urls
}

// leader is the member that leads.
func (g *etcdGroup) leader(ctx context.Context) (*etcdMember, error) {
	var faults error
	for _, m := range g.members {
		try, cancel := context.WithTimeout(ctx, time.Second)
		status, err := m.client.Status(try, m.url)
		cancel()
		if err == nil && status.Leader == status.Header.MemberId {
			return m, nil
		}
		faults = errors.Join(faults, err)
	}
	return nil, errors.Join(errors.New("no etcd member leads"), faults)
}

// whole waits until all members answer and have applied the same.
func (g *etcdGroup) whole(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for {
		var faults error
		var applied []uint64
		for _, m := range g.members {
			try, cancel := context.WithTimeout(ctx, time.Second)
			status, err := m.client.Status(try, m.url)
			cancel()
			faults = errors.Join(faults, err, m.ended())
			if err == nil && status.Leader != 0 {
				applied = append(applied, status.RaftAppliedIndex)
			}
		}
		if len(applied) == len(g.members) && applied[0] == applied[1] && applied[1] == applied[2] {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("etcd did not get whole: %w", errors.Join(ctx.Err(), faults))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (g *etcdGroup) stop() {
	if g.client != nil {
		_ = g.client.Close() // nothing is lost with it
	}
	for _, m := range g.members {
		if m.client != nil {
			_ = m.client.Close()
		}
		m.stop()
	}
}
