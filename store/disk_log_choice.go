package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/bourse-dev/bourse/fsm"
)

// segmentBehaviour is that from which on no build comes back that knows raft.db only.
const segmentBehaviour = fsm.PartsBehaviour

// raftLog is Raft's log, term and vote, in one of the two formats.
type raftLog interface {
	raft.LogStore
	raft.StableStore
	io.Closer
	bytes() int64
}

// provenLog is the log of a directory: proven, and nothing written yet.
type provenLog struct {
	dir      string
	written  bool
	bolt     tail     // of raft.db
	segments *diskLog // nil where raft.db is the log
	// takeOver raft.db. It may have been begun, or be done but for the file's removal.
	takeOver bool
	// step is the importer's.
	step func(what string) error
}

// proveLog proves the one that is the log: that in segments wherever there is one. after is the index of the newest snapshot.
func proveLog(dir string, id Identity, after uint64) (*provenLog, error) {
	segments, bolt := filepath.Join(dir, segmentDir), filepath.Join(dir, logFile)
	hasSegments, err := exists(segments)
	if err != nil {
		return nil, err
	}
	hasBolt, err := exists(bolt)
	if err != nil {
		return nil, err
	}
	p := &provenLog{dir: dir, step: func(string) error { return nil }}
	switch {
	case hasSegments && id.Format != segmentFormat:
		return nil, fmt.Errorf("%w: %s is beside %s, which says that the directory has format %d", ErrCorrupt, segments,
			filepath.Join(dir, IdentityFile), id.Format)
	case hasSegments || id.Format == segmentFormat && !hasBolt:
		p.takeOver = hasBolt
		if p.segments, err = readDiskLog(segments, segmentSectors); err != nil {
			return nil, err
		}
		p.written = p.segments.newest > 0
		if err := p.segments.verify(after); err != nil {
			return nil, errors.Join(err, p.Close())
		}
		if err := verifyLogIsThere(segments, id, p.written); err != nil {
			return nil, errors.Join(err, p.Close())
		}
		return p, nil
	}
	if p.bolt, p.written, err = verifyLog(bolt, after); err != nil {
		return nil, err
	}
	p.takeOver = id.Format == segmentFormat
	return p, verifyLogIsThere(bolt, id, p.written)
}

func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// verify the entries themselves, and that they continue the snapshot, as verifyLog does.
func (d *diskLog) verify(after uint64) error {
	first, next := d.ledger.first, d.ledger.next()
	if len(d.ledger.spots) > 0 && first > after+1 {
		return fmt.Errorf("%w: %s: %w", ErrCorrupt, d.dir, missingEntry(after+1, after, first))
	}
	var l raft.Log
	for i := first; i < next; i++ {
		if err := d.GetLog(i, &l); err != nil {
			return fmt.Errorf("%s: %w", d.dir, err)
		}
		switch err := verifyEntry(&l); {
		case errors.Is(err, fsm.ErrUnknownCommand):
			return fmt.Errorf("%s was written by a newer version: %w", d.dir, err)
		case err != nil:
			return fmt.Errorf("%w: %s: %w", ErrCorrupt, d.dir, err)
		}
	}
	return nil
}

// open it to be written. The identity is that of the directory from now on.
func (p *provenLog) open(id Identity, snaps *snapshotStore) (raftLog, Identity, error) {
	if p.takeOver {
		var err error
		if id, err = p.importBolt(id, snaps.logger); err != nil {
			return nil, id, err
		}
	}
	if id.Format == boltFormat {
		s, err := openRaftStore(filepath.Join(p.dir, logFile), p.bolt)
		if err != nil {
			return nil, id, err
		}
		return s, id, nil
	}
	if p.segments == nil {
		var err error
		if p.segments, err = readDiskLog(filepath.Join(p.dir, segmentDir), segmentSectors); err != nil {
			return nil, id, err
		}
	}
	p.segments.covered = snaps.newest
	if err := p.segments.start(); err != nil {
		return nil, id, fmt.Errorf("open %s: %w", p.segments.dir, err)
	}
	return p.segments, id, nil
}

// importBolt takes raft.db over. As long as the format is not raised it is the log, and goes on to be where that fails.
func (p *provenLog) importBolt(id Identity, logger hclog.Logger) (Identity, error) {
	i := &importer{dir: p.dir, sectors: segmentSectors, step: p.step}
	err := i.run(id)
	if err == nil {
		id.Format = segmentFormat
		return id, nil
	}
	now, _, readErr := loadIdentity(p.dir, id.NodeID)
	if readErr != nil || now.Format != boltFormat {
		return id, errors.Join(err, readErr)
	}
	if err = errors.Join(err, os.RemoveAll(filepath.Join(p.dir, segmentDir+tmpSuffix))); logger != nil {
		logger.Warn("the log stays in "+logFile+" until the next start", "dir", p.dir, "error", err)
	}
	return id, nil
}

// Close what was opened to be proven.
func (p *provenLog) Close() error {
	if p == nil || p.segments == nil {
		return nil
	}
	return p.segments.Close()
}
