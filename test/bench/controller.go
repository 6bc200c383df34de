package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// controllers are what one would build instead: the same kinds as CRDs, the same allocator in a
// controller. A grant is two writes behind the client's create: the cluster's reserved figures, guarded
// by its resourceVersion, then the reservation's status. The market in memory makes the decision as
// cheap as ours.
type controllers struct {
	client client.Client
	live   client.Reader // past the cache
	cancel context.CancelFunc
	ended  chan error

	mu       sync.Mutex
	market   *allocation.Market
	decision allocation.Decision
	clusters map[string]*broker.ClusterAdvertisement // the newest seen, by cluster id
	sizes    map[string]clusterSize
	writing  map[string]bool          // ids of clusters that a worker is writing just now
	written  *sync.Cond               // told when one of them is done
	granted  map[string]bool          // names: the cache may lag behind our own writes
	waiting  map[string]chan struct{} // names of creates that wait to be Reserved
	count    int
}

var peerScheme = func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(broker.AddToScheme(scheme))
	metav1.AddToGroupVersion(scheme, broker.SchemeGroupVersion)
	return scheme
}()

// tunedWorkers reconcile at once; each picks one of the best eight at random, so that they seldom meet.
const tunedWorkers = 32

// kubePeer is one of the two controllers; each minds one namespace.
type kubePeer struct {
	*controllers
	namespace      string
	workers, among int
}

// startControllers runs both in one manager, so that they share one cache.
func startControllers(ctx context.Context, s *apiServer) (*controllers, []kubePeer, error) {
	m, err := ctrl.NewManager(s.config, manager.Options{Scheme: peerScheme, Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	k := &controllers{
		client: m.GetClient(), live: m.GetAPIReader(), cancel: cancel, ended: make(chan error, 1), market: allocation.NewMarket(),
		clusters: map[string]*broker.ClusterAdvertisement{}, sizes: map[string]clusterSize{},
		writing: map[string]bool{}, granted: map[string]bool{}, waiting: map[string]chan struct{}{},
	}
	k.written = sync.NewCond(&k.mu)
	peers := []kubePeer{{k, "default", 1, 1}, {k, "kube-public", tunedWorkers, allocation.Listed}}
	for i := range peers {
		p := &peers[i]
		err := ctrl.NewControllerManagedBy(m).Named(p.namespace).For(&broker.Reservation{}).
			WithEventFilter(predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetNamespace() == p.namespace })).
			WithOptions(controller.Options{MaxConcurrentReconciles: p.workers}).Complete(p)
		if err != nil {
			cancel()
			return nil, nil, err
		}
	}
	if err := k.watch(ctx, m); err != nil {
		cancel()
		return nil, nil, err
	}
	go func() { k.ended <- m.Start(ctx) }()
	if !m.GetCache().WaitForCacheSync(ctx) {
		cancel()
		return nil, nil, fmt.Errorf("the controllers' cache did not sync: %w", <-k.ended)
	}
	return k, peers, nil
}

func (k *controllers) stop() error {
	k.cancel()
	return <-k.ended
}

// watch feeds the market, and wakes the clients whose reservation is Reserved.
func (k *controllers) watch(ctx context.Context, m manager.Manager) error {
	offers, err := m.GetCache().GetInformer(ctx, &broker.ClusterAdvertisement{})
	if err != nil {
		return err
	}
	if _, err := offers.AddEventHandler(onChange(func(o any) { k.learn(o.(*broker.ClusterAdvertisement)) })); err != nil {
		return err
	}
	reservations, err := m.GetCache().GetInformer(ctx, &broker.Reservation{})
	if err != nil {
		return err
	}
	_, err = reservations.AddEventHandler(onChange(func(o any) {
		if r := o.(*broker.Reservation); r.Status.Phase == broker.ReservationReserved {
			k.wake(r.Name)
		}
	}))
	return err
}

func onChange(do func(any)) toolscache.ResourceEventHandlerFuncs {
	return toolscache.ResourceEventHandlerFuncs{AddFunc: do, UpdateFunc: func(_, o any) { do(o) }}
}

func (k *controllers) learn(c *broker.ClusterAdvertisement) {
	k.mu.Lock()
	defer k.mu.Unlock()
	id := c.Spec.ClusterID
	if known := k.clusters[id]; known != nil && versionOf(known) >= versionOf(c) {
		return
	}
	k.clusters[id] = c
	k.market.Set(k.sizes[id].offer(holdsOf(c)))
}

func versionOf(c *broker.ClusterAdvertisement) uint64 {
	v, err := strconv.ParseUint(c.ResourceVersion, 10, 64)
	if err != nil {
		panic(err) // the API server numbers versions
	}
	return v
}

func holdsOf(c *broker.ClusterAdvertisement) int64 {
	held := c.Spec.Resources.Reserved["cpu"]
	return held.MilliValue() / requestMilli
}

func (k *controllers) wake(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.waiting[name]; c != nil {
		close(c)
		delete(k.waiting, name)
	}
}

// Reconcile grants one reservation.
func (p *kubePeer) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	r := &broker.Reservation{}
	if err := p.client.Get(ctx, request.NamespacedName, r); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.Status.Phase != "" || p.done(r.Name, false) {
		return ctrl.Result{}, nil
	}
	id, err := p.hold(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	p.done(r.Name, true)
	now := metav1.NowMicro()
	r = r.DeepCopy()
	r.Status.Phase, r.Status.TargetClusterID, r.Status.ReservedAt = broker.ReservationReserved, id, &now
	return ctrl.Result{}, p.client.Status().Update(ctx, r)
}

// done says whether the name was granted, and notes it.
func (k *controllers) done(name string, note bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if note {
		k.granted[name] = true
	}
	return k.granted[name]
}

// hold writes the hold on a cluster, on another one after a conflict.
func (p *kubePeer) hold(ctx context.Context) (id string, err error) {
	for ctx.Err() == nil {
		c, err := p.choose()
		if err != nil {
			return "", err
		}
		done, err := p.write(ctx, c)
		p.mu.Lock()
		delete(p.writing, c.Spec.ClusterID)
		p.mu.Unlock()
		p.written.Signal()
		if done || err != nil {
			return c.Spec.ClusterID, err
		}
	}
	return "", ctx.Err()
}

// write is guarded by the version that was read. After a conflict the cluster is read again, past the
// cache, which learns of it too late.
func (p *kubePeer) write(ctx context.Context, c *broker.ClusterAdvertisement) (done bool, err error) {
	holds := holdsOf(c) + 1
	c.Spec.Resources.Reserved = corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(holds*requestMilli, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(holds*requestBytes, resource.BinarySI),
	}
	err = p.client.Update(ctx, c)
	if apierrors.IsConflict(err) {
		if err = p.live.Get(ctx, client.ObjectKeyFromObject(c), c); err == nil {
			p.learn(c)
		}
		return false, err
	}
	if err == nil {
		p.learn(c)
	}
	return err == nil, err
}

// choose one of the best that no other worker is writing; it waits where they write all of them.
func (p *kubePeer) choose() (*broker.ClusterAdvertisement, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for ; ; p.written.Wait() {
		p.market.Decide(&allocation.Request{Requester: "bench", Amounts: requestAmounts, MaxPriceNano: allocation.NoPriceLimit}, &p.decision)
		ranked := p.decision.Ranked()
		if len(ranked) == 0 {
			return nil, errNothingFits
		}
		ranked = ranked[:min(p.among, len(ranked))]
		for _, i := range rand.Perm(len(ranked)) {
			if id := ranked[i].ClusterID; !p.writing[id] {
				p.writing[id] = true
				return p.clusters[id].DeepCopy(), nil
			}
		}
	}
}

func (k *controllers) grow(ctx context.Context, clusters int) error {
	group, creating := errgroup.WithContext(ctx)
	group.SetLimit(loadingAt)
	for ; k.count < clusters; k.count++ {
		size := clusterOf(k.count)
		k.mu.Lock()
		k.sizes[size.id] = size
		k.mu.Unlock()
		group.Go(func() error {
			return k.client.Create(creating, &broker.ClusterAdvertisement{
				ObjectMeta: metav1.ObjectMeta{Name: broker.AdvertisementName(size.id)},
				Spec: broker.ClusterAdvertisementSpec{
					ClusterID: size.id, Endpoint: "https://" + size.id + ".example.com:6443", Region: "eu-west", Provider: "example",
					Resources: broker.AdvertisedResources{Allocatable: size.allocatable()}, LargestFree: size.allocatable(),
					Cost: map[string]string{"currency": "EUR", "cpu": size.core, "memory": size.ram},
				},
			})
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for k.known() < clusters { // until the cache has them too
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

func (k *controllers) known() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.clusters)
}

// reserve creates, and waits for the cache to show it Reserved.
func (p kubePeer) reserve(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, tryWithin)
	defer cancel()
	reserved := make(chan struct{})
	p.mu.Lock()
	p.waiting[name] = reserved
	p.mu.Unlock()
	if err := p.client.Create(ctx, reservation(p.namespace, name)); err != nil {
		return err
	}
	select {
	case <-reserved:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s is not Reserved: %w", name, ctx.Err())
	}
}
