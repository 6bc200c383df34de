// Package simulated is a member cluster that doesn't exist: nodes and pods in memory, behind
// client-go's fake clientset, that come and go by a seeded random sequence. `bourse dev` runs
// real agents against it, so that one machine without Kubernetes shows the whole exchange. Every
// object in it is labelled as simulated. Deployments become pods there, and ready ones after a
// moment, but for images with the tag "broken". It runs nothing.
package simulated

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/testing"
)

// Cluster is one simulated member cluster.
type Cluster struct {
	config   Config
	client   *fake.Clientset
	feed     *feed
	random   *rand.Rand
	watched  chan struct{} // closed once nodes and pods are both watched
	lastName int

	// The fields below are Run's goroutine's own after New.
	nodes     []*simNode
	extra     *simNode // the node that comes and goes; nil: gone
	workloads map[string][]*instance
	luck      *rand.Rand // of workloads, so that they don't change what else happens
	lastID    int
}

// New makes the cluster with its nodes, and pods up to the middle of the utilisation band.
func New(config Config) (*Cluster, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("simulated cluster: %w", err)
	}
	c := &Cluster{
		config:  config,
		random:  rand.New(rand.NewPCG(config.Seed, 0)),
		watched: make(chan struct{}),

		workloads: map[string][]*instance{},
		luck:      rand.New(rand.NewPCG(config.Seed, 1)),
	}
	objects := []runtime.Object{c.systemNamespace()}
	for i := range config.Nodes {
		n := c.newNode(i + 1)
		c.nodes = append(c.nodes, n)
		objects = append(objects, c.nodeObject(n))
	}
	for c.percent() < (config.LowPercent+config.HighPercent)/2 {
		pod := c.arrival()
		if pod == nil {
			break
		}
		objects = append(objects, pod)
	}
	// Without field management: building it costs milliseconds with each pod, and nobody applies here.
	c.client = fake.NewSimpleClientset(objects...)
	c.feed = newFeed(c.client.Tracker())
	c.client.PrependReactor("*", "*", testing.ObjectReaction(c.feed))
	c.client.PrependWatchReactor("*", c.watch())
	c.client.PrependReactor("create", "deployments", c.createDeployment)
	c.client.PrependReactor("update", "deployments", c.updateDeployment)
	return c, nil
}

// Client reaches the cluster. It knows no field selectors and no permissions, and its watches
// need a reader: an agent.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// Run lets pods and nodes come and go until ctx ends, and returns nil then. Nothing moves before
// nodes and pods are watched: the fake clientset forgets what is deleted between list and watch.
// Call it once.
func (c *Cluster) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-c.watched:
	}
	ticker := c.config.Clock.NewTicker(c.config.Every)
	defer ticker.Stop()
	tending := c.config.Clock.NewTicker(tendEvery)
	defer tending.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			err = c.step(ctx)
		case <-tending.C():
			err = c.tend(ctx)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("simulated cluster %s: %w", c.config.Name, err)
		}
		c.client.ClearActions() // the clientset keeps every request for tests to see
	}
}

// watch answers watches from the feed, and notes when nodes and pods both have one.
func (c *Cluster) watch() testing.WatchReactionFunc {
	var mu sync.Mutex
	missing := map[string]bool{"nodes": true, "pods": true}
	return func(action testing.Action) (bool, watch.Interface, error) {
		events, err := c.feed.Watch(action.GetResource(), action.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		if missing[action.GetResource().Resource] {
			delete(missing, action.GetResource().Resource)
			if len(missing) == 0 {
				close(c.watched)
			}
		}
		return true, events, nil
	}
}

// step is one event.
func (c *Cluster) step(ctx context.Context) error {
	if c.random.IntN(nodeChangeOneIn) == 0 {
		return c.changeNodes(ctx)
	}
	arrives := c.random.IntN(2) == 0
	switch percent := c.percent(); {
	case percent < c.config.LowPercent:
		arrives = true
	case percent > c.config.HighPercent:
		arrives = false
	}
	if arrives {
		return c.arrive(ctx)
	}
	return c.leave(ctx)
}

func (c *Cluster) arrive(ctx context.Context) error {
	pod := c.arrival()
	if pod == nil {
		return nil // every node is full
	}
	_, err := c.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create pod %s: %w", pod.Name, err)
	}
	return nil
}

func (c *Cluster) leave(ctx context.Context) error {
	var from []*simNode
	for _, n := range c.all() {
		if len(n.pods) > 0 {
			from = append(from, n)
		}
	}
	if len(from) == 0 {
		return nil
	}
	n := from[c.random.IntN(len(from))]
	return c.remove(ctx, n, c.random.IntN(len(n.pods)))
}

func (c *Cluster) remove(ctx context.Context, n *simNode, i int) error {
	name := n.pods[i].name
	n.drop(i)
	if err := c.client.CoreV1().Pods(podNamespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete pod %s: %w", name, err)
	}
	return nil
}

// changeNodes lets the extra node join or, with its pods, leave.
func (c *Cluster) changeNodes(ctx context.Context) error {
	if c.extra == nil {
		n := c.newNode(c.config.Nodes + 1)
		if _, err := c.client.CoreV1().Nodes().Create(ctx, c.nodeObject(n), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create node %s: %w", n.name, err)
		}
		c.extra = n
		return nil
	}
	n := c.extra
	c.extra = nil
	for len(n.pods) > 0 {
		if err := c.remove(ctx, n, len(n.pods)-1); err != nil {
			return err
		}
	}
	for len(n.instances) > 0 {
		if err := c.stop(ctx, n.instances[len(n.instances)-1]); err != nil {
			return err
		}
	}
	if err := c.client.CoreV1().Nodes().Delete(ctx, n.name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete node %s: %w", n.name, err)
	}
	return nil
}

// arrival books a new pod on a random node that has room; nil where none has.
func (c *Cluster) arrival() *corev1.Pod {
	size := podSizes[c.random.IntN(len(podSizes))]
	cpu, memory := size.amounts()
	var room []*simNode
	for _, n := range c.all() {
		if n.fits(cpu, memory) {
			room = append(room, n)
		}
	}
	if len(room) == 0 {
		return nil
	}
	n := room[c.random.IntN(len(room))]
	c.lastName++
	pod := simPod{name: fmt.Sprintf("sim-%s-pod-%d", c.config.Name, c.lastName), cpuMilli: cpu, memoryBytes: memory}
	n.add(pod)
	return c.podObject(n, pod.name, size)
}

// percent of all cores that the cluster's own pods request.
func (c *Cluster) percent() int {
	var used, have int64
	for _, n := range c.all() {
		for i := range n.pods {
			used += n.pods[i].cpuMilli
		}
		have += n.cpuMilli
	}
	return int(100 * used / have)
}

func (c *Cluster) all() []*simNode {
	if c.extra == nil {
		return c.nodes
	}
	return append(c.nodes[:len(c.nodes):len(c.nodes)], c.extra)
}

func seedOf(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name)) // a hash's Write never fails
	return h.Sum64()
}
