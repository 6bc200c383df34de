package store

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/bourse-dev/bourse/fsm"
)

// addSnapshot of an empty state at an index.
func addSnapshot(t *testing.T, d *Disk, index uint64, before func(dir string)) {
	t.Helper()
	_, trans := raft.NewInmemTransport("a:1")
	sink, err := d.Snapshots().Create(1, index, 1, raft.Configuration{}, 1, trans)
	require.NoError(t, err)
	require.NoError(t, fsm.WriteSnapshot(sink, fsm.New()))
	if before != nil {
		before(filepath.Join(d.dir, snapshotDir, sink.ID()+tmpSuffix))
	}
	require.NoError(t, sink.Close())
}

// os.RemoveAll, with which raft removes old snapshots, may be killed in the middle.
func TestASnapshotHalfRemovedIsNoDamageUnlessItIsTheNewest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		snapshot, gone string
		removed        bool
		want           error
	}{
		{"1-5-*", snapshotMetaFile, true, nil},
		{"1-5-*", snapshotStateFile, false, nil},
		{"1-5-*", snapshotSumFile, false, nil},
		{"1-9-*", snapshotMetaFile, false, ErrCorrupt},
		{"1-9-*", snapshotStateFile, false, ErrCorrupt},
	} {
		t.Run(c.snapshot+" without "+c.gone, func(t *testing.T) {
			t.Parallel()
			dir := filledDisk(t, segmentFormat)
			d, err := OpenDisk(diskOptions(dir))
			require.NoError(t, err)
			addSnapshot(t, d, 9, nil)
			require.NoError(t, d.Close())
			path := find(t, dir, filepath.Join(snapshotDir, c.snapshot))
			require.NoError(t, os.Remove(filepath.Join(path, c.gone)))
			d, err = OpenDisk(diskOptions(dir))
			require.ErrorIs(t, err, c.want)
			if c.want != nil {
				require.ErrorContains(t, err, filepath.Join(path, c.gone))
				return
			}
			_, index := d.State()
			require.Equal(t, uint64(9), index)
			require.NoError(t, d.Close())
			if c.removed {
				require.NoDirExists(t, path)
			} else {
				require.DirExists(t, path)
			}
		})
	}
}

// A log is made in several steps: bbolt makes the file and we make the buckets, or a directory and its first segment.
func TestALogHalfMadeIsNewUnlessTheNodeIsOfAnExchange(t *testing.T) {
	t.Parallel()
	eachFormat(t, func(t *testing.T, format int) {
		for clusterID, want := range map[string]error{"": nil, "c1": ErrCorrupt} {
			dir := newDir(t, format)
			d, err := OpenDisk(diskOptions(dir))
			require.NoError(t, err)
			require.NoError(t, d.SetCluster(clusterID, "", "", false))
			require.NoError(t, d.Close())
			path := filepath.Join(dir, logs[format])
			require.NoError(t, os.Remove(path))
			if format == boltFormat {
				db, err := bbolt.Open(path, 0o600, nil)
				require.NoError(t, err)
				require.NoError(t, db.Close())
			} else {
				path = filepath.Join(dir, segmentDir, "next"+segmentSuffix)
				require.NoError(t, os.WriteFile(path+tmpSuffix, []byte("half"), 0o600))
			}
			d, err = OpenDisk(diskOptions(dir))
			require.ErrorIs(t, err, want)
			if want == nil {
				require.NoError(t, d.Logs().StoreLog(&raft.Log{Index: 1, Term: 1, Type: raft.LogNoop}))
				require.NoError(t, d.Close())
				require.NoFileExists(t, path+tmpSuffix)
			}
		}
	})
}

// Raft has the snapshot, and removed others for it: it must not take it for failed.
func TestASnapshotWhoseChecksumCannotBeWrittenIsTaken(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	o := diskOptions(t.TempDir())
	o.Logger = hclog.New(&hclog.LoggerOptions{Output: &log})
	d, err := OpenDisk(o)
	require.NoError(t, err)
	addSnapshot(t, d, 9, func(dir string) {
		require.NoError(t, os.Mkdir(filepath.Join(dir, snapshotSumFile+".tmp"), 0o700)) // in the way of the file
	})
	require.NoError(t, d.Close())
	require.Contains(t, log.String(), "snapshot metadata has no checksum")
	d, err = OpenDisk(o)
	require.NoError(t, err)
	_, index := d.State()
	require.Equal(t, uint64(9), index)
	require.NoError(t, d.Close())
}
