package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/bourse-dev/bourse/test/kube"
)

// Every member cluster has two of these machines.
const (
	nodeCPU, nodeMemory = "32", "128Gi"
	nodesPerCluster     = 2
)

// capacity is what a member cluster offers when nothing runs on it.
var capacity = amounts{nodesPerCluster * 32_000, nodesPerCluster * 128 * gibi}

// startTimeout bounds the start of everything; on a busy two-core machine it takes half a minute.
const startTimeout = 4 * time.Minute

// world is all that runs.
type world struct {
	dir      string
	kubectl  string // the one built beside the control planes
	exchange *exchange
	members  map[string]*member
}

// worldOptions are what a suite wants otherwise than the others.
type worldOptions struct {
	serverArgs []string                                         // of every broker node
	agentArgs  []string                                         // of every agent
	prepare    func(ctx context.Context, c *kube.Cluster) error // each cluster, before its agent runs
}

// startWorld starts three member clusters, three broker nodes and three agents, and stops them when the test ends.
func startWorld(t *testing.T, dir, bourse, kubeBin string, o worldOptions) *world {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	w := &world{dir: dir, kubectl: filepath.Join(kubeBin, "kubectl"), members: map[string]*member{}}
	must(t, os.MkdirAll(w.home(), 0o700))

	var err error
	w.exchange, err = newExchange(ctx, filepath.Join(dir, "exchange"), bourse, 3, o.serverArgs...)
	must(t, err)
	t.Cleanup(func() {
		if err := w.exchange.stop(); err != nil {
			t.Error(err)
		}
	})
	for _, n := range w.exchange.nodes {
		must(t, w.exchange.start(n))
	}
	readyAfter := make(chan string, 1)
	var starting sync.WaitGroup
	starting.Go(func() {
		if err := w.exchange.waitReady(ctx); err != nil {
			t.Error(err)
		}
		readyAfter <- fmt.Sprintf("three broker nodes ready after %.1f s", time.Since(began).Seconds())
	})
	w.startClusters(t, ctx, kubeBin, o)
	starting.Wait()
	t.Log(<-readyAfter)
	if t.Failed() {
		t.FailNow()
	}
	w.startAgents(t, ctx)
	t.Logf("everything runs after %.1f s", time.Since(began).Seconds())
	return w
}

func (w *world) startClusters(t *testing.T, ctx context.Context, kubeBin string, o worldOptions) {
	t.Helper()
	var starting sync.WaitGroup
	var mu sync.Mutex
	for i, name := range []string{"rome", "paris", "berlin"} {
		starting.Go(func() {
			began := time.Now()
			options := kube.Options{Name: name, Dir: filepath.Join(w.dir, "clusters"), BinDir: kubeBin}
			for n := range nodesPerCluster {
				options.Nodes = append(options.Nodes, kube.Node{Name: fmt.Sprintf("%s-%d", name, n+1), CPU: nodeCPU, Memory: nodeMemory})
			}
			c, err := kube.Start(ctx, options)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() {
				if err := c.Stop(); err != nil {
					t.Error(err)
				}
			})
			if err := applyRights(ctx, c); err != nil {
				t.Error(err)
				return
			}
			if o.prepare != nil {
				if err := o.prepare(ctx, c); err != nil {
					t.Error(err)
					return
				}
			}
			t.Logf("cluster %s ready after %.1f s", name, time.Since(began).Seconds())
			mu.Lock()
			defer mu.Unlock()
			w.members[name] = &member{name: name, cluster: c, node: w.exchange.nodes[i], args: o.agentArgs}
		})
	}
	starting.Wait()
}

func (w *world) startAgents(t *testing.T, ctx context.Context) {
	t.Helper()
	for _, m := range w.members {
		must(t, w.exchange.startAgent(ctx, m))
		t.Cleanup(func() {
			if err := stop(m.proc); err != nil {
				t.Error(err)
			}
		})
	}
	for name, m := range w.members {
		must(t, waitFor(ctx, patience, name+"'s advertisement to be Active", func(ctx context.Context) error {
			if err := m.proc.Exited(); err != nil {
				return err
			}
			adv, err := getAdvertisement(ctx, w.at(0), name)
			if err != nil {
				return err
			}
			if adv.Status.Phase != "Active" || len(adv.Spec.Resources.Allocatable) == 0 {
				return fmt.Errorf("%s: phase %q, %+v", adv.Name, adv.Status.Phase, adv.Spec.Resources)
			}
			return nil
		}))
	}
}

func (w *world) home() string { return filepath.Join(w.dir, "home") }

// at is an administrator's client of the i-th broker node.
func (w *world) at(i int) dynamic.Interface { return w.exchange.nodes[i].client }

// as is kubectl with a role at the i-th broker node.
func (w *world) as(t *testing.T, ctx context.Context, role string, i int) kubectl {
	t.Helper()
	n := w.exchange.nodes[i]
	kubeconfig, err := w.exchange.kubeconfig(ctx, n, role)
	must(t, err)
	return kubectl{path: w.kubectl, home: filepath.Join(w.home(), n.id), kubeconfig: kubeconfig}
}
