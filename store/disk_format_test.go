package store

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/bourse-dev/bourse/fsm"
)

func segmentOptions(dir string) DiskOptions {
	o := diskOptions(dir)
	o.SegmentLog = true
	return o
}

// segmentDisk is a member's directory with three entries and a vote in segments.
func segmentDisk(t *testing.T) (dir, want string) {
	t.Helper()
	dir = t.TempDir()
	d, err := OpenDisk(segmentOptions(dir))
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

func TestADamagedDirectoryOfSegmentsIsRefusedAndNothingChanges(t *testing.T) {
	t.Parallel()
	only := filepath.Join(segmentDir, "0000000000000001.log")
	flip := func(at int) func(dir string) error {
		return func(dir string) error {
			b, err := os.ReadFile(filepath.Join(dir, only))
			if err != nil {
				return err
			}
			b[at] ^= 4
			return os.WriteFile(filepath.Join(dir, only), b, 0o600)
		}
	}
	for name, c := range map[string]struct {
		path   string
		damage func(dir string) error
	}{
		"a flipped bit in an entry":          {only, flip(3 * sectorSize)},
		"a flipped bit where nothing is yet": {only, flip(900 * sectorSize)},
		"a segment missing":                  {segmentDir, func(dir string) error { return os.Remove(filepath.Join(dir, only)) }},
		"the log missing":                    {segmentDir, func(dir string) error { return os.RemoveAll(filepath.Join(dir, segmentDir)) }},
		"the log cut short":                  {only, func(dir string) error { return os.Truncate(filepath.Join(dir, only), 1<<20) }},
		"an identity missing":                {IdentityFile, func(dir string) error { return os.Remove(filepath.Join(dir, IdentityFile)) }},
		"an identity of before": {segmentDir, func(dir string) error {
			return writeIdentity(dir, Identity{Format: identityFormat, NodeID: "n1", UUID: "7b0c4a0e-5d0f-4b5e-9d5c-0a0f6f6d1c11"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, _ := segmentDisk(t)
			require.NoError(t, c.damage(dir))
			before := contents(t, dir)
			_, err := OpenDisk(segmentOptions(dir))
			require.ErrorIs(t, err, ErrCorrupt)
			require.ErrorContains(t, err, filepath.Join(dir, c.path))
			require.Equal(t, before, contents(t, dir), "nothing may change")
		})
	}
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

		read, err := raftReads(dir)
		require.NoError(t, err)
		require.Equal(t, want, read, "nobody asked for it")
		d, err = OpenDisk(segmentOptions(dir))
		require.NoError(t, err)
		require.NoError(t, d.SetCluster("c2", "n1", "", false))
		read, err = storeReads(d.Logs(), d.Stable())
		require.NoError(t, err)
		require.Equal(t, want, read)
		require.NoError(t, d.Close())
		if taken {
			require.Equal(t, segmentFormat, identityOf(t, dir).Format)
			require.NoFileExists(t, filepath.Join(dir, logFile))
		} else {
			require.Equal(t, identityFormat, identityOf(t, dir).Format)
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
			d, err := OpenDisk(diskOptions(dir))
			require.NoError(t, err)
			require.NoError(t, d.Logs().StoreLog(c.entry))
			require.NoError(t, d.Close())
			_, err = raftReads(dir)
			require.ErrorIs(t, err, c.want)
		})
	}
}
