// Command bench measures an exchange of three broker processes beside what one would build instead, in
// one run on one machine and one disk, and prints one table as Markdown; progress goes to stderr. An
// fsync probe runs in each interval: what a machine's disk allows is half of every figure.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	bin := flag.String("bourse", "bin/bourse", "the binary to measure")
	kube := flag.String("kube", "", "directory with etcd and kube-apiserver, from test/kube/build.sh")
	quick := flag.Bool("quick", os.Getenv("QUICK") != "", "less of everything")
	only := flag.String("only", "", "sections to run, with commas: "+strings.Join(sectionNames(), ", "))
	heartbeats := flag.String("heartbeats", "200ms,250ms,300ms", "heartbeats to hold under full load, until one passes")
	before := flag.String("before", "", "an earlier build of ours, for the section before: held against this one")
	rounds := flag.Int("rounds", 0, "rounds instead of the usual number")
	flag.Parse()
	ctrl.SetLogger(logr.Discard()) // what clients say of killed leaders is no fault
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := measure(ctx, &bench{bin: *bin, kube: *kube, before: *before}, *quick, *only, *heartbeats, *rounds)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// size is how much is measured.
type size struct {
	rounds                         int
	clients, levels                []int // levels: numbers of clusters
	burst                          time.Duration
	creates                        int
	kills                          int
	idleFor, fullLoad              time.Duration
	watchers                       []int
	watchEvents                    int // per round
	fullClusters, fullReservations int
}

var (
	fullSize = size{
		rounds: 5, clients: []int{1, 16, goalClients, 256}, levels: []int{10, 100, 1000, 10_000}, burst: time.Second,
		creates: 2000, kills: 20, idleFor: 30 * time.Second, fullLoad: 5 * time.Minute,
		watchers: []int{1, 100, watchGoal, 1000}, watchEvents: 10, fullClusters: 10_000, fullReservations: 100_000,
	}
	quickSize = size{
		rounds: 5, clients: []int{1, goalClients}, levels: []int{10, 1000}, burst: time.Second,
		creates: 400, kills: 5, idleFor: 10 * time.Second, fullLoad: 20 * time.Second,
		watchers: []int{1, watchGoal}, watchEvents: 4, fullClusters: 1000, fullReservations: 10_000,
	}
)

// bench is one run.
type bench struct {
	bin, kube, before, dir string
	size                   size
	heartbeats             []time.Duration
	table                  *table
	folders                int
}

// section is one part of the run. A section that fails is told in the table, and the others go on.
type section struct {
	name string
	run  func(*bench, context.Context) error
}

var sections = []section{
	{"dev", (*bench).devSection},
	{"throughput", (*bench).throughputSection},
	{"watch", (*bench).watchSection},
	{"footprint", (*bench).footprintSection},
	{"failover", (*bench).failoverSection},
	{"elections", (*bench).electionSection},
	{"log", func(b *bench, _ context.Context) error { return b.logSection() }},
	{"before", (*bench).beforeSection},
	{"profile", (*bench).profileSection},
}

func sectionNames() (list []string) {
	for _, s := range sections {
		list = append(list, s.name)
	}
	return list
}

func measure(ctx context.Context, b *bench, quick bool, only, heartbeats string, rounds int) error {
	b.size, b.table = fullSize, &table{progress: os.Stderr, started: time.Now()}
	if quick {
		b.size = quickSize
	}
	if rounds > 0 {
		b.size.rounds = rounds
	}
	for text := range strings.SplitSeq(heartbeats, ",") {
		d, err := time.ParseDuration(text)
		if err != nil {
			return err
		}
		b.heartbeats = append(b.heartbeats, d)
	}
	var err error
	if b.bin, err = filepath.Abs(b.bin); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "bourse-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir) //nolint:errcheck // a temporary folder
	chosen := strings.Split(only, ",")
	if only == "" {
		chosen = slices.DeleteFunc(sectionNames(), func(name string) bool { return name == "profile" || name == "before" })
	}
	for _, s := range sections {
		if !slices.Contains(chosen, s.name) {
			continue
		}
		b.table.say("section %s", s.name)
		err := probed(ctx, b.table, b.dir, s.name, func(ctx context.Context) error { return s.run(b, ctx) })
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			b.table.missing("the rest of section "+s.name, err)
		}
	}
	fmt.Printf("Machine: %s; %d rounds; min, median and max of rounds or of single events (n).\n\n", machine(), b.size.rounds)
	return b.table.write(os.Stdout)
}

// throughputSection starts all contenders and lets them take turns at each number of clusters.
func (b *bench) throughputSection(ctx context.Context) error {
	e, err := startExchange(ctx, b.bin, filepath.Join(b.dir, "ours"), "--stale-after=24h") // no agents here
	if err != nil {
		return err
	}
	defer e.stop()
	m := &members{exchange: e}
	etcd, err := startEtcd(ctx, b.kube, filepath.Join(b.dir, "etcd"))
	if err != nil {
		return err
	}
	defer etcd.stop()
	kube, err := startAPIServer(ctx, b.kube, filepath.Join(b.dir, "kube"), etcd)
	if err != nil {
		return err
	}
	defer kube.stop()
	controllers, peers, err := startControllers(ctx, kube)
	if err != nil {
		return err
	}
	defer controllers.stop() //nolint:errcheck // it ends with its context
	single := newSingleWorker(etcd.client)
	defer single.stop()
	contenders := []named{
		{name: oursAny, contender: anyNode{m}},
		{name: oursLeader, contender: &oneNode{members: m, leads: true}},
		{name: oursFollow, contender: &oneNode{members: m}, clients: 1},
		{name: kubeOne, contender: peers[0]},
		{name: kubeTuned, contender: peers[1]},
		{name: casSingle, contender: single},
		{name: casTopK, contender: topK{newLedger(etcd.client, "/topk")}},
		{name: upperBound, contender: assume{newLedger(etcd.client, "/assume")}},
	}
	batches, err := batchContenders(ctx, m)
	if err != nil {
		return err
	}
	contenders = append(contenders, batches...)
	for _, clusters := range b.size.levels {
		c, err := b.size.compare(ctx, b.table, contenders, clusters)
		if err != nil {
			return err
		}
		c.rows(b.table, contenders, b.size.clients)
	}
	return nil
}

// machine is what the figures depend on.
func machine() string {
	cpu := "unknown processor"
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(data)) {
			if _, name, ok := strings.Cut(line, ": "); ok && strings.HasPrefix(line, "model name") {
				cpu = strings.TrimSpace(name)
				break
			}
		}
	}
	load := "unknown load"
	if data, err := os.ReadFile("/proc/loadavg"); err == nil {
		load = "load average at the end " + strings.Join(strings.Fields(string(data))[:3], " ")
	}
	return fmt.Sprintf("%d cores of %s, %s/%s, %s, %s", runtime.NumCPU(), cpu, runtime.GOOS, runtime.GOARCH, runtime.Version(), load)
}
