package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc64"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"github.com/bourse-dev/bourse/fsm"
)

// Names that raft.FileSnapshotStore gives.
const (
	tmpSuffix         = ".tmp"
	snapshotMetaFile  = "meta.json"
	snapshotStateFile = "state.bin"
)

// snapshotMeta is what meta.json holds: raft's own fields and the checksum of state.bin.
type snapshotMeta struct {
	raft.SnapshotMeta
	CRC []byte
}

// verifySnapshots reads the newest snapshot. Raft would step back to an older one when the newest
// can't be read, with a log that may begin later: a hole. We refuse instead. halfRemoved are those
// of which a crash left some, while raft removed them.
func verifySnapshots(dir string) (state *fsm.State, index uint64, halfRemoved []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil, fmt.Errorf("list snapshots: %w", err)
	}
	var newest *snapshotMeta
	for _, e := range entries {
		if !e.IsDir() || strings.HasSuffix(e.Name(), tmpSuffix) {
			continue
		}
		path := filepath.Join(dir, e.Name(), snapshotMetaFile)
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			halfRemoved = append(halfRemoved, e.Name())
			continue
		}
		if err != nil {
			return nil, 0, nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		meta, err := parseSnapshotMeta(filepath.Join(dir, e.Name()), data)
		if err != nil {
			return nil, 0, nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, path, err)
		}
		if newest == nil || newer(meta, newest) {
			newest = meta
		}
	}
	for _, name := range halfRemoved {
		// Raft removes old ones only. A newer one without metadata is damage.
		meta, err := snapshotNamed(name)
		if err != nil || newest == nil || !newer(newest, meta) {
			return nil, 0, nil, fmt.Errorf("%w: %s is missing", ErrCorrupt, filepath.Join(dir, name, snapshotMetaFile))
		}
	}
	if newest == nil {
		return fsm.New(), 0, nil, nil
	}
	path := filepath.Join(dir, newest.ID, snapshotStateFile)
	state, err = readSnapshotFile(path, newest.CRC)
	if err != nil {
		return nil, 0, nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, path, err)
	}
	return state, newest.Index, halfRemoved, nil
}

// snapshotNamed is as much as raft's name of a snapshot says: <term>-<index>-<time>.
func snapshotNamed(name string) (*snapshotMeta, error) {
	var millis uint64
	meta := &snapshotMeta{SnapshotMeta: raft.SnapshotMeta{ID: name}}
	_, err := fmt.Sscanf(name, "%d-%d-%d", &meta.Term, &meta.Index, &millis)
	return meta, err
}

func parseSnapshotMeta(dir string, data []byte) (*snapshotMeta, error) {
	sum, err := os.ReadFile(filepath.Join(dir, snapshotSumFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil && string(sum) != metaSum(data) {
		return nil, fmt.Errorf("checksum is %s, %s says %q", metaSum(data), snapshotSumFile, sum)
	}
	meta := &snapshotMeta{}
	if err := json.Unmarshal(data, meta); err != nil {
		return nil, err
	}
	if name := filepath.Base(dir); meta.ID != name || !strings.HasPrefix(name, fmt.Sprintf("%d-%d-", meta.Term, meta.Index)) {
		return nil, fmt.Errorf("names snapshot %q of term %d and index %d", meta.ID, meta.Term, meta.Index)
	}
	return meta, nil
}

// newer orders as raft does.
func newer(a, b *snapshotMeta) bool {
	if a.Term != b.Term {
		return a.Term > b.Term
	}
	if a.Index != b.Index {
		return a.Index > b.Index
	}
	return a.ID > b.ID
}

func readSnapshotFile(path string, wantCRC []byte) (state *fsm.State, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	sum := crc64.New(crc64.MakeTable(crc64.ECMA))
	if _, err := io.Copy(sum, f); err != nil {
		return nil, err
	}
	if got := sum.Sum(nil); string(got) != string(wantCRC) {
		return nil, fmt.Errorf("checksum is %x, %s says %x", got, snapshotMetaFile, wantCRC)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return fsm.ReadSnapshot(f)
}

// verifyLog proves, without writing, that the log file's pages hang together, that all entries are
// whole (older ones, too: a leader sends them to nodes that were away), and that those beyond the
// snapshot at index after continue it without a gap. (Before it there may be one: after the install
// of a snapshot raft appends behind whatever old entries are left.)
//
// written is false where the file is missing, or was made but never written.
func verifyLog(path string, after uint64) (written bool, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("log: %w", err)
	}
	if info.Size() == 0 {
		return false, nil
	}
	// bbolt maps the file and trusts its pages: a damaged one makes it panic or touch memory that isn't there.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %s: %v", ErrCorrupt, path, p)
		}
	}()
	if err := verifyHeads(path); err != nil {
		return false, fmt.Errorf("%w: %s: %w", ErrCorrupt, path, err)
	}
	switch err := verifyPages(path); {
	case errors.Is(err, errNeverWritten):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("%w: %s: %w", ErrCorrupt, path, err)
	}
	switch err := verifyEntries(path, after); {
	case errors.Is(err, fsm.ErrUnknownCommand):
		return false, fmt.Errorf("%s was written by a newer version: %w", path, err)
	case err != nil:
		return false, fmt.Errorf("%w: %s: %w", ErrCorrupt, path, err)
	}
	return true, nil
}

// errNeverWritten says that bbolt made the file, and that a crash came before its first transaction.
var errNeverWritten = errors.New("the log file has never been written")

// verifyLogIsThere refuses to begin anew, without votes and state, in the name of a node of an exchange.
func verifyLogIsThere(dir string, id Identity, written bool) error {
	if id.ClusterID == "" || written {
		return nil
	}
	return fmt.Errorf("%w: %s is missing or empty, though this directory is part of exchange %s: restore it, "+
		"or remove the whole directory and run `bourse raft remove-peer %s`", ErrCorrupt, filepath.Join(dir, logFile), id.ClusterID, id.NodeID)
}

func readOnlyBolt() *bbolt.Options {
	return &bbolt.Options{ReadOnly: true, Timeout: boltLockWait, FreelistType: bbolt.FreelistMapType}
}

// verifyHeads proves both head pages. bbolt writes them in turn and makes do with the older one where the
// newer is damaged: it would take back the last entry, or the last vote. (Either fits into one disk
// sector, so no crash tears it.)
func verifyHeads(path string) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	// Behind the head of a page: magic, version, page size, ..., and the FNV-1a of all that.
	const sizeAt, sumAt = 8, 56
	var head [sumAt + 8]byte
	pageSize := int64(0)
	for page := range int64(2) {
		if _, err := f.ReadAt(head[:], page*pageSize+pageHead); err != nil {
			return fmt.Errorf("head page %d: %w", page, err)
		}
		sum := fnv.New64a()
		_, _ = sum.Write(head[:sumAt])
		if sum.Sum64() != binary.NativeEndian.Uint64(head[sumAt:]) {
			return fmt.Errorf("head page %d does not match its checksum", page)
		}
		pageSize = int64(binary.NativeEndian.Uint32(head[sizeAt:]))
	}
	return nil
}

func verifyPages(path string) (err error) {
	db, err := bbolt.Open(path, 0o600, readOnlyBolt())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.View(func(tx *bbolt.Tx) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if info.Size() < tx.Size() {
			return fmt.Errorf("cut short: %d of %d bytes", info.Size(), tx.Size())
		}
		// The first transaction, the third by bbolt's count, makes the buckets.
		if first, _ := tx.Cursor().First(); first == nil && tx.ID() < 2 {
			return errNeverWritten
		}
		for _, name := range [][]byte{logBucket, stableBucket} {
			bucket := tx.Bucket(name)
			if bucket == nil {
				return fmt.Errorf("bucket %q is missing", name)
			}
			if err := verifyBucket(bucket); err != nil {
				return fmt.Errorf("bucket %q: %w", name, err)
			}
		}
		return tx.Bucket(stableBucket).ForEach(func(key, _ []byte) error {
			if !bytes.Equal(key, keyTerm) && !bytes.Equal(key, keyVoteTerm) && !bytes.Equal(key, keyVote) {
				return fmt.Errorf("bucket %q: unknown key %q", stableBucket, key)
			}
			return nil
		})
	})
}

// Sizes of bbolt's pages: of a page's head, of what it says of each element, and of the keys of our log.
const (
	pageHead    = 16
	elementHead = 16
	indexSize   = 8
)

// verifyBucket proves that the keys are in order and all there. (Not by tx.Check: that walks on goroutines
// of its own, where a fault can't be caught, and would miss a page that says it has fewer elements.)
func verifyBucket(bucket *bbolt.Bucket) error {
	var before []byte
	var inUse int
	err := bucket.ForEach(func(key, value []byte) error {
		// A page that is reached twice, or in the wrong place, breaks the order.
		if before != nil && bytes.Compare(before, key) >= 0 {
			return fmt.Errorf("key %x comes after %x", key, before)
		}
		before = key
		inUse += elementHead + len(key) + len(value)
		return nil
	})
	if err != nil {
		return err
	}
	// bbolt packs pages tightly, and reckons what is in use by where the last element lies.
	s := bucket.Stats()
	if inUse += (s.LeafPageN + s.InlineBucketN) * pageHead; inUse != s.LeafInuse+s.InlineBucketInuse {
		return fmt.Errorf("elements are missing: %d bytes are reached, %d in use", inUse, s.LeafInuse+s.InlineBucketInuse)
	}
	if branches := s.BranchPageN*pageHead + max(0, s.LeafPageN+s.BranchPageN-1)*(elementHead+indexSize); s.BranchPageN > 0 && branches != s.BranchInuse {
		return fmt.Errorf("pages are missing: %d bytes are reached, %d in use", branches, s.BranchInuse)
	}
	return nil
}

func verifyEntries(path string, after uint64) (err error) {
	bolt, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: readOnlyBolt()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bolt.Close()) }()
	log := raftStore{bolt}
	if err := log.verifyStable(); err != nil {
		return err
	}
	first, err := log.FirstIndex()
	if err != nil {
		return err
	}
	last, err := log.LastIndex()
	if err != nil {
		return err
	}
	if last == 0 {
		return nil
	}
	if first > after+1 {
		return fmt.Errorf("begins at index %d, the newest snapshot ends at %d", first, after)
	}
	var entry raft.Log
	for i := first; i <= last; i++ {
		err := log.GetLog(i, &entry)
		if i <= after && errors.Is(err, raft.ErrLogNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
		if entry.Type == raft.LogCommand {
			if _, err := fsm.DecodeEntry(entry.Data); err != nil && !errors.Is(err, fsm.ErrIgnorable) {
				return fmt.Errorf("entry %d: %w", i, err)
			}
		}
	}
	return nil
}
