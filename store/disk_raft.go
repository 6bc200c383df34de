package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// raftStore is Raft's log, term and vote on disk, each value with a checksum of all of it. Our entries
// have one of their own; but a flipped bit in what Raft adds (an entry's term or type, the vote)
// could make this node skip an entry or vote twice, and so diverge.
//
// The checksum is a matter of the disk: it is not sent to other nodes. Values without one are of an
// older version and are taken as they are.
type raftStore struct{ *raftboltdb.BoltStore }

// checksumSize is the length of a CRC-32C.
const checksumSize = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksumOf covers all of an entry that Raft relies on.
func checksumOf(l *raft.Log) []byte {
	var head [17]byte
	binary.BigEndian.PutUint64(head[:], l.Index)
	binary.BigEndian.PutUint64(head[8:], l.Term)
	head[16] = byte(l.Type)
	sum := crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, l.Data)
	return binary.BigEndian.AppendUint32(nil, sum)
}

// StoreLog implements raft.LogStore.
func (s raftStore) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (s raftStore) StoreLogs(logs []*raft.Log) error {
	sealed := make([]raft.Log, len(logs))
	pointers := make([]*raft.Log, len(logs))
	for i, l := range logs {
		sealed[i], pointers[i] = *l, &sealed[i]
		sealed[i].Extensions = checksumOf(l)
	}
	return s.BoltStore.StoreLogs(pointers)
}

// GetLog implements raft.LogStore. ErrCorrupt where the entry is not what was stored.
func (s raftStore) GetLog(index uint64, l *raft.Log) error {
	l.Extensions = nil // msgpack leaves alone what the value does not name
	if err := s.BoltStore.GetLog(index, l); err != nil {
		return err
	}
	if l.Index != index {
		return fmt.Errorf("%w: log entry %d says index %d", ErrCorrupt, index, l.Index)
	}
	if len(l.Extensions) > 0 && string(l.Extensions) != string(checksumOf(l)) {
		return fmt.Errorf("%w: log entry %d does not match its checksum", ErrCorrupt, index)
	}
	l.Extensions = nil
	return nil
}

// Set implements raft.StableStore. The value is followed by a zero byte, which no node id has, and its checksum.
func (s raftStore) Set(key, value []byte) error {
	sealed := append(append(make([]byte, 0, len(value)+1+checksumSize), value...), 0)
	return s.BoltStore.Set(key, binary.BigEndian.AppendUint32(sealed, stableSum(key, value)))
}

// Get implements raft.StableStore.
func (s raftStore) Get(key []byte) ([]byte, error) {
	sealed, err := s.BoltStore.Get(key)
	at := len(sealed) - checksumSize
	if err != nil || at < 1 || sealed[at-1] != 0 {
		return sealed, err
	}
	return sealed[:at-1], checkStable(key, sealed[:at-1], sealed[at:])
}

// SetUint64 implements raft.StableStore. The value is followed by its checksum.
func (s raftStore) SetUint64(key []byte, value uint64) error {
	sealed := binary.BigEndian.AppendUint64(make([]byte, 0, 8+checksumSize), value)
	return s.BoltStore.Set(key, binary.BigEndian.AppendUint32(sealed, stableSum(key, sealed)))
}

// GetUint64 implements raft.StableStore.
func (s raftStore) GetUint64(key []byte) (uint64, error) {
	sealed, err := s.BoltStore.Get(key)
	switch {
	case err != nil:
		return 0, err
	case len(sealed) == 8:
		return binary.BigEndian.Uint64(sealed), nil
	case len(sealed) != 8+checksumSize:
		return 0, fmt.Errorf("%w: %s is %d bytes long", ErrCorrupt, key, len(sealed))
	}
	return binary.BigEndian.Uint64(sealed), checkStable(key, sealed[:8], sealed[8:])
}

func checkStable(key, value, sum []byte) error {
	if binary.BigEndian.Uint32(sum) != stableSum(key, value) {
		return fmt.Errorf("%w: %s does not match its checksum", ErrCorrupt, key)
	}
	return nil
}

func stableSum(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
}

// As hashicorp/raft and raft-boltdb name them.
var (
	logBucket, stableBucket = []byte("logs"), []byte("conf")

	keyTerm, keyVoteTerm, keyVote = []byte("CurrentTerm"), []byte("LastVoteTerm"), []byte("LastVoteCand")
)

// verifyStable proves term and vote, where there are any.
func (s raftStore) verifyStable() error {
	_, term := s.GetUint64(keyTerm)
	_, voteTerm := s.GetUint64(keyVoteTerm)
	_, vote := s.Get(keyVote)
	for _, err := range []error{term, voteTerm, vote} {
		if err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
			return err
		}
	}
	return nil
}
