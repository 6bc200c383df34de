package store

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/stretchr/testify/require"

	"github.com/bourse-dev/bourse/fsm"
)

func diskOptions(dir string) DiskOptions {
	return DiskOptions{Dir: dir, NodeID: "n1", RetainSnapshots: 2, Logger: hclog.NewNullLogger()}
}

// filledDisk is a closed directory with a snapshot at index 5 and log entries 1 to 20.
func filledDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	d, err := OpenDisk(diskOptions(dir))
	require.NoError(t, err)
	entry, err := fsm.EncodeEntry(&fsm.Entry{Time: 1, Txns: []fsm.Txn{{Writes: []fsm.Write{{Key: "a/b", Body: make([]byte, 3000)}}}}})
	require.NoError(t, err)
	for i := range uint64(20) {
		require.NoError(t, d.Logs().StoreLog(&raft.Log{Index: i + 1, Term: 1, Type: raft.LogCommand, Data: entry}))
	}
	outcome, err := fsm.New().Apply(entry)
	require.NoError(t, err)
	conf := raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: "a:1"}}}
	_, trans := raft.NewInmemTransport("a:1")
	sink, err := d.Snapshots().Create(1, 5, 1, conf, 1, trans)
	require.NoError(t, err)
	require.NoError(t, fsm.WriteSnapshot(sink, outcome.State))
	require.NoError(t, sink.Close())
	require.NoError(t, d.SetCluster("c1", "n1", "", false))
	require.NoError(t, d.Close())
	return dir
}

// contents of every file of the directory.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		files[path] = string(data)
		return err
	}))
	return files
}

func find(t *testing.T, dir, name string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, name))
	require.NoError(t, err)
	require.Len(t, paths, 1)
	return paths[0]
}

func TestADirectoryComesBackAsItWas(t *testing.T) {
	t.Parallel()
	dir := filledDisk(t)
	d, err := OpenDisk(diskOptions(dir))
	require.NoError(t, err)
	state, index := d.State()
	require.Equal(t, uint64(5), index)
	require.NotNil(t, state.Row("a/b"))
	last, err := d.Logs().LastIndex()
	require.NoError(t, err)
	require.Equal(t, uint64(20), last)
	require.Positive(t, d.LogBytes())
	require.Positive(t, d.SnapshotBytes())
	id := d.Identity()
	require.NoError(t, d.SetCluster("c1", "n1", "", false))
	require.NoError(t, d.Close())

	d, err = OpenDisk(diskOptions(dir))
	require.NoError(t, err)
	require.Equal(t, id.UUID, d.Identity().UUID)
	require.Equal(t, "c1", d.Identity().ClusterID)
	require.NoError(t, d.Close())
}

func TestASecondProcessIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, err := OpenDisk(diskOptions(dir))
	require.NoError(t, err)
	_, err = OpenDisk(diskOptions(dir)) // flock holds between open files, so between processes too
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, d.Close())
	d, err = OpenDisk(diskOptions(dir))
	require.NoError(t, err)
	require.NoError(t, d.Close())
}

func TestADamagedDirectoryIsRefusedNamesTheFileAndChangesNothing(t *testing.T) {
	t.Parallel()
	rewrite := func(name string, change func([]byte) []byte) func(*testing.T, string) string {
		return func(t *testing.T, dir string) string {
			path := find(t, dir, name)
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, change(data), 0o600))
			return path
		}
	}
	for name, c := range map[string]struct {
		damage func(*testing.T, string) string
		nodeID string
		want   error
	}{
		"a flipped bit in a log entry": {rewrite("raft.db", func(b []byte) []byte {
			b[len(b)/2] ^= 0x10 // the second half of 3,000 zero bytes of some entry, most likely
			for i := len(b) / 3; i < len(b); i += 512 {
				b[i] ^= 0x10
			}
			return b
		}), "n1", ErrCorrupt},
		"a flipped bit in a log entry before the snapshot": {func(t *testing.T, dir string) string {
			path := find(t, dir, "raft.db")
			log, err := raftboltdb.NewBoltStore(path)
			require.NoError(t, err)
			var entry raft.Log
			require.NoError(t, log.GetLog(3, &entry))
			entry.Data[len(entry.Data)/2] ^= 1
			require.NoError(t, log.StoreLog(&entry))
			require.NoError(t, log.Close())
			return path
		}, "n1", ErrCorrupt},
		"a log cut short":           {rewrite("raft.db", func(b []byte) []byte { return b[:len(b)/2] }), "n1", ErrCorrupt},
		"a log of noise":            {rewrite("raft.db", func(b []byte) []byte { clear(b); return b }), "n1", ErrCorrupt},
		"a flipped bit in snapshot": {rewrite("snapshots/*/state.bin", func(b []byte) []byte { b[len(b)/2] ^= 1; return b }), "n1", ErrCorrupt},
		"a snapshot cut short":      {rewrite("snapshots/*/state.bin", func(b []byte) []byte { return b[:len(b)-1] }), "n1", ErrCorrupt},
		"members of a snapshot changed": {rewrite("snapshots/*/meta.json", func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"n1"`), []byte(`"n3"`), 1)
		}), "n1", ErrCorrupt},
		"index of a snapshot changed": {func(t *testing.T, dir string) string { // by a version that wrote no checksum of it
			require.NoError(t, os.Remove(find(t, dir, "snapshots/*/meta.crc")))
			return rewrite("snapshots/*/meta.json", func(b []byte) []byte {
				return bytes.Replace(b, []byte(`"Index":5`), []byte(`"Index":4`), 1)
			})(t, dir)
		}, "n1", ErrCorrupt},
		"snapshot metadata garbled": {rewrite("snapshots/*/meta.json", func(b []byte) []byte { return b[1:] }), "n1", ErrCorrupt},
		"an identity garbled":       {rewrite("identity.json", func(b []byte) []byte { return b[1:] }), "n1", ErrCorrupt},
		"a log emptied":             {rewrite("raft.db", func([]byte) []byte { return nil }), "n1", ErrCorrupt},
		"a log missing": {func(t *testing.T, dir string) string {
			path := find(t, dir, "raft.db")
			require.NoError(t, os.Remove(path))
			return path
		}, "n1", ErrCorrupt},
		"another node's directory": {rewrite("identity.json", func(b []byte) []byte { return b }), "n2", ErrIdentity},
		"an identity missing": {func(t *testing.T, dir string) string {
			path := find(t, dir, "identity.json")
			require.NoError(t, os.Remove(path))
			return path
		}, "n1", ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filledDisk(t)
			path := c.damage(t, dir)
			before := contents(t, dir)
			o := diskOptions(dir)
			o.NodeID = c.nodeID
			_, err := OpenDisk(o)
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, path)
			require.Equal(t, before, contents(t, dir), "nothing may change")
		})
	}
}

func TestWhatACrashLeavesHalfWrittenIsRecovered(t *testing.T) {
	t.Parallel()
	dir := filledDisk(t)
	half := filepath.Join(dir, snapshotDir, "9-99-1"+tmpSuffix)
	require.NoError(t, os.Mkdir(half, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(half, "state.bin"), []byte("half"), 0o600))
	// bbolt appends pages, syncs, and only then writes the page that names them: a crash before
	// leaves pages that nothing names.
	f, err := os.OpenFile(filepath.Join(dir, logFile), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.Write([]byte("torn tail"))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	d, err := OpenDisk(diskOptions(dir))
	require.NoError(t, err)
	require.NoDirExists(t, half)
	last, err := d.Logs().LastIndex()
	require.NoError(t, err)
	require.Equal(t, uint64(20), last)
	require.NoError(t, d.Close())
}
