package agent

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// The two stores below are what client-go's reflectors write into. They keep the ledger's sums
// and nothing of the objects: a shared informer would keep every pod a second time.

// nodeStore brings nodes into the ledger. Called by one reflector's goroutine.
type nodeStore struct{ ledger *ledger }

var _ cache.TransformingStore = nodeStore{}

func (s nodeStore) Add(obj any) error { return s.Update(obj) }

func (s nodeStore) Update(obj any) error {
	n, err := as[*nodeRecord](readNode(obj))
	if err != nil {
		return err
	}
	s.ledger.setNode(n.Name, n.state)
	return nil
}

func (s nodeStore) Delete(obj any) error {
	n, err := as[*nodeRecord](readNode(obj))
	if err != nil {
		return err
	}
	s.ledger.dropNode(n.Name)
	return nil
}

func (s nodeStore) Replace(list []any, _ string) error {
	all := make(map[string]nodeState, len(list))
	for _, obj := range list {
		n, err := as[*nodeRecord](readNode(obj))
		if err != nil {
			return err
		}
		all[n.Name] = n.state
	}
	s.ledger.replaceNodes(all)
	return nil
}

func (nodeStore) Resync() error { return nil }

// Transformer strips nodes while the first list is still streaming in.
func (nodeStore) Transformer() cache.TransformFunc { return readNode }

// nodeRecord is what is kept of a node; its ObjectMeta has only the name.
type nodeRecord struct {
	metav1.ObjectMeta
	state nodeState
}

func readNode(obj any) (any, error) {
	switch n := obj.(type) {
	case *nodeRecord:
		return n, nil
	case *corev1.Node:
		record := &nodeRecord{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
		if record.state.usable = usable(n); record.state.usable {
			record.state.allocatable = amountsOf(n.Status.Allocatable, false, 0)
		}
		return record, nil
	default:
		return nil, fmt.Errorf("a node was expected, not %T", obj)
	}
}

// podStore brings pods into the ledger. Called by one reflector's goroutine.
type podStore struct{ ledger *ledger }

var _ cache.TransformingStore = podStore{}

func (s podStore) Add(obj any) error { return s.Update(obj) }

func (s podStore) Update(obj any) error {
	p, err := as[*podRecord](readPod(obj))
	if err != nil {
		return err
	}
	if p.share.node == "" {
		s.ledger.dropPod(p.key())
	} else {
		s.ledger.setPod(p.key(), p.share)
	}
	return nil
}

func (s podStore) Delete(obj any) error {
	p, err := as[*podRecord](readPod(obj))
	if err != nil {
		return err
	}
	s.ledger.dropPod(p.key())
	return nil
}

func (s podStore) Replace(list []any, _ string) error {
	all := make(map[string]podShare, len(list))
	for _, obj := range list {
		p, err := as[*podRecord](readPod(obj))
		if err != nil {
			return err
		}
		if p.share.node != "" {
			all[p.key()] = p.share
		}
	}
	s.ledger.replacePods(all)
	return nil
}

func (podStore) Resync() error { return nil }

// Transformer strips pods while the first list is still streaming in.
func (podStore) Transformer() cache.TransformFunc { return readPod }

// podRecord is what is kept of a pod; its ObjectMeta has only the names. No node: takes no room.
type podRecord struct {
	metav1.ObjectMeta
	share podShare
}

func (p *podRecord) key() string { return p.Namespace + "/" + p.Name }

func readPod(obj any) (any, error) {
	switch p := obj.(type) {
	case *podRecord:
		return p, nil
	case *corev1.Pod:
		record := &podRecord{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
		if occupies(p) {
			record.share = podShare{node: p.Spec.NodeName, workload: workloadOf(p), requests: effectiveRequests(p)}
		}
		return record, nil
	default:
		return nil, fmt.Errorf("a pod was expected, not %T", obj)
	}
}

func as[T any](obj any, err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return obj.(T), nil
}

// occupyingPods lets the API server leave out what takes no room.
const occupyingPods = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"

func listNodes(client kubernetes.Interface) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.CoreV1().Nodes().List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return client.CoreV1().Nodes().Watch(ctx, options)
		},
	}
}

func listPods(client kubernetes.Interface) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = occupyingPods
			return client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = occupyingPods
			return client.CoreV1().Pods(metav1.NamespaceAll).Watch(ctx, options)
		},
	}
}

// listInstances lists the pods that carry a slice's label, also those that take no room yet.
func listInstances(client kubernetes.Interface) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = SliceLabel
			return client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = SliceLabel
			return client.CoreV1().Pods(metav1.NamespaceAll).Watch(ctx, options)
		},
	}
}

// listWorkloads lists the Deployments of this cluster's slices in a namespace; in all where it is "".
func listWorkloads(client kubernetes.Interface, namespace, clusterID string) *cache.ListWatch {
	selector := ClusterLabel + "=" + clusterID
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = selector
			return client.AppsV1().Deployments(namespace).List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = selector
			return client.AppsV1().Deployments(namespace).Watch(ctx, options)
		},
	}
}
