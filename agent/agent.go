// Package agent is the member cluster's side of the exchange: it measures what its cluster has
// to spare, reports it, tells its operators what was granted and lent, and runs the slices of
// blueprints to which the cluster has consented. It only ever dials out, writes nothing into the
// member cluster but those slices' Deployments, and decides nothing: an exchange that is away
// changes nothing here.
package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// Run speaks for one member cluster until ctx ends, and returns nil then, after everything it
// started has ended. It returns an error only for what trying again can't mend: a bad Config,
// an unreadable kubeconfig, an address that can't be listened on. The member cluster and the
// exchange may both be away at the start, or go away at any time.
func Run(ctx context.Context, config Config) error {
	if err := config.Validate(); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	member, closeIdle, err := config.memberClient()
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	defer closeIdle()
	brokerConfig, err := config.brokerConfig()
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	exchange, err := newExchange(brokerConfig)
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	defer exchange.close()
	if config.ClusterID == "" {
		if config.ClusterID, err = discoverID(ctx, &config, member); err != nil {
			return fmt.Errorf("agent: %w", err)
		}
		if config.ClusterID == "" {
			return nil // stopped before the member cluster answered
		}
	}
	if err := run(ctx, &config, member, exchange); err != nil {
		return fmt.Errorf("agent of %s: %w", config.ClusterID, err)
	}
	return nil
}

func run(ctx context.Context, config *Config, member kubernetes.Interface, exchange *exchange) error {
	config.Logger = config.Logger.With("cluster", config.ClusterID)
	ledger := newLedger()
	metrics := newMetrics(config.ClusterID, ledger)
	if config.Metrics == nil {
		config.Metrics = prometheus.NewRegistry()
	}
	if err := metrics.register(config.Metrics); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	defer metrics.unregister(config.Metrics)

	group, ctx := errgroup.WithContext(ctx)
	if config.Listen != "" {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", config.Listen)
		if err != nil {
			return fmt.Errorf("listen address %q: %w", config.Listen, err)
		}
		config.Logger.Info("serving metrics and health", "address", listener.Addr().String())
		group.Go(func() error { return serve(ctx, listener, handler(ledger, config.Metrics)) })
	}

	toMember := newReach("member cluster", config.Clock, config.Logger, metrics.memberReachable)
	toBroker := newReach("exchange", config.Clock, config.Logger, metrics.brokerWatching)
	follow := func(work func()) { group.Go(func() error { work(); return nil }) }
	follow(func() { toMember.follow(ctx, "nodes", member, listNodes(member), &corev1.Node{}, nodeStore{ledger}) })
	follow(func() { toMember.follow(ctx, "pods", member, listPods(member), &corev1.Pod{}, podStore{ledger}) })
	for _, role := range []role{requester, provider} {
		book := newGrantBook(role, config, metrics)
		reservations := exchange.reservationsWhere(role.field, config.ClusterID)
		follow(func() {
			toBroker.follow(ctx, "reservations by "+role.field, nil, reservations, &broker.Reservation{}, book)
		})
	}
	reporter := newReporter(config, exchange, ledger, toMember, metrics)
	follow(func() { reporter.run(ctx) })

	book := newSliceBook(config.ClusterID, ledger)
	follow(func() {
		toBroker.follow(ctx, "slices", nil, exchange.slicesOf(config.ClusterID), &broker.Slice{}, book.sliceStore())
	})
	follow(func() {
		toMember.follow(ctx, "instances", member, listInstances(member), &corev1.Pod{}, book.podStore())
	})
	// Rights that are missing in one namespace don't make the cluster's figures doubtful.
	toWorkloads := newReach("member cluster", config.Clock, config.Logger, metrics.workloadsSeen)
	for _, namespace := range config.Blueprints.scopes() {
		follow(func() {
			toWorkloads.follow(ctx, scopeOf(namespace), member, listWorkloads(member, namespace, config.ClusterID), &appsv1.Deployment{}, book.workloadStore(namespace))
		})
	}
	driver := newDriver(config, book, member, exchange, reporter.speaks, metrics)
	driver.toMember, driver.toBroker = toMember, toBroker
	follow(func() { driver.run(ctx) })
	return group.Wait()
}

// discoverID asks the member cluster for an id that is the same after a restart. It tries until
// ctx ends, and returns "" then.
func discoverID(ctx context.Context, config *Config, member kubernetes.Interface) (string, error) {
	pace := backoff{jitter: rand.Float64}
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, requestTimeout)
		namespace, err := member.CoreV1().Namespaces().Get(asking, metav1.NamespaceSystem, metav1.GetOptions{})
		cancel()
		if err == nil {
			id := string(namespace.UID)
			config.Logger.Warn("no cluster id given: using the UID of namespace kube-system; a name is easier to read: --cluster-id rome, or CLUSTER_ID",
				"cluster-id", id)
			return id, validateClusterID(id)
		}
		if ctx.Err() != nil {
			continue // to the end: nothing failed, we were stopped
		}
		config.Logger.Warn("no cluster id given, and namespace kube-system can't be read: trying on; or give --cluster-id", "error", err)
		pace.failed(config.Clock.Now())
		timer := config.Clock.NewTimer(pace.notBefore.Sub(config.Clock.Now()))
		select {
		case <-ctx.Done():
		case <-timer.C():
		}
		timer.Stop()
	}
	return "", nil
}
