package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/stretchr/testify/require"

	"github.com/bourse-dev/bourse/fsm"
)

// votedDisk is a directory with a log of bbolt: so many entries, a term and a vote.
func votedDisk(t *testing.T, entries uint64) string {
	t.Helper()
	dir := newDir(t, boltFormat)
	d, err := OpenDisk(diskOptions(dir))
	require.NoError(t, err)
	entry, err := fsm.EncodeEntry(&fsm.Entry{Time: 1, Txns: []fsm.Txn{{Writes: []fsm.Write{{Key: "a/b", Body: []byte("{}")}}}}})
	require.NoError(t, err)
	var logs []*raft.Log
	for i := range entries {
		logs = append(logs, &raft.Log{Index: i + 1, Term: 1 + i/3, Type: raft.LogCommand, Data: entry})
	}
	require.NoError(t, d.Logs().StoreLogs(logs))
	require.NoError(t, d.Stable().SetUint64(keyTerm, 2))
	require.NoError(t, d.Stable().SetUint64(keyVoteTerm, 2))
	require.NoError(t, d.Stable().Set(keyVote, []byte("n1")))
	require.NoError(t, d.SetCluster("c1", "n1", "", false))
	require.NoError(t, d.Close())
	return dir
}

// raftReads is all that Raft would be told by the directory; the error is that of OpenDisk or of a read.
func raftReads(dir string) (read string, err error) {
	d, err := OpenDisk(diskOptions(dir))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return storeReads(d.Logs(), d.Stable())
}

func storeReads(logs raft.LogStore, stable raft.StableStore) (read string, err error) {
	first, err := logs.FirstIndex()
	if err != nil {
		return "", err
	}
	last, err := logs.LastIndex()
	if err != nil {
		return "", err
	}
	read = fmt.Sprintln(first, last)
	for i := first; i <= last; i++ {
		var l raft.Log
		if err := logs.GetLog(i, &l); err != nil {
			return "", err
		}
		read += fmt.Sprintln(l.Index, l.Term, l.Type, string(l.Data), string(l.Extensions))
	}
	for _, key := range [][]byte{keyTerm, keyVoteTerm} {
		value, err := stable.GetUint64(key)
		if err != nil && !errors.Is(err, errNotFound) {
			return "", err
		}
		read += fmt.Sprintln(string(key), value, err)
	}
	vote, err := stable.Get(keyVote)
	if err != nil && !errors.Is(err, errNotFound) {
		return "", err
	}
	return read + fmt.Sprintln(string(vote), err), nil
}

// Raft skips an entry of another type, and takes one of another term for another.
func TestAnEntryOfAnotherTermOrTypeIsFound(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*raft.Log){
		"term": func(l *raft.Log) { l.Term = 7 },
		"type": func(l *raft.Log) { l.Type = raft.LogNoop },
		"data": func(l *raft.Log) { l.Data = append([]byte(nil), l.Data[1:]...) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := votedDisk(t, 3)
			bolt, err := raftboltdb.NewBoltStore(filepath.Join(dir, logFile))
			require.NoError(t, err)
			var l raft.Log
			require.NoError(t, bolt.GetLog(2, &l))
			change(&l)
			require.NoError(t, bolt.StoreLog(&l))
			require.NoError(t, bolt.Close())
			_, err = OpenDisk(diskOptions(dir))
			require.ErrorIs(t, err, ErrCorrupt)
			require.ErrorContains(t, err, "entry 2")
		})
	}
}

func TestADirectoryOfAVersionWithoutChecksumsIsTaken(t *testing.T) {
	t.Parallel()
	dir := votedDisk(t, 3)
	bolt, err := raftboltdb.NewBoltStore(filepath.Join(dir, logFile))
	require.NoError(t, err)
	var l raft.Log
	require.NoError(t, bolt.GetLog(2, &l))
	l.Extensions = nil
	require.NoError(t, bolt.StoreLog(&l))
	require.NoError(t, bolt.SetUint64(keyTerm, 2))
	require.NoError(t, bolt.SetUint64(keyVoteTerm, 2))
	require.NoError(t, bolt.Set(keyVote, []byte("n1")))
	require.NoError(t, bolt.Close())
	read, err := raftReads(dir)
	require.NoError(t, err)
	require.Contains(t, read, "CurrentTerm 2 <nil>\nLastVoteTerm 2 <nil>\nn1 <nil>\n")
}
