package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse/allocation"
)

// ledger is what the peers that stand straight on etcd share: a market in memory, and a key for each
// cluster that counts its holds. No API, no validation, no TLS: less than what ours does.
type ledger struct {
	client *clientv3.Client
	prefix string

	mu       sync.Mutex
	market   *allocation.Market
	decision allocation.Decision
	clusters map[string]*heldCluster
	count    int
}

type heldCluster struct {
	size  clusterSize
	holds int64
	seen  int64 // the key's ModRevision
}

func newLedger(client *clientv3.Client, prefix string) *ledger {
	return &ledger{client: client, prefix: prefix, market: allocation.NewMarket(), clusters: map[string]*heldCluster{}}
}

func (l *ledger) clusterKey(id string) string { return l.prefix + "/clusters/" + id }
func (l *ledger) holdKey(name string) string  { return l.prefix + "/reservations/" + name }

func (l *ledger) grow(ctx context.Context, clusters int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(loadingAt)
	for ; l.count < clusters; l.count++ {
		size := clusterOf(l.count)
		group.Go(func() error {
			put, err := l.client.Put(ctx, l.clusterKey(size.id), "0")
			if err == nil {
				l.learn(&heldCluster{size: size, seen: put.Header.Revision})
			}
			return err
		})
	}
	return group.Wait()
}

func (l *ledger) learn(c *heldCluster) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.clusters[c.size.id]; known != nil && known.seen > c.seen {
		return
	}
	l.clusters[c.size.id] = c
	l.market.Set(c.size.offer(c.holds))
}

var errNothingFits = errors.New("nothing fits")

// choose one of the best so many, at random.
func (l *ledger) choose(among int) (heldCluster, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.market.Decide(&allocation.Request{Requester: "bench", Amounts: requestAmounts, MaxPriceNano: allocation.NoPriceLimit}, &l.decision)
	ranked := l.decision.Ranked()
	if len(ranked) == 0 {
		return heldCluster{}, errNothingFits
	}
	return *l.clusters[ranked[rand.IntN(min(among, len(ranked)))].ClusterID], nil
}

// swap grants on the cluster if it still is as seen.
func (l *ledger) swap(ctx context.Context, c heldCluster, name string) (granted bool, err error) {
	key := l.clusterKey(c.size.id)
	answer, err := l.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", c.seen)).
		Then(clientv3.OpPut(key, fmt.Sprint(c.holds+1)), clientv3.OpPut(l.holdKey(name), record(name, c.size.id))).
		Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return false, err
	}
	if answer.Succeeded {
		c.holds, c.seen = c.holds+1, answer.Header.Revision
		l.learn(&c)
		return true, nil
	}
	kv := answer.Responses[0].GetResponseRange().Kvs[0]
	if err := json.Unmarshal(kv.Value, &c.holds); err != nil {
		return false, err
	}
	c.seen = kv.ModRevision
	l.learn(&c)
	return false, nil
}

// record is a reservation as small as it can be and still say what ours does.
func record(name, cluster string) string {
	return fmt.Sprintf(`{"name":%q,"requesterID":"bench","cpu":"%dm","memory":"%d","phase":"Reserved","target":%q}`,
		name, requestMilli, requestBytes, cluster)
}

// singleWorker grants one request after the other: compare and swap that never conflicts.
type singleWorker struct {
	*ledger
	jobs chan job
	stop context.CancelFunc
}

type job struct {
	name string
	done chan error
}

func newSingleWorker(client *clientv3.Client) *singleWorker {
	ctx, stop := context.WithCancel(context.Background())
	w := &singleWorker{ledger: newLedger(client, "/single"), jobs: make(chan job), stop: stop}
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case j := <-w.jobs:
				j.done <- w.grant(ctx, j.name, 1)
			}
		}
	}()
	return w
}

func (w *singleWorker) reserve(ctx context.Context, name string) error {
	j := job{name, make(chan error, 1)}
	select {
	case w.jobs <- j:
		return <-j.done
	case <-ctx.Done():
		return ctx.Err()
	}
}

// grant tries until a swap succeeds.
func (l *ledger) grant(ctx context.Context, name string, among int) error {
	for {
		c, err := l.choose(among)
		if err != nil {
			return err
		}
		if granted, err := l.swap(ctx, c, name); err != nil || granted {
			return err
		}
	}
}

// topK grants on every client's own goroutine: a cached view, one of the best eight at random, so that
// swaps seldom conflict.
type topK struct{ *ledger }

func (k topK) reserve(ctx context.Context, name string) error {
	return k.grant(ctx, name, allocation.Listed)
}

// assume is an upper bound, not a correct controller: it grants in memory and puts without a condition,
// so two of them, or one that dies, would promise capacity twice.
type assume struct{ *ledger }

func (a assume) reserve(ctx context.Context, name string) error {
	c, err := a.choose(1)
	if err != nil {
		return err
	}
	c.holds++
	a.learn(&c)
	_, err = a.client.Put(ctx, a.holdKey(name), record(name, c.size.id))
	return err
}
