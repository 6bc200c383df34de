package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	adminv1 "github.com/bourse-dev/bourse/api/admin/v1"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

const (
	startWithin = 2 * time.Minute
	tryWithin   = 30 * time.Second // a disk may stall for seconds; that is a figure, not a fault
)

// exchange is ours: three `bourse server` processes as an operator starts them, with TLS and fsync.
type exchange struct {
	dir   string
	nodes []*serverNode
	turn  atomic.Int64
}

// serverNode is one broker node.
type serverNode struct {
	id, api string
	*process
	rest *rest.RESTClient
	raw  *rest.Config
}

// startExchange makes certificates with the product's own commands and waits until the group is whole.
func startExchange(ctx context.Context, bin, dir string, extra ...string) (*exchange, error) {
	pki := filepath.Join(dir, "pki")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := bourse(ctx, bin, "pki", "init", "--dir", pki); err != nil {
		return nil, err
	}
	ports, err := freePorts(9)
	if err != nil {
		return nil, err
	}
	gossip := []string{ports[2], ports[5], ports[8]}
	e := &exchange{dir: dir}
	for i, id := range []string{"n1", "n2", "n3"} {
		n := &serverNode{id: id, api: ports[3*i]}
		pair, kubeconfig := filepath.Join(dir, id), filepath.Join(dir, id+".kubeconfig")
		err := errors.Join(
			bourse(ctx, bin, "pki", "issue", "--dir", pki, "--node", id, "--host", "127.0.0.1", "--out", pair),
			bourse(ctx, bin, "pki", "kubeconfig", "--dir", pki, "--for", "admin", "--server", "https://"+n.api, "--out", kubeconfig))
		if err != nil {
			return nil, err
		}
		if n.raw, err = clientConfig(kubeconfig); err != nil {
			return nil, err
		}
		if n.rest, err = rest.RESTClientFor(n.raw); err != nil {
			return nil, err
		}
		args := append([]string{
			bin, "server", "--node-id", id, "--data-dir", filepath.Join(dir, id+"-data"), "--listen", n.api,
			"--raft-listen", ports[3*i+1], "--gossip-listen", ports[3*i+2], "--join", strings.Join(gossip, ","),
			"--bootstrap-expect", "3", "--tls-ca", filepath.Join(pki, "ca.crt"), "--tls-cert", pair + ".crt",
			"--tls-key", pair + ".key", "--gossip-key-file", filepath.Join(pki, "gossip.key"), "--log-level", "warn",
		}, extra...)
		if n.process, err = start(dir, id, args...); err != nil {
			e.stop()
			return nil, err
		}
		e.nodes = append(e.nodes, n)
	}
	if err := e.whole(ctx); err != nil {
		e.stop()
		return nil, err
	}
	return e, nil
}

func bourse(ctx context.Context, bin string, args ...string) error {
	if out, err := exec.CommandContext(ctx, bin, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("bourse %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

func clientConfig(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := broker.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config.GroupVersion = &broker.SchemeGroupVersion
	config.APIPath = "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.QPS = -1 // what is measured is the exchange, not the client's own limit
	config.WarningHandler = rest.NoWarnings{}
	return config, nil
}

func (e *exchange) stop() {
	var all sync.WaitGroup
	for _, n := range e.nodes {
		all.Go(n.stop)
	}
	all.Wait()
}

// configuration is the group as the asked node's leader sees it.
func (n *serverNode) configuration(ctx context.Context) (c adminv1.RaftConfiguration, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	data, err := n.rest.Get().AbsPath(adminv1.PathConfiguration).Do(ctx).Raw()
	if err != nil {
		return c, err
	}
	return c, json.Unmarshal(data, &c)
}

// leader is the node that leads, and its term.
func (e *exchange) leader(ctx context.Context) (leader *serverNode, term uint64, err error) {
	for _, n := range e.nodes {
		c, failed := n.configuration(ctx)
		if failed != nil {
			err = failed
			continue
		}
		for i := range c.Servers {
			if c.Servers[i].Leader && c.View == "leader" {
				for _, n := range e.nodes {
					if n.id == c.Servers[i].ID {
						return n, c.Term, nil
					}
				}
			}
		}
	}
	return nil, 0, errors.Join(errors.New("no leader"), err)
}

// whole waits until every node is there, caught up and answering.
func (e *exchange) whole(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for {
		err := e.caughtUp(ctx)
		if err == nil {
			return nil
		}
		for _, n := range e.nodes {
			if ended := n.ended(); ended != nil {
				return ended
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the group did not get whole: %w", errors.Join(ctx.Err(), err))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (e *exchange) caughtUp(ctx context.Context) error {
	leader, _, err := e.leader(ctx)
	if err != nil {
		return err
	}
	c, err := leader.configuration(ctx)
	if err != nil {
		return err
	}
	if len(c.Servers) != len(e.nodes) {
		return fmt.Errorf("%d members", len(c.Servers))
	}
	for _, s := range c.Servers {
		if !s.Leader && (s.LastContactMs < 0 || s.LastContactMs > 500 || s.Lag != 0) {
			return fmt.Errorf("%s has not caught up", s.ID)
		}
	}
	for _, n := range e.nodes {
		if _, err := n.rest.Get().AbsPath("/readyz").Do(ctx).Raw(); err != nil {
			return err
		}
	}
	return nil
}

// next node in turn, as behind a load balancer.
func (e *exchange) next() *serverNode { return e.nodes[int(e.turn.Add(1))%len(e.nodes)] }

// reserve makes one reservation and returns once the answer says Reserved.
func (n *serverNode) reserve(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, tryWithin)
	defer cancel()
	out := &broker.Reservation{}
	if err := n.rest.Post().Resource("reservations").Namespace("default").Body(reservation("default", name)).Do(ctx).Into(out); err != nil {
		return err
	}
	if out.Status.Phase != broker.ReservationReserved {
		return fmt.Errorf("%s is %s, not Reserved: %s", name, out.Status.Phase, out.Status.Message)
	}
	return nil
}

func reservation(namespace, name string) *broker.Reservation {
	return &broker.Reservation{
		TypeMeta:   metav1.TypeMeta{APIVersion: broker.SchemeGroupVersion.String(), Kind: "Reservation"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       broker.ReservationSpec{RequesterID: "bench", RequestedResources: requestList()},
	}
}
