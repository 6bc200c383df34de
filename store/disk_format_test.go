package store

import (
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/bourse-dev/bourse/fsm"
)

// segmentDisk is a member's directory with three entries and a vote in segments.
func segmentDisk(t *testing.T) (dir, want string) {
	t.Helper()
	dir = t.TempDir()
	d, err := OpenDisk(diskOptions(dir))
	require.NoError(t, err)
	for i := range uint64(3) {
		require.NoError(t, d.Logs().StoreLog(&raft.Log{Index: i + 1, Term: 1, Type: raft.LogCommand, Data: command(t, 700)}))
	}
	require.NoError(t, d.Stable().SetUint64(keyTerm, 2))
	require.NoError(t, d.Stable().Set(keyVote, []byte("n1")))
	require.NoError(t, d.SetCluster("c1", "n1", "", false))
	require.EqualValues(t, segmentSectors*sectorSize, d.LogBytes())
	require.NoError(t, d.Close())
	want, err = raftReads(dir)
	require.NoError(t, err)
	return dir, want
}

func TestANewDirectoryHasItsLogInSegments(t *testing.T) {
	t.Parallel()
	dir, want := segmentDisk(t)
	require.Contains(t, want, "1 3\n")
	require.Contains(t, want, "CurrentTerm 2 <nil>\n")
	require.Equal(t, segmentFormat, identityOf(t, dir).Format, "which builds that know raft.db only refuse")
	require.NoFileExists(t, filepath.Join(dir, logFile))
}

// A member may be given back to an older build until all have the new behaviour; then older builds are not let in.
func TestALogIsTakenOverOnceNoOlderBuildComesBack(t *testing.T) {
	t.Parallel()
	for behaviour, taken := range map[uint32]bool{segmentBehaviour - 1: false, segmentBehaviour: true} {
		dir, want := oldDisk(t)
		d, err := OpenDisk(diskOptions(dir))
		require.NoError(t, err)
		entry, err := fsm.EncodeEntry(&fsm.Entry{Time: 1, Behaviour: behaviour})
		require.NoError(t, err)
		outcome, err := fsm.New().Apply(entry)
		require.NoError(t, err)
		_, trans := raft.NewInmemTransport("a:1")
		sink, err := d.Snapshots().Create(1, 12, 1, raft.Configuration{}, 1, trans)
		require.NoError(t, err)
		require.NoError(t, fsm.WriteSnapshot(sink, outcome.State))
		require.NoError(t, sink.Close())
		require.NoError(t, d.Close())

		d, err = OpenDisk(diskOptions(dir))
		require.NoError(t, err)
		require.NoError(t, d.SetCluster("c2", "n1", "", false))
		read, err := storeReads(d.Logs(), d.Stable())
		require.NoError(t, err)
		require.Equal(t, want, read)
		require.NoError(t, d.Close())
		if taken {
			require.Equal(t, segmentFormat, identityOf(t, dir).Format)
			require.NoFileExists(t, filepath.Join(dir, logFile))
		} else {
			require.Equal(t, boltFormat, identityOf(t, dir).Format)
			require.NoDirExists(t, filepath.Join(dir, segmentDir))
		}
		read, err = raftReads(dir)
		require.NoError(t, err)
		require.Equal(t, want, read)
	}
}

func TestEntriesInSegmentsContinueTheSnapshotAndAreOfThisVersion(t *testing.T) {
	t.Parallel()
	damaged := command(t, 50)
	damaged[len(damaged)/2] ^= 1
	for name, c := range map[string]struct {
		entry *raft.Log
		want  error
	}{
		"a gap behind the snapshot": {&raft.Log{Index: 9}, ErrCorrupt},
		"of a newer version":        {&raft.Log{Index: 4, Type: raft.LogCommand, Data: []byte("noise")}, fsm.ErrUnknownCommand},
		"a damaged entry":           {&raft.Log{Index: 4, Type: raft.LogCommand, Data: damaged}, ErrCorrupt},
		"the next":                  {&raft.Log{Index: 4, Type: raft.LogNoop}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, _ := segmentDisk(t)
			d, err := openLog(filepath.Join(dir, segmentDir), segmentSectors)
			require.NoError(t, err)
			require.NoError(t, d.StoreLog(c.entry))
			require.NoError(t, d.Close())
			_, err = raftReads(dir)
			require.ErrorIs(t, err, c.want)
		})
	}
}
