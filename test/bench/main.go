// Command bench measures a running exchange of three broker processes and
// prints one table. Latencies stand beside an fsync probe of the same disk in
// the same run: what a machine's disk allows is half of every figure.
//
// The exchange is started by `bourse dev`, so that what is measured is what
// users run; its member clusters are simulated, their agents real.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"time"
)

func main() {
	bin := flag.String("bourse", "bin/bourse", "the binary to measure")
	quick := flag.Bool("quick", os.Getenv("QUICK") != "", "fewer rounds")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *bin, *quick)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// size is how much is measured.
type size struct {
	creates   int // per client count
	kills     int
	clusters  int
	idleFor   time.Duration
	fsyncs    int
	startings int
}

func run(ctx context.Context, bin string, quick bool) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	n := size{creates: 2000, kills: 20, clusters: 50, idleFor: time.Minute, fsyncs: 2000, startings: 5}
	if quick {
		n = size{creates: 400, kills: 5, clusters: 50, idleFor: 15 * time.Second, fsyncs: 500, startings: 2}
	}
	dir, err := os.MkdirTemp("", "bourse-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	fmt.Printf("machine: %d cores, %s/%s, %s\n\n", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())

	t := &report{out: os.Stdout}
	t.heading()
	if err := fsyncProbe(t, dir, n.fsyncs); err != nil {
		return err
	}
	if err := startToReady(ctx, t, bin, dir, n.startings); err != nil {
		return err
	}
	exchange, err := startExchange(ctx, bin, filepath.Join(dir, "exchange"), n.clusters)
	if err != nil {
		return err
	}
	err = errors.Join(
		idle(ctx, t, exchange, n.idleFor),
		creates(ctx, t, exchange, dir, 1, n.creates),
		creates(ctx, t, exchange, dir, 32, n.creates),
		failover(ctx, t, exchange, n.kills),
	)
	return errors.Join(err, exchange.stop())
}
