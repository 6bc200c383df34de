package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// fsyncBlock is about what a log entry of one reservation appends.
const fsyncBlock = 4096

// fsyncProbe times appends of one block with fsync, as a log does it.
func fsyncProbe(t *report, dir string, count int) error {
	series, err := fsyncs(dir, count)
	if err != nil {
		return err
	}
	t.durations("fsync of 4 KiB (probe)", series, "")
	return nil
}

func fsyncs(dir string, count int) (series []time.Duration, err error) {
	file, err := os.Create(filepath.Join(dir, "probe"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	block := make([]byte, fsyncBlock)
	for range count {
		started := time.Now()
		if _, err := file.Write(block); err != nil {
			return nil, fmt.Errorf("fsync probe: %w", err)
		}
		if err := file.Sync(); err != nil {
			return nil, fmt.Errorf("fsync probe: %w", err)
		}
		series = append(series, time.Since(started))
	}
	return series, nil
}
