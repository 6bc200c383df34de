package store

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/hashicorp/raft"
)

const (
	segmentSectors = 8 << 10                                // 4 MiB; sectorHeader.left must hold it
	maxKey         = 255                                    // bytes of a key of the stable store
	maxAppend      = (segmentSectors/2 - 1) * sectorPayload // bytes: larger ones become several
	// keptShare of a segment is for votes and compaction alone, one of so many sectors: on a full disk there may be no
	// next segment, and Raft does not survive a vote that can't be written.
	keptShare = 64
)

// diskLog is Raft's log, term and vote on disk: segments, in which each append, vote and removal is written behind the
// one before, with one sync. Reads may run at any time, writes one at a time.
//
// One append is there after a crash or it isn't; of StoreLogs with more than maxAppend the first ones may be. A write
// that fails has no effect, and the next one tries anew; so it recovers from a full disk.
type diskLog struct {
	dir     string
	sectors int
	// step is called before each thing done to the directory, and may fail in its place: for tests.
	step func(what string) error
	// covered is the index of the newest snapshot: entries up to it need not be there.
	covered func() (uint64, error)

	// writing is held through a write; the ledger and the files change under mu besides. So no read waits for a sync.
	writing sync.Mutex
	oldest  uint64
	newest  uint64 // that is appended to; 0 where there is no log yet
	appends uint32 // in newest
	end     int    // of newest, in sectors
	dirty   int    // sectors behind end that may not be blank
	// unused segment, made by a rotation that did not come to its end; 0 if there is none
	unused uint64
	// spare is the next segment's file, made blank ahead so that no append waits for that. Of the goroutine that makes
	// it, until making is done.
	spare  *os.File
	asked  bool // for the spare
	making sync.WaitGroup

	mu     sync.RWMutex
	ledger ledger
	files  map[uint64]*os.File
}

// Close ends the use of the files.
func (d *diskLog) Close() (err error) {
	d.writing.Lock()
	defer d.writing.Unlock()
	d.making.Wait()
	if d.spare != nil {
		err = d.spare.Close()
		d.spare = nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.files {
		err = errors.Join(err, f.Close())
	}
	d.files = nil
	return err
}

func (d *diskLog) bytes() int64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return int64(len(d.files)) * int64(d.sectors) * sectorSize
}

// FirstIndex implements raft.LogStore.
func (d *diskLog) FirstIndex() (uint64, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if len(d.ledger.spots) == 0 {
		return 0, nil
	}
	return d.ledger.first, nil
}

// LastIndex implements raft.LogStore.
func (d *diskLog) LastIndex() (uint64, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if len(d.ledger.spots) == 0 {
		return 0, nil
	}
	return d.ledger.next() - 1, nil
}

// GetLog implements raft.LogStore. ErrCorrupt where the entry is not what was stored.
func (d *diskLog) GetLog(index uint64, l *raft.Log) error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if index < d.ledger.first || index >= d.ledger.next() {
		return raft.ErrLogNotFound
	}
	at := d.ledger.spots[index-d.ledger.first]
	from := at.from / sectorPayload
	b := make([]byte, (sectorsFor(at.from+at.size)-from)*sectorSize)
	if _, err := d.files[at.segment].ReadAt(b, int64(at.sector+from)*sectorSize); err != nil {
		return fmt.Errorf("read log entry %d: %w", index, d.named(at.segment, err))
	}
	payload, err := unpackSectors(place{at.segment, uint64(at.sector + from)}, b) //nolint:gosec // not negative
	if err == nil {
		err = readEntry(payload[at.from-from*sectorPayload:][:at.size], l)
	}
	if err == nil && l.Index != index {
		err = fmt.Errorf("says index %d", l.Index)
	}
	if err != nil {
		return fmt.Errorf("%w: log entry %d: %w", ErrCorrupt, index, err)
	}
	return nil
}

// StoreLog implements raft.LogStore.
func (d *diskLog) StoreLog(l *raft.Log) error { return d.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (d *diskLog) StoreLogs(logs []*raft.Log) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	if err := d.verifyGap(logs); err != nil {
		return err
	}
	limit := min(maxAppend, (d.sectors/2-1)*sectorPayload)
	size := 0
	for _, l := range logs {
		if entrySize(l) > limit {
			return fmt.Errorf("log entry %d has %d bytes, at most %d are allowed", l.Index, entrySize(l), limit)
		}
		size += entrySize(l)
	}
	payload := make([]byte, 0, min(size, limit))
	for _, l := range logs {
		if len(payload)+entrySize(l) > limit {
			if err := d.write(payload, d.sectors/keptShare); err != nil {
				return err
			}
			payload = payload[:0]
		}
		payload = appendEntry(payload, l)
	}
	return d.write(payload, d.sectors/keptShare)
}

// verifyGap lets entries follow behind a gap only where a snapshot covers it.
func (d *diskLog) verifyGap(logs []*raft.Log) error {
	if len(logs) == 0 || len(d.ledger.spots) == 0 || logs[0].Index <= d.ledger.next() {
		return nil
	}
	covered, err := d.covered()
	if err == nil && logs[0].Index > covered+1 {
		err = fmt.Errorf("log entry %d does not follow entry %d, nor the snapshot at %d", logs[0].Index, d.ledger.next()-1, covered)
	}
	return err
}

// DeleteRange implements raft.LogStore, for the oldest entries. The newest stay until StoreLogs replaces them, which is
// what Raft calls next: where that fails, Raft goes on as if they were there.
func (d *diskLog) DeleteRange(first, last uint64) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	from, next := d.ledger.first, d.ledger.next()
	switch {
	case first > last || last < from || first > from:
		return nil
	case last+1 >= next: // all: of a log that a snapshot covers, or the newest
		if covered, err := d.covered(); err != nil || first > covered {
			return err
		}
	}
	if err := d.write(appendRecord(nil, firstRecord, indexKey(min(last+1, next))), 0); err != nil {
		return err
	}
	return d.removeOldest()
}

// Set implements raft.StableStore.
func (d *diskLog) Set(key, value []byte) error {
	if len(key) > maxKey || len(value) > maxStableValue {
		return fmt.Errorf("%s is %d bytes long, at most %d are allowed", key, len(value), maxStableValue)
	}
	d.writing.Lock()
	defer d.writing.Unlock()
	return d.write(appendValue(nil, key, value), 0)
}

// Get implements raft.StableStore.
func (d *diskLog) Get(key []byte) ([]byte, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	value, ok := d.ledger.values[string(key)]
	if !ok {
		return nil, errNotFound
	}
	return append([]byte{}, value...), nil
}

// SetUint64 implements raft.StableStore.
func (d *diskLog) SetUint64(key []byte, value uint64) error { return d.Set(key, indexKey(value)) }

// GetUint64 implements raft.StableStore.
func (d *diskLog) GetUint64(key []byte) (uint64, error) {
	value, err := d.Get(key)
	if err != nil {
		return 0, err
	}
	return openUint64(key, value)
}
