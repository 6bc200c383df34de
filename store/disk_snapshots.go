package store

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// snapshotSumFile holds the CRC-32C of meta.json, in hexadecimal: index, term and members lie there
// without one. It is written last; a snapshot without it is of an older version, or a crash came between.
const snapshotSumFile = "meta.crc"

// snapshotStore is raft's, with a checksum of the metadata.
type snapshotStore struct {
	*raft.FileSnapshotStore
	dir    string
	logger hclog.Logger
}

// Create implements raft.SnapshotStore.
func (s snapshotStore) Create(version raft.SnapshotVersion, index, term uint64, members raft.Configuration,
	membersIndex uint64, trans raft.Transport,
) (raft.SnapshotSink, error) {
	sink, err := s.FileSnapshotStore.Create(version, index, term, members, membersIndex, trans)
	if err != nil {
		return nil, err
	}
	return &snapshotSink{SnapshotSink: sink, dir: filepath.Join(s.dir, sink.ID()), logger: s.logger}, nil
}

// newest is the index of the newest snapshot, 0 where there is none.
func (s snapshotStore) newest() (uint64, error) {
	list, err := s.List()
	if err != nil || len(list) == 0 {
		return 0, err
	}
	return list[0].Index, nil
}

type snapshotSink struct {
	raft.SnapshotSink
	dir    string
	logger hclog.Logger
}

// Close implements raft.SnapshotSink. The snapshot is durable, and may have replaced others, as soon as raft's
// own Close returns: without its checksum it is worth as much as an older version's.
func (s *snapshotSink) Close() error {
	if err := s.SnapshotSink.Close(); err != nil {
		return err
	}
	if err := s.sealMeta(); err != nil {
		s.logger.Warn("snapshot metadata has no checksum", "dir", s.dir, "error", err)
	}
	return nil
}

func (s *snapshotSink) sealMeta() error {
	meta, err := os.ReadFile(filepath.Join(s.dir, snapshotMetaFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a later snapshot has replaced it already
	}
	if err != nil {
		return err
	}
	return writeFileAtomic(filepath.Join(s.dir, snapshotSumFile), []byte(metaSum(meta)))
}

func metaSum(meta []byte) string {
	return fmt.Sprintf("%08x", crc32.Checksum(meta, castagnoli))
}
