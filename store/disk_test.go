package store

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/stretchr/testify/require"

	"github.com/bourse-dev/bourse/fsm"
)

func diskOptions(dir string) DiskOptions {
	return DiskOptions{Dir: dir, NodeID: "n1", RetainSnapshots: 2, Logger: hclog.NewNullLogger()}
}

// logs are the formats of a directory, each with the file that is its log.
var logs = map[int]string{boltFormat: logFile, segmentFormat: filepath.Join(segmentDir, "0000000000000001.log")}

// eachFormat runs a test on both.
func eachFormat(t *testing.T, test func(t *testing.T, format int)) {
	t.Helper()
	for format, log := range logs {
		t.Run(filepath.Dir(log)+"/"+filepath.Base(log), func(t *testing.T) {
			t.Parallel()
			test(t, format)
		})
	}
}

// newDir is a directory in which nothing is yet but whose it is, and so the format.
func newDir(t *testing.T, format int) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, writeIdentity(dir, Identity{Format: format, NodeID: "n1", UUID: uuid.NewString()}))
	return dir
}

// filledDisk is a closed directory with a snapshot at index 5 and log entries 1 to 20.
func filledDisk(t *testing.T, format int) string {
	t.Helper()
	dir := newDir(t, format)
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
	eachFormat(t, func(t *testing.T, format int) {
		dir := filledDisk(t, format)
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
	})
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

// damage does something to a directory, and says what OpenDisk must name.
type damage func(t *testing.T, dir string) (path string)

func rewritten(name string, change func([]byte) []byte) damage {
	return func(t *testing.T, dir string) string {
		path := find(t, dir, name)
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, change(data), 0o600))
		return path
	}
}

func removed(name string) damage {
	return func(t *testing.T, dir string) string {
		path := find(t, dir, name)
		require.NoError(t, os.RemoveAll(path))
		return path
	}
}

// logDamage is that of one format.
var logDamage = map[int]map[string]damage{
	boltFormat: {
		"flipped bits all over the log": rewritten(logFile, func(b []byte) []byte {
			b[len(b)/2] ^= 0x10 // the second half of 3,000 zero bytes of some entry, most likely
			for i := len(b) / 3; i < len(b); i += 512 {
				b[i] ^= 0x10
			}
			return b
		}),
		"a flipped bit in a log entry before the snapshot": func(t *testing.T, dir string) string {
			path := find(t, dir, logFile)
			log, err := raftboltdb.NewBoltStore(path)
			require.NoError(t, err)
			var entry raft.Log
			require.NoError(t, log.GetLog(3, &entry))
			entry.Data[len(entry.Data)/2] ^= 1
			require.NoError(t, log.StoreLog(&entry))
			require.NoError(t, log.Close())
			return path
		},
		"a log missing": removed(logFile),
	},
	segmentFormat: {
		"a flipped bit in a log entry":       rewritten(logs[segmentFormat], flipped(9*sectorSize)),
		"a flipped bit where nothing is yet": rewritten(logs[segmentFormat], flipped(900*sectorSize)),
		"a log missing":                      removed(segmentDir),
		"a segment missing": func(t *testing.T, dir string) string {
			return filepath.Dir(removed(logs[segmentFormat])(t, dir))
		},
		"an identity of before": func(t *testing.T, dir string) string {
			id := identityOf(t, dir)
			id.Format = boltFormat
			require.NoError(t, writeIdentity(dir, id))
			return filepath.Join(dir, segmentDir)
		},
	},
}

func flipped(at int) func([]byte) []byte {
	return func(b []byte) []byte { b[at] ^= 4; return b }
}

func TestADamagedDirectoryIsRefusedNamesTheFileAndChangesNothing(t *testing.T) {
	t.Parallel()
	eachFormat(t, func(t *testing.T, format int) {
		log := logs[format]
		kinds := map[string]damage{
			"a log cut short":           rewritten(log, func(b []byte) []byte { return b[:len(b)/2] }),
			"a log of noise":            rewritten(log, func(b []byte) []byte { clear(b); return b }),
			"a log emptied":             rewritten(log, func([]byte) []byte { return nil }),
			"a flipped bit in snapshot": rewritten("snapshots/*/state.bin", func(b []byte) []byte { b[len(b)/2] ^= 1; return b }),
			"a snapshot cut short":      rewritten("snapshots/*/state.bin", func(b []byte) []byte { return b[:len(b)-1] }),
			"members of a snapshot changed": rewritten("snapshots/*/meta.json", func(b []byte) []byte {
				return bytes.Replace(b, []byte(`"n1"`), []byte(`"n3"`), 1)
			}),
			"index of a snapshot changed": func(t *testing.T, dir string) string { // by a version that wrote no checksum of it
				removed("snapshots/*/meta.crc")(t, dir)
				return rewritten("snapshots/*/meta.json", func(b []byte) []byte {
					return bytes.Replace(b, []byte(`"Index":5`), []byte(`"Index":4`), 1)
				})(t, dir)
			},
			"snapshot metadata garbled": rewritten("snapshots/*/meta.json", func(b []byte) []byte { return b[1:] }),
			"an identity garbled":       rewritten(IdentityFile, func(b []byte) []byte { return b[1:] }),
			"an identity missing":       removed(IdentityFile),
		}
		maps.Copy(kinds, logDamage[format])
		for name, damage := range kinds {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				dir := filledDisk(t, format)
				requireRefused(t, diskOptions(dir), ErrCorrupt, damage(t, dir))
			})
		}
		t.Run("another node's directory", func(t *testing.T) {
			t.Parallel()
			o := diskOptions(filledDisk(t, format))
			o.NodeID = "n2"
			requireRefused(t, o, ErrIdentity, filepath.Join(o.Dir, IdentityFile))
		})
	})
}

func requireRefused(t *testing.T, o DiskOptions, want error, path string) {
	t.Helper()
	before := contents(t, o.Dir)
	_, err := OpenDisk(o)
	require.ErrorIs(t, err, want)
	require.ErrorContains(t, err, path)
	require.Equal(t, before, contents(t, o.Dir), "nothing may change")
}

func TestWhatACrashLeavesHalfWrittenIsRecovered(t *testing.T) {
	t.Parallel()
	eachFormat(t, func(t *testing.T, format int) {
		dir := filledDisk(t, format)
		half := filepath.Join(dir, snapshotDir, "9-99-1"+tmpSuffix)
		require.NoError(t, os.Mkdir(half, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(half, "state.bin"), []byte("half"), 0o600))
		// bbolt appends pages, syncs, and only then writes the page that names them: a crash before
		// leaves pages that nothing names. Nothing is ever read behind the end of a segment.
		f, err := os.OpenFile(filepath.Join(dir, logs[format]), os.O_APPEND|os.O_WRONLY, 0)
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
	})
}
