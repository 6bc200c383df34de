package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// raftStore is Raft's log, term and vote on disk, each value with a checksum of all of it. Our entries
// have one of their own; but a flipped bit in what Raft adds (an entry's term or type, the vote)
// could make this node skip an entry or vote twice, and so diverge. A record of the tail (disk_tail.go)
// proves that none is missing.
//
// The checksum is a matter of the disk: it is not sent to other nodes. Values without one are of an
// older version and are taken as they are.
//
// File, buckets and encoding are those of raft-boltdb v2, with which older versions read and write them.
type raftStore struct{ db *bbolt.DB }

// As hashicorp/raft and raft-boltdb name them.
var (
	logBucket, stableBucket = []byte("logs"), []byte("conf")

	keyTerm, keyVoteTerm, keyVote = []byte("CurrentTerm"), []byte("LastVoteTerm"), []byte("LastVoteCand")
)

const (
	checksumSize = 4 // of a CRC-32C
	indexSize    = 8 // of the keys of the log
)

// errNotFound is matched by hashicorp/raft by its text.
var errNotFound = errors.New("not found")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// The old format of times is what raft-boltdb writes; all versions read both.
var writeHandle, readHandle = oldTimes(), &codec.MsgpackHandle{}

func oldTimes() *codec.MsgpackHandle {
	h := &codec.MsgpackHandle{}
	h.TimeNotBuiltin = true
	return h
}

// openRaftStore opens or makes the file. proven is what verifyLog found in it.
func openRaftStore(path string, proven tail) (*raftStore, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout:        boltLockWait,
		NoFreelistSync: true,
		FreelistType:   bbolt.FreelistMapType,
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	s := &raftStore{db}
	if err := s.prepare(proven); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare %s: %w", path, err), db.Close())
	}
	return s, nil
}

// Close ends the use of the file.
func (s *raftStore) Close() error { return s.db.Close() }

func (s *raftStore) bytes() int64 {
	info, err := os.Stat(s.db.Path())
	if err != nil {
		return 0
	}
	return info.Size()
}

// FirstIndex implements raft.LogStore.
func (s *raftStore) FirstIndex() (uint64, error) { return s.end((*bbolt.Cursor).First) }

// LastIndex implements raft.LogStore.
func (s *raftStore) LastIndex() (uint64, error) { return s.end((*bbolt.Cursor).Last) }

func (s *raftStore) end(seek func(*bbolt.Cursor) (key, value []byte)) (index uint64, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		if key, _ := seek(tx.Bucket(logBucket).Cursor()); key != nil {
			index = binary.BigEndian.Uint64(key)
		}
		return nil
	})
	return index, err
}

// GetLog implements raft.LogStore. ErrCorrupt where the entry is not what was stored.
func (s *raftStore) GetLog(index uint64, l *raft.Log) error {
	return s.db.View(func(tx *bbolt.Tx) error {
		value := tx.Bucket(logBucket).Get(indexKey(index))
		if value == nil {
			return raft.ErrLogNotFound
		}
		if err := decodeLog(index, value, l); err != nil {
			return fmt.Errorf("%w: log entry %d: %w", ErrCorrupt, index, err)
		}
		return nil
	})
}

// StoreLog implements raft.LogStore.
func (s *raftStore) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (s *raftStore) StoreLogs(logs []*raft.Log) error {
	return s.update(func(log, _ *bbolt.Bucket, t *tail) error {
		for _, l := range logs {
			key := indexKey(l.Index)
			value, err := encodeLog(l)
			if err != nil {
				return fmt.Errorf("encode log entry %d: %w", l.Index, err)
			}
			if l.Index <= t.last {
				t.take(key, log.Get(key))
			}
			if err := log.Put(key, value); err != nil {
				return err
			}
			t.add(key, value)
		}
		return nil
	})
}

// DeleteRange implements raft.LogStore.
func (s *raftStore) DeleteRange(first, last uint64) error {
	return s.update(func(log, _ *bbolt.Bucket, t *tail) error {
		cursor := log.Cursor()
		for key, value := cursor.Seek(indexKey(first)); key != nil && binary.BigEndian.Uint64(key) <= last; key, value = cursor.Next() {
			t.take(key, value)
			if err := cursor.Delete(); err != nil {
				return err
			}
		}
		t.first, t.last = 0, 0
		if key, _ := cursor.First(); key != nil { // Last does not return where this transaction emptied all pages
			t.first = binary.BigEndian.Uint64(key)
			key, _ = cursor.Last()
			t.last = binary.BigEndian.Uint64(key)
		}
		return nil
	})
}

// Set implements raft.StableStore. The value is followed by a zero byte, which no node id has, and its checksum.
func (s *raftStore) Set(key, value []byte) error {
	sealed := append(append(make([]byte, 0, len(value)+1+checksumSize), value...), 0)
	return s.put(key, binary.BigEndian.AppendUint32(sealed, stableSum(key, value)))
}

// Get implements raft.StableStore.
func (s *raftStore) Get(key []byte) ([]byte, error) {
	sealed, err := s.get(key)
	if err != nil {
		return nil, err
	}
	return openValue(key, sealed)
}

// SetUint64 implements raft.StableStore. The value is followed by its checksum.
func (s *raftStore) SetUint64(key []byte, value uint64) error {
	sealed := binary.BigEndian.AppendUint64(make([]byte, 0, 8+checksumSize), value)
	return s.put(key, binary.BigEndian.AppendUint32(sealed, stableSum(key, sealed)))
}

// GetUint64 implements raft.StableStore.
func (s *raftStore) GetUint64(key []byte) (uint64, error) {
	sealed, err := s.get(key)
	if err != nil {
		return 0, err
	}
	return openUint64(key, sealed)
}

func (s *raftStore) put(key, sealed []byte) error {
	if len(sealed) > maxStableValue {
		return fmt.Errorf("%s is %d bytes long, at most %d are allowed", key, len(sealed), maxStableValue)
	}
	return s.update(func(_, stable *bbolt.Bucket, _ *tail) error { return stable.Put(key, sealed) })
}

func (s *raftStore) get(key []byte) (sealed []byte, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		value := tx.Bucket(stableBucket).Get(key)
		if value == nil {
			return errNotFound
		}
		sealed = append([]byte{}, value...)
		return nil
	})
	return sealed, err
}
