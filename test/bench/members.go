package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// members speak for clusters as agents do, all from one process: 10,000 real agents would measure
// the machine.
type members struct {
	exchange *exchange
	epochs   []int64
	sequence atomic.Int64
	repeated atomic.Int64 // what an election had refused
}

const (
	session      = "00000000-0000-4000-8000-000000000001"
	loadingAt    = 64  // requests at once while clusters are added to a peer
	joiningAt    = 256 // agents at once: each waits for its exchange, which gathers reports, and not for the processor
	heartbeatGap = 30 * time.Second
	repeatWithin = time.Minute
	repeatAfter  = 250 * time.Millisecond
)

func (m *members) grow(ctx context.Context, clusters int) error {
	first := len(m.epochs)
	m.epochs = append(m.epochs, make([]int64, max(0, clusters-first))...)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(joiningAt)
	for i := first; i < clusters; i++ {
		group.Go(func() error { return m.join(ctx, i) })
	}
	return group.Wait()
}

// join is an agent's first minute: the advertisement, a session, the figures.
func (m *members) join(ctx context.Context, i int) error {
	c := clusterOf(i)
	offer := &broker.ClusterAdvertisement{
		TypeMeta:   metav1.TypeMeta{APIVersion: broker.SchemeGroupVersion.String(), Kind: "ClusterAdvertisement"},
		ObjectMeta: metav1.ObjectMeta{Name: broker.AdvertisementName(c.id)},
		Spec: broker.ClusterAdvertisementSpec{
			ClusterID: c.id, Endpoint: "https://" + c.id + ".example.com:6443", Region: "eu-west", Provider: "example",
			Cost: map[string]string{"currency": "EUR", "cpu": c.core, "memory": c.ram},
		},
	}
	if err := repeated(ctx, &m.repeated, func() error {
		return m.exchange.next().rest.Post().Resource("clusteradvertisements").Body(offer).Do(ctx).Error()
	}); err != nil {
		return fmt.Errorf("advertise %s: %w", c.id, err)
	}
	if err := m.report(ctx, i); err != nil { // opens the session
		return err
	}
	return m.report(ctx, i)
}

// report sends the figures; unchanged ones are a heartbeat.
func (m *members) report(ctx context.Context, i int) error {
	c := clusterOf(i)
	answer := &broker.FactsReport{}
	if err := repeated(ctx, &m.repeated, func() error {
		report := &broker.FactsReport{
			TypeMeta: metav1.TypeMeta{APIVersion: broker.SchemeGroupVersion.String(), Kind: "FactsReport"},
			Session:  session, Epoch: m.epochs[i], Sequence: m.sequence.Add(1),
			Allocatable: c.allocatable(), LargestFree: c.allocatable(),
		}
		request := m.exchange.next().rest.Post().Resource("clusteradvertisements").Name(broker.AdvertisementName(c.id)).SubResource("facts")
		return request.Body(report).Do(ctx).Into(answer)
	}); err != nil {
		return fmt.Errorf("report of %s: %w", c.id, err)
	}
	if answer.Status.Outcome != broker.FactsAccepted {
		return fmt.Errorf("report of %s: %s", c.id, answer.Status.Outcome)
	}
	m.epochs[i] = answer.Status.Epoch
	return nil
}

// repeated tries a write again that an election has refused, as agents and clients do, and counts the refusals.
func repeated(ctx context.Context, refused *atomic.Int64, write func() error) error {
	for end := time.Now().Add(repeatWithin); ; refused.Add(1) {
		err := write()
		switch {
		case apierrors.IsAlreadyExists(err): // the try before was done after all
			return nil
		case !refusedForNow(err) || time.Now().After(end):
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(repeatAfter):
		}
	}
}

func refusedForNow(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)
}

// beating sends heartbeats until stop, which says what went wrong with them.
func (m *members) beating(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var hearts errgroup.Group
	hearts.Go(func() error { return m.beat(ctx) })
	return func() error {
		cancel()
		return hearts.Wait()
	}
}

// beat sends the heartbeats of all clusters, evenly over heartbeatGap, until ctx ends.
func (m *members) beat(ctx context.Context) error {
	ticker := time.NewTicker(heartbeatGap / time.Duration(len(m.epochs)))
	defer ticker.Stop()
	group, sending := errgroup.WithContext(context.WithoutCancel(ctx))
	group.SetLimit(loadingAt)
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return group.Wait()
		case <-sending.Done():
			return group.Wait()
		case <-ticker.C:
			group.Go(func() error { return m.report(sending, i%len(m.epochs)) })
		}
	}
}
