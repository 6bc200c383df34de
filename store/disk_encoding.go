package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/raft"
)

func indexKey(index uint64) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 0, indexSize), index)
}

func indexOf(key []byte) uint64 { return binary.BigEndian.Uint64(key) }

// checksumOf covers all of an entry that Raft relies on.
func checksumOf(l *raft.Log) []byte {
	var head [17]byte
	binary.BigEndian.PutUint64(head[:], l.Index)
	binary.BigEndian.PutUint64(head[8:], l.Term)
	head[16] = byte(l.Type)
	sum := crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, l.Data)
	return binary.BigEndian.AppendUint32(nil, sum)
}

func encodeLog(l *raft.Log) ([]byte, error) {
	const namesAndTimes = 128
	sealed := *l
	sealed.Extensions = checksumOf(l)
	value := make([]byte, 0, len(l.Data)+namesAndTimes)
	err := codec.NewEncoderBytes(&value, writeHandle).Encode(&sealed)
	return value, err
}

// decodeLog copies: value belongs to a transaction.
func decodeLog(index uint64, value []byte, l *raft.Log) error {
	*l = raft.Log{} // msgpack leaves alone what the value does not name, and would write into the old Data
	if err := codec.NewDecoderBytes(value, readHandle).Decode(l); err != nil {
		return err
	}
	if l.Index != index {
		return fmt.Errorf("says index %d", l.Index)
	}
	if len(l.Extensions) > 0 && string(l.Extensions) != string(checksumOf(l)) {
		return errChecksum
	}
	l.Extensions = nil
	return nil
}

var errChecksum = errors.New("does not match its checksum")

func openValue(key, sealed []byte) ([]byte, error) {
	at := len(sealed) - checksumSize
	if at < 1 || sealed[at-1] != 0 {
		return sealed, nil
	}
	return sealed[:at-1], checkStable(key, sealed[:at-1], sealed[at:])
}

func openUint64(key, sealed []byte) (uint64, error) {
	switch len(sealed) {
	case 8:
		return binary.BigEndian.Uint64(sealed), nil
	case 8 + checksumSize:
		return binary.BigEndian.Uint64(sealed), checkStable(key, sealed[:8], sealed[8:])
	default:
		return 0, fmt.Errorf("%w: %s is %d bytes long", ErrCorrupt, key, len(sealed))
	}
}

func checkStable(key, value, sum []byte) error {
	if binary.BigEndian.Uint32(sum) != stableSum(key, value) {
		return fmt.Errorf("%w: %s %w", ErrCorrupt, key, errChecksum)
	}
	return nil
}

func stableSum(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
}
