package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/raft"

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
// whole (older ones, too: a leader sends them to nodes that were away), that those beyond the
// snapshot at index after continue it without a gap, and that none is missing. (Before it there may be a gap:
// after the install of a snapshot raft appends behind whatever old entries are left.)
//
// written is false where the file is missing, or was made but never written.
func verifyLog(path string, after uint64) (found tail, written bool, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return tail{}, false, nil
	}
	if err != nil {
		return tail{}, false, fmt.Errorf("log: %w", err)
	}
	if info.Size() == 0 {
		return tail{}, false, nil
	}
	p := &logProof{after: after, stable: map[string][]byte{}}
	tx, err := walkPages(path, p.visit)
	if err == nil {
		err = p.finish(tx)
	}
	switch {
	case errors.Is(err, errNeverWritten):
		return tail{}, false, nil
	case errors.Is(err, fsm.ErrUnknownCommand):
		return tail{}, false, fmt.Errorf("%s was written by a newer version: %w", path, err)
	case err != nil:
		return tail{}, false, fmt.Errorf("%w: %s: %w", ErrCorrupt, path, err)
	}
	return p.found, true, nil
}

// logProof judges what is in the log file.
type logProof struct {
	after  uint64            // the index of the newest snapshot
	stable map[string][]byte // term, vote and the record of the tail, as they lie on disk
	found  tail
}

func (p *logProof) visit(bucket, key, value []byte) error {
	if bytes.Equal(bucket, logBucket) {
		return p.entry(key, value)
	}
	for _, known := range [][]byte{keyTerm, keyVoteTerm, keyVote, keyTail} {
		if bytes.Equal(key, known) {
			p.stable[string(key)] = value
			return nil
		}
	}
	return fmt.Errorf("unknown key %q", key)
}

func (p *logProof) entry(key, value []byte) error {
	if len(key) != indexSize {
		return fmt.Errorf("key %x is no index", key)
	}
	index := binary.BigEndian.Uint64(key)
	if next := max(p.after, p.found.last) + 1; index > next {
		return missingEntry(next, p.after, index)
	}
	var l raft.Log
	if err := decodeLog(index, value, &l); err != nil {
		return fmt.Errorf("entry %d: %w", index, err)
	}
	if err := verifyEntry(&l); err != nil {
		return err
	}
	p.found.add(key, value)
	return nil
}

func verifyEntry(l *raft.Log) error {
	if l.Type != raft.LogCommand {
		return nil
	}
	if _, err := fsm.DecodeEntry(l.Data); err != nil && !errors.Is(err, fsm.ErrIgnorable) {
		return fmt.Errorf("entry %d: %w", l.Index, err)
	}
	return nil
}

func missingEntry(index, after, next uint64) error {
	return fmt.Errorf("entry %d is missing: the newest snapshot ends at %d, the next entry is %d", index, after, next)
}

// finish when all was visited; tx is the newest transaction.
func (p *logProof) finish(tx uint64) error {
	get := func(key []byte) []byte { return p.stable[string(key)] }
	for _, key := range [][]byte{keyTerm, keyVoteTerm} {
		if value := get(key); value != nil {
			if _, err := openUint64(key, value); err != nil {
				return err
			}
		}
	}
	if _, err := openValue(keyVote, get(keyVote)); err != nil {
		return err
	}
	p.found.stable = sumOfStable(get)
	return verifyTail(get(keyTail), tx, &p.found)
}

// verifyLogIsThere refuses to begin anew, without votes and state, in the name of a node of an exchange.
func verifyLogIsThere(path string, id Identity, written bool) error {
	if id.ClusterID == "" || written {
		return nil
	}
	return fmt.Errorf("%w: %s is missing or empty, though this directory is part of exchange %s: restore it, "+
		"or remove the whole directory and run `bourse raft remove-peer %s`", ErrCorrupt, path, id.ClusterID, id.NodeID)
}
