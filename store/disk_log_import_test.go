package store

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
)

// oldDisk is a directory whose log bbolt has written, and what Raft was told of it. It went through all that a log does.
func oldDisk(t *testing.T) (dir, want string) {
	t.Helper()
	dir = logHistory{single: 30, batched: 4, replaced: 10, removed: 10, size: 900}.dir(t)
	want, err := raftReads(dir)
	require.NoError(t, err)
	return dir, want
}

func importerOf(dir string) *importer {
	return &importer{dir: dir, sectors: smallSegment, step: func(string) error { return nil }}
}

func identityOf(t *testing.T, dir string) (id Identity) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, IdentityFile))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &id))
	return id
}

// requireTakenOver reads what raftReads read.
func requireTakenOver(t *testing.T, dir, want string) {
	t.Helper()
	require.NoFileExists(t, filepath.Join(dir, logFile))
	require.Equal(t, segmentFormat, identityOf(t, dir).Format)
	d, err := openLog(filepath.Join(dir, segmentDir), smallSegment)
	require.NoError(t, err)
	got, err := storeReads(d, d)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.NoError(t, d.Close())
}

func TestALogOfBboltIsTakenOver(t *testing.T) {
	t.Parallel()
	dir, want := oldDisk(t)
	require.NoError(t, importerOf(dir).run(identityOf(t, dir)))
	requireTakenOver(t, dir, want)
	require.NoError(t, importerOf(dir).run(identityOf(t, dir)), "a second time")
	requireTakenOver(t, dir, want)
}

// A full disk must not stop a node that is sound: until the format is raised it goes on with raft.db.
func TestANodeGoesOnWithBboltWhereTakingOverFails(t *testing.T) {
	t.Parallel()
	old, want := oldDisk(t)
	for step, goesOn := range map[string]bool{
		"remove leftovers": true, "create": true, "sync append": true, "raise the format": true,
		"name the log": false, "remove raft.db": false,
	} {
		dir := copyOf(t, old)
		id := identityOf(t, dir)
		log, err := proveLog(dir, id, 11)
		require.NoError(t, err)
		log.takeOver = true
		log.step = func(what string) error {
			if what == step {
				return errPlanned
			}
			return nil
		}
		var warned bytes.Buffer
		store, id, err := log.open(id, &snapshotStore{logger: hclog.New(&hclog.LoggerOptions{Output: &warned})})
		if !goesOn {
			require.ErrorIs(t, err, errPlanned, step)
			require.Equal(t, segmentFormat, identityOf(t, dir).Format)
			continue
		}
		require.NoError(t, err, step)
		require.Contains(t, warned.String(), errPlanned.Error())
		require.NoDirExists(t, filepath.Join(dir, segmentDir+tmpSuffix))
		require.Equal(t, []int{boltFormat, boltFormat}, []int{id.Format, identityOf(t, dir).Format})
		got, err := storeReads(store, store)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.NoError(t, store.Close())
	}
}

// Wherever it stops, one of the two logs is whole, a build that knows raft.db only goes on with it or refuses, and the
// next start ends what was begun.
func TestTakingOverMayBeKilledAtAnyStep(t *testing.T) {
	t.Parallel()
	dir, want := oldDisk(t)
	seen := map[string]bool{}
	for step := 1; ; step++ {
		crashed := copyOf(t, dir)
		at, n := "", 0
		i := importerOf(crashed)
		i.step = func(what string) error {
			if n++; n < step {
				return nil
			}
			at = what
			return errPlanned
		}
		id := identityOf(t, crashed)
		err := i.run(id)
		if at == "" {
			require.NoError(t, err)
			break
		}
		require.ErrorIs(t, err, errPlanned)
		seen[at] = true
		_, statErr := os.Stat(filepath.Join(crashed, segmentDir))
		if identityOf(t, crashed).Format == boltFormat {
			require.ErrorIs(t, statErr, os.ErrNotExist)
			got, err := raftReads(crashed)
			require.NoError(t, err, at)
			require.Equal(t, want, got)
		} else if statErr != nil {
			require.FileExists(t, filepath.Join(crashed, logFile), at)
		}
		require.NoError(t, importerOf(crashed).run(identityOf(t, crashed)), at)
		requireTakenOver(t, crashed, want)
	}
	for _, step := range []string{"remove leftovers", "create", "sync append", "raise the format", "name the log", "remove raft.db"} {
		require.True(t, seen[step], step)
	}
}
