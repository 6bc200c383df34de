package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/bourse-dev/bourse/fsm"
)

// What lies in a data directory:
//
//	identity.json   whose directory this is
//	lock            held with flock while a process uses it
//	log/            Raft's log and stable store, in segments
//	raft.db         the same in bbolt, in a directory of format 1, until it is taken over
//	snapshots/      <term>-<index>-<time>/{meta.json,state.bin,meta.crc}
const (
	logFile     = "raft.db"
	snapshotDir = "snapshots" // as raft.FileSnapshotStore names it
)

// boltLockWait bounds the wait for bbolt's own lock; our lock file is taken before.
const boltLockWait = time.Second

// ErrCorrupt says that a file of the data directory can't be trusted. Nothing was changed.
var ErrCorrupt = errors.New("the data directory is corrupt")

// DiskOptions for OpenDisk.
type DiskOptions struct {
	Dir             string
	NodeID          string
	RetainSnapshots int
	Logger          hclog.Logger
}

// Disk is an open data directory. Methods may be called on any goroutine.
type Disk struct {
	dir   string
	lock  *os.File
	raft  raftLog        // nil until open
	snaps *snapshotStore // nil until open

	state      *fsm.State
	stateIndex uint64

	mu       sync.Mutex
	identity Identity
}

// OpenDisk takes the directory for this process, proves what is in it and opens it. A directory
// that is absent is made. Where anything is wrong (ErrLocked, ErrIdentity, ErrCorrupt, a command
// or format that this version doesn't know) the error names the file and nothing was changed.
func OpenDisk(o DiskOptions) (disk *Disk, err error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	lock, err := lockDir(o.Dir)
	if err != nil {
		return nil, err
	}
	d := &Disk{dir: o.Dir, lock: lock}
	defer func() {
		if err != nil {
			_ = d.Close()
		}
	}()
	id, isNew, err := loadIdentity(o.Dir, o.NodeID)
	if err != nil {
		return nil, err
	}
	d.identity = id
	var halfRemoved []string
	if d.state, d.stateIndex, halfRemoved, err = verifySnapshots(filepath.Join(o.Dir, snapshotDir)); err != nil {
		return nil, err
	}
	log, err := proveLog(o.Dir, id, d.stateIndex)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, log.Close())
		}
	}()

	// Everything is proven; from here on the directory is written.
	if isNew {
		if err = writeIdentity(o.Dir, id); err != nil {
			return nil, err
		}
	}
	if err = removeLeftovers(filepath.Join(o.Dir, snapshotDir), halfRemoved); err != nil {
		return nil, err
	}
	snaps, err := raft.NewFileSnapshotStoreWithLogger(o.Dir, o.RetainSnapshots, o.Logger)
	if err != nil {
		return nil, fmt.Errorf("open snapshots: %w", err)
	}
	d.snaps = &snapshotStore{snaps, filepath.Join(o.Dir, snapshotDir), o.Logger}
	if log.segments == nil && log.written && d.state.Behaviour() >= segmentBehaviour {
		log.takeOver = true
	}
	if d.raft, d.identity, err = log.open(id, d.snaps); err != nil {
		return nil, err
	}
	return d, syncDir(o.Dir)
}

// Logs is Raft's log store.
func (d *Disk) Logs() raft.LogStore { return d.raft }

// Stable is Raft's store of term and vote.
func (d *Disk) Stable() raft.StableStore { return d.raft }

// Snapshots is Raft's snapshot store.
func (d *Disk) Snapshots() raft.SnapshotStore { return d.snaps }

// State is that of the newest snapshot, as read and verified by OpenDisk; an empty one where there
// is none. index is the log index of the snapshot. Start Raft with NoSnapshotRestoreOnStart.
func (d *Disk) State() (state *fsm.State, index uint64) { return d.state, d.stateIndex }

// Identity of the directory.
func (d *Disk) Identity() Identity {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.identity
}

// SetCluster records durably to which exchange the directory belongs, or which it means to join. The
// caller makes sure that an exchange it gives up holds nothing yet.
func (d *Disk) SetCluster(clusterID, founder, gaveUp string, joining bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	id := d.identity
	id.ClusterID, id.Founder, id.GaveUp, id.Joining = clusterID, founder, gaveUp, joining
	if id == d.identity {
		return nil
	}
	if err := writeIdentity(d.dir, id); err != nil {
		return err
	}
	d.identity = id
	return nil
}

// HasRaftState says whether the node has ever been part of an exchange: a log, a vote or a snapshot.
func (d *Disk) HasRaftState() (bool, error) {
	return raft.HasExistingState(d.raft, d.raft, d.snaps)
}

// LogBytes is the size of the log. That of bbolt never shrinks: it reuses its free pages.
func (d *Disk) LogBytes() int64 { return d.raft.bytes() }

// SnapshotBytes is the size of the newest snapshot; 0 where there is none.
func (d *Disk) SnapshotBytes() int64 {
	list, err := d.snaps.List()
	if err != nil || len(list) == 0 {
		return 0
	}
	return list[0].Size
}

// Close ends the use of the directory; Raft must be down.
func (d *Disk) Close() error {
	var err error
	if d.raft != nil {
		err = d.raft.Close()
		d.raft = nil
	}
	if d.lock != nil {
		err = errors.Join(err, d.lock.Close())
		d.lock = nil
	}
	return err
}

// removeLeftovers drops what a crash left half-written or half-removed; raft never reads or removes those.
func removeLeftovers(dir string, halfRemoved []string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), tmpSuffix) || slices.Contains(halfRemoved, e.Name()) {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return fmt.Errorf("remove what is left of a snapshot: %w", err)
			}
		}
	}
	return nil
}
