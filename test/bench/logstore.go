package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"
	"go.etcd.io/bbolt"

	"github.com/bourse-dev/bourse/store"
)

// logStore is one of the candidates for Raft's log, behind Raft's own interface.
type logStore struct {
	name string
	open func(dir string) (closingStore, error)
}

type closingStore interface {
	raft.LogStore
	io.Closer
}

// ourLog is the product's own, closed with its data directory.
type ourLog struct {
	raft.LogStore
	io.Closer
}

// entryBytes is about what one grant takes in the log.
const entryBytes = 1500

// logStores: ours, raft-boltdb set up as ours was while it was built on bbolt, and raft-wal.
var logStores = []logStore{
	{"ours", func(dir string) (closingStore, error) {
		disk, err := store.OpenDisk(store.DiskOptions{Dir: dir, NodeID: "n1", RetainSnapshots: 1, Logger: hclog.NewNullLogger()})
		if err != nil {
			return nil, err
		}
		return ourLog{disk.Logs(), disk}, nil
	}},
	{"raft-boltdb", func(dir string) (closingStore, error) {
		return raftboltdb.New(raftboltdb.Options{
			Path:        filepath.Join(dir, "raft.db"),
			BoltOptions: &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType},
		})
	}},
	{"raft-wal", func(dir string) (closingStore, error) { return wal.Open(dir) }},
}

// logSection appends to all stores, with fsync, in turn.
func (b *bench) logSection() error {
	for _, batch := range []int{1, 16, 64} {
		rates := map[string]series{}
		p99 := map[string]series{}
		for round := range b.size.rounds {
			for i := range logStores {
				s := logStores[(i+round)%len(logStores)]
				perSecond, took, err := b.appends(s, batch)
				if err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
				rates[s.name] = append(rates[s.name], perSecond)
				p99[s.name] = append(p99[s.name], milliseconds(took.quantile(0.99)))
			}
		}
		for _, s := range logStores {
			r := row{
				what: fmt.Sprintf("log store, appends of %d entries of %d B: %s", batch, entryBytes, s.name),
				unit: "entries/s", values: rates[s.name], note: "p99 of an append " + figure(p99[s.name].median()) + " ms",
			}
			if s.name != logStores[0].name {
				r.note += fmt.Sprintf(", %.1fx %s", rates[s.name].median()/rates[logStores[0].name].median(), logStores[0].name)
			}
			b.table.add(r)
		}
	}
	return nil
}

func (b *bench) appends(s logStore, batch int) (perSecond float64, took latencies, err error) {
	dir, err := os.MkdirTemp(b.dir, "log-")
	if err != nil {
		return 0, nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	store, err := s.open(dir)
	if err != nil {
		return 0, nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	index := uint64(1)
	logs := make([]*raft.Log, batch)
	started := time.Now()
	for time.Since(started) < b.size.burst {
		for i := range logs {
			logs[i] = &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: make([]byte, entryBytes)}
			index++
		}
		before := time.Now()
		if err := store.StoreLogs(logs); err != nil {
			return 0, nil, err
		}
		took = append(took, time.Since(before))
	}
	perSecond = float64(index-1) / time.Since(started).Seconds()
	last, err := store.LastIndex()
	if err == nil && last != index-1 {
		err = fmt.Errorf("holds %d entries of %d", last, index-1)
	}
	return perSecond, took, err
}
