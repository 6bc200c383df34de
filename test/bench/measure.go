package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

func startToReady(ctx context.Context, t *report, bin, dir string, rounds int) error {
	var series []time.Duration
	for i := range rounds {
		e, err := startExchange(ctx, bin, filepath.Join(dir, fmt.Sprintf("start%d", i)), 1)
		if err != nil {
			return err
		}
		series = append(series, e.readyIn)
		if err := e.stop(); err != nil {
			return err
		}
	}
	t.durations("start of three empty nodes to ready", series, "3 s")
	return nil
}

// names keeps reservations of all measurements apart.
var names atomic.Int64

// create makes one small reservation and says how long the answer took.
func (e *exchangeUnderTest) create(ctx context.Context) (time.Duration, error) {
	name := fmt.Sprintf("bench-%d", names.Add(1))
	rsv := &broker.Reservation{
		TypeMeta:   metav1.TypeMeta{APIVersion: broker.SchemeGroupVersion.String(), Kind: "Reservation"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: broker.ReservationSpec{
			RequesterID:        "bench",
			RequestedResources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m")},
		},
	}
	out := &broker.Reservation{}
	started := time.Now()
	err := e.api.Post().Resource("reservations").Namespace("default").Body(rsv).Do(ctx).Into(out)
	took := time.Since(started)
	if err != nil {
		return 0, err
	}
	if out.Status.Phase != broker.ReservationReserved {
		return 0, fmt.Errorf("%s is %s, not Reserved: %s", name, out.Status.Phase, out.Status.Message)
	}
	return took, nil
}

func creates(ctx context.Context, t *report, e *exchangeUnderTest, dir string, clients, count int) error {
	probe, err := fsyncs(dir, count/4)
	if err != nil {
		return err
	}
	t.durations("fsync of 4 KiB (probe, just before)", probe, "")
	var mu sync.Mutex
	var series []time.Duration
	var left atomic.Int64
	left.Store(int64(count))
	group, ctx := errgroup.WithContext(ctx)
	started := time.Now()
	for range clients {
		group.Go(func() error {
			for left.Add(-1) >= 0 {
				took, err := e.create(ctx)
				if err != nil {
					return err
				}
				mu.Lock()
				series = append(series, took)
				mu.Unlock()
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	perSecond := float64(count) / time.Since(started).Seconds()
	t.durations(fmt.Sprintf("create to Reserved, %d clients, %.0f/s", clients, perSecond), series, "")
	return nil
}

// failover kills the leader and times until the next grant, again and again.
func failover(ctx context.Context, t *report, e *exchangeUnderTest, kills int) error {
	var series []time.Duration
	for range kills {
		if err := e.whole(ctx); err != nil {
			return err
		}
		leader, err := e.leader(ctx)
		if err != nil {
			return err
		}
		pid, err := e.pid(leader)
		if err != nil {
			return err
		}
		started := time.Now()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return err
		}
		if err := e.nextGrant(ctx); err != nil {
			return err
		}
		series = append(series, time.Since(started))
	}
	t.durations("leader killed to next grant", series, "1 s (median)")
	return nil
}

// retryAfter is how long a client waits for one try while a leader is elected.
const retryAfter = 250 * time.Millisecond

// nextGrant tries short requests until one is granted.
func (e *exchangeUnderTest) nextGrant(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		try, stop := context.WithTimeout(ctx, retryAfter)
		_, err := e.create(try)
		stop()
		if err == nil || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("no grant after the leader was killed: %w", err)
		}
	}
}

// whole waits until every node is there and caught up.
func (e *exchangeUnderTest) whole(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		if e.caughtUp(ctx) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the group did not get whole again: %w", ctx.Err())
		case <-ticker.C:
		}
	}
}

// idle measures what the leader costs while agents only advertise.
func idle(ctx context.Context, t *report, e *exchangeUnderTest, during time.Duration) error {
	leader, err := e.leader(ctx)
	if err != nil {
		return err
	}
	pid, err := e.pid(leader)
	if err != nil {
		return err
	}
	before, err := cpuTime(pid)
	if err != nil {
		return err
	}
	select {
	case <-time.After(during):
	case <-ctx.Done():
		return ctx.Err()
	}
	after, err := cpuTime(pid)
	if err != nil {
		return err
	}
	rss, err := residentKiB(pid)
	if err != nil {
		return err
	}
	t.value("leader's RSS, 50 clusters advertising", fmt.Sprintf("%d MiB", rss/1024), "128 MiB")
	t.value(fmt.Sprintf("leader's CPU, 50 clusters, over %s", during),
		fmt.Sprintf("%.3f core", (after-before).Seconds()/during.Seconds()), "0.1 core")
	return nil
}

// clockTick is what /proc counts CPU time in; Linux has 100 per second everywhere.
const clockTick = 10 * time.Millisecond

func cpuTime(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The command's name may hold spaces: fields are counted from behind it. utime and stime are the 14th and 15th.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+2:]))
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * clockTick, err
}

func residentKiB(pid int) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("no VmRSS in the status of process %d", pid)
}
