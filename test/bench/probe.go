package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	// fsyncBlock is about what a log entry of one reservation appends.
	fsyncBlock = 4096
	// probeEvery leaves the disk to what is measured.
	probeEvery = 100 * time.Millisecond
)

// probed runs a measurement with an fsync probe beside it, on the same disk: half of every latency
// is what the disk allowed just then.
func probed(ctx context.Context, t *table, dir, what string, measure func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	type result struct {
		took latencies
		err  error
	}
	ended := make(chan result, 1)
	probing, end := context.WithCancel(ctx)
	defer end()
	go func() {
		took, err := fsyncs(probing, dir)
		ended <- result{took, err}
	}()
	err := measure(ctx)
	end()
	probe := <-ended
	if len(probe.took) > 0 {
		t.add(row{
			what: "fsync of 4 KiB during: " + what, unit: "ms", values: probe.took.milliseconds(),
			note: fmt.Sprintf("p99 %s", figure(milliseconds(probe.took.quantile(0.99)))),
		})
	}
	return errors.Join(err, probe.err)
}

func fsyncs(ctx context.Context, dir string) (took latencies, err error) {
	file, err := os.Create(filepath.Join(dir, "probe"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	block := make([]byte, fsyncBlock)
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	for {
		started := time.Now()
		if _, err := file.Write(block); err != nil {
			return nil, fmt.Errorf("fsync probe: %w", err)
		}
		if err := file.Sync(); err != nil {
			return nil, fmt.Errorf("fsync probe: %w", err)
		}
		took = append(took, time.Since(started))
		select {
		case <-ctx.Done():
			return took, nil
		case <-ticker.C:
		}
	}
}
