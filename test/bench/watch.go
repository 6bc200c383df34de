package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

const (
	reservationsPath = "/apis/broker.fluidos.eu/v1alpha1/reservations"
	// watchGoal is where the goal of watch delivery is set.
	watchGoal = 500
)

// audience are watchers of all reservations. They look for the type of a line and no further: decoding
// 1,000 copies would measure this process.
type audience struct {
	heard  chan time.Time
	cancel context.CancelFunc
	ended  *errgroup.Group
}

// watchers open one watch each, in turn on the servers given, and return once all are open.
func watchers(ctx context.Context, servers []*rest.Config, count int) (*audience, error) {
	ctx, cancel := context.WithCancel(ctx)
	a := &audience{heard: make(chan time.Time, count), cancel: cancel, ended: &errgroup.Group{}}
	clients := make([]*http.Client, len(servers))
	for i, s := range servers {
		var err error
		if clients[i], err = rest.HTTPClientFor(s); err != nil {
			cancel()
			return nil, err
		}
	}
	revision, err := listRevision(ctx, clients[0], servers[0].Host)
	if err != nil {
		cancel()
		return nil, err
	}
	var opening sync.WaitGroup
	var faults errgroup.Group
	for i := range count {
		opening.Add(1)
		faults.Go(func() error {
			defer opening.Done()
			url := fmt.Sprintf("%s%s?watch=true&resourceVersion=%s", servers[i%len(servers)].Host, reservationsPath, revision)
			body, err := get(ctx, clients[i%len(clients)], url)
			if err == nil {
				a.ended.Go(func() error { return a.read(ctx, body) })
			}
			return err
		})
	}
	if err := faults.Wait(); err != nil {
		return nil, errors.Join(err, a.stop())
	}
	return a, nil
}

func get(ctx context.Context, c *http.Client, url string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := c.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("%s: %s", url, response.Status), response.Body.Close())
	}
	return response.Body, nil
}

func listRevision(ctx context.Context, c *http.Client, host string) (string, error) {
	body, err := get(ctx, c, host+reservationsPath)
	if err != nil {
		return "", err
	}
	defer body.Close() //nolint:errcheck // only read
	var list broker.ReservationList
	if err := json.NewDecoder(body).Decode(&list); err != nil {
		return "", err
	}
	return list.ResourceVersion, nil
}

func (a *audience) read(ctx context.Context, body io.ReadCloser) error {
	defer body.Close() //nolint:errcheck // only read
	lines := bufio.NewReaderSize(body, 64<<10)
	for {
		line, err := lines.ReadSlice('\n')
		if bytes.HasPrefix(line, []byte(`{"type":"ADDED"`)) {
			a.heard <- time.Now()
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("watch: %w", err)
		}
	}
}

func (a *audience) stop() error {
	a.cancel()
	return a.ended.Wait()
}

// tell creates one object and waits until all have heard of it.
func (a *audience) tell(ctx context.Context, count int, create func(context.Context) error) (took latencies, err error) {
	ctx, cancel := context.WithTimeout(ctx, tryWithin)
	defer cancel()
	started := time.Now()
	if err := create(ctx); err != nil {
		return nil, err
	}
	for range count {
		select {
		case at := <-a.heard:
			took = append(took, at.Sub(started))
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d watchers heard: %w", len(took), count, ctx.Err())
		}
	}
	return took, nil
}

// watchSection measures ours and a kube-apiserver alike, in turn.
func (b *bench) watchSection(ctx context.Context) error {
	e, err := startExchange(ctx, b.bin, filepath.Join(b.dir, "watch"))
	if err != nil {
		return err
	}
	defer e.stop()
	if err := (&members{exchange: e}).grow(ctx, 10); err != nil {
		return err
	}
	etcd, err := startEtcd(ctx, b.kube, filepath.Join(b.dir, "watch-etcd"))
	if err != nil {
		return err
	}
	defer etcd.stop()
	kube, err := startAPIServer(ctx, b.kube, filepath.Join(b.dir, "watch-kube"), etcd)
	if err != nil {
		return err
	}
	defer kube.stop()
	kubeClient, err := client.New(kube.config, client.Options{Scheme: peerScheme})
	if err != nil {
		return err
	}
	var servers []*rest.Config
	for _, n := range e.nodes {
		servers = append(servers, n.raw)
	}
	leader, _, err := e.leader(ctx)
	if err != nil {
		return err
	}
	sides := []watchSide{
		{"ours", servers, func(ctx context.Context) error { return leader.reserve(ctx, nextName()) }},
		{"kube-apiserver", []*rest.Config{kube.config}, func(ctx context.Context) error {
			return kubeClient.Create(ctx, reservation("default", nextName()))
		}},
	}
	for _, count := range b.size.watchers {
		if err := b.watch(ctx, sides, count); err != nil {
			return err
		}
	}
	return nil
}

type watchSide struct {
	name    string
	servers []*rest.Config
	create  func(context.Context) error
}

func (b *bench) watch(ctx context.Context, sides []watchSide, count int) error {
	p50, p99 := map[string]series{}, map[string]series{}
	for round := range b.size.rounds {
		for i := range sides {
			side := sides[(i+round)%len(sides)]
			a, err := watchers(ctx, side.servers, count)
			if err != nil {
				return fmt.Errorf("%s, %d watchers: %w", side.name, count, err)
			}
			var all latencies
			for range b.size.watchEvents {
				took, err := a.tell(ctx, count, side.create)
				if err != nil {
					return errors.Join(fmt.Errorf("%s: %w", side.name, err), a.stop())
				}
				all = append(all, took...)
			}
			if err := a.stop(); err != nil {
				return fmt.Errorf("%s: %w", side.name, err)
			}
			p50[side.name] = append(p50[side.name], milliseconds(all.quantile(0.5)))
			p99[side.name] = append(p99[side.name], milliseconds(all.quantile(0.99)))
		}
	}
	for _, side := range sides {
		r := row{
			what: fmt.Sprintf("create sent to heard by watchers, %d of them, p99: %s", count, side.name), unit: "ms",
			values: p99[side.name], note: "p50 " + figure(p50[side.name].median()),
		}
		if side.name == "ours" && count == watchGoal {
			r.goals = []goal{below(r.values.median(), 50, "ms")}
		}
		b.table.add(r)
	}
	return nil
}
