package main

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// memoryLimit makes the collector work before the node of a small exchange outgrows its goal of 128 MiB.
const memoryLimit = 112 << 20

// limitMemory holds the process to memoryLimit until ctx ends, but only while what it keeps is less than half of that: with
// less room the collector would run all the time. A larger exchange takes up to twice what it keeps. It does nothing
// where the environment (GOMEMLIMIT) says otherwise.
func limitMemory(ctx context.Context) {
	if _, set := os.LookupEnv("GOMEMLIMIT"); set {
		return
	}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	kept := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for limit := int64(0); ; {
		metrics.Read(kept)
		if want := limitFor(kept[0].Value.Uint64()); want != limit {
			limit = want
			debug.SetMemoryLimit(limit)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func limitFor(kept uint64) int64 {
	if kept > memoryLimit/2 {
		return math.MaxInt64
	}
	return memoryLimit
}
