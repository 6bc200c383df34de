package store

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

// raftFiles is what raft needs of a store, ours or an older version's.
type raftFiles interface {
	raft.LogStore
	raft.StableStore
}

// olderVersion opens the log as versions before this one do.
func olderVersion(t *testing.T, dir string, noFreelistSync bool) *raftboltdb.BoltStore {
	t.Helper()
	bolt, err := raftboltdb.New(raftboltdb.Options{
		Path:        filepath.Join(dir, logFile),
		BoltOptions: &bbolt.Options{Timeout: time.Second, NoFreelistSync: noFreelistSync, FreelistType: bbolt.FreelistMapType},
	})
	require.NoError(t, err)
	return bolt
}

// walker takes a log through a random life.
type walker struct {
	*rand.Rand
	t           *testing.T
	first, next uint64
	terms       map[uint64]uint64
	term        uint64
}

func (w *walker) step(s raftFiles) {
	switch w.IntN(6) {
	case 0, 1, 2:
		logs := make([]*raft.Log, 1+w.IntN(40))
		for i := range logs {
			size := w.IntN(300)
			if w.IntN(40) == 0 {
				size = w.IntN(100_000)
			}
			w.terms[w.next] = w.term
			logs[i] = &raft.Log{Index: w.next, Term: w.term, Type: raft.LogCommand, Data: command(w.t, size), AppendedAt: time.Now()}
			w.next++
		}
		require.NoError(w.t, s.StoreLogs(logs))
	case 3, 4: // as raft does where a new leader has other entries; it never overwrites without a DeleteRange, but may
		if w.next > w.first {
			from := w.first + w.Uint64N(w.next-w.first)
			if w.IntN(2) == 0 {
				from = w.next - 1
			} else {
				require.NoError(w.t, s.DeleteRange(from, w.next-1))
			}
			w.term++
			w.terms[from] = w.term // ours takes those behind it away only now
			l := &raft.Log{Index: from, Term: w.term, Type: raft.LogCommand, Data: command(w.t, 100), AppendedAt: time.Now()}
			require.NoError(w.t, s.StoreLog(l))
			w.next = from + 1
		}
	default:
		require.NoError(w.t, s.SetUint64(keyTerm, w.Uint64()))
		require.NoError(w.t, s.SetUint64(keyVoteTerm, w.Uint64()))
		require.NoError(w.t, s.Set(keyVote, fmt.Append(nil, "127.0.0.1:", w.IntN(100_000))))
	}
}

// compact as raft does: a snapshot, and the log before it removed but for a few entries.
func (w *walker) compact(d *Disk) {
	if w.next < w.first+2 {
		return
	}
	at := w.first + w.Uint64N(w.next-w.first)
	addSnapshot(w.t, d, at, nil)
	last := w.first + w.Uint64N(at-w.first+1)
	require.NoError(w.t, d.Logs().DeleteRange(w.first, last))
	w.first = last + 1
	w.next = max(w.next, w.first)
}

func (w *walker) check(d *Disk) {
	first, err := d.Logs().FirstIndex()
	require.NoError(w.t, err)
	last, err := d.Logs().LastIndex()
	require.NoError(w.t, err)
	if w.first == w.next {
		require.Zero(w.t, first+last)
		return
	}
	require.Equal(w.t, []uint64{w.first, w.next - 1}, []uint64{first, last})
	for i := first; i <= last; i++ {
		var l raft.Log
		require.NoError(w.t, d.Logs().GetLog(i, &l))
		require.Equal(w.t, w.terms[i], l.Term)
	}
}

// What is not damaged is never refused, whatever happened to the log, and whoever wrote it.
func TestNoHealthyHistoryIsRefused(t *testing.T) {
	t.Parallel()
	for i := range 8 {
		seed, format := rand.Uint64(), segmentFormat-i%2
		t.Run(fmt.Sprintf("format %d, seed %d", format, seed), func(t *testing.T) {
			t.Parallel()
			dir := newDir(t, format)
			w := &walker{Rand: rand.New(rand.NewPCG(seed, 0)), t: t, first: 1, next: 1, term: 1, terms: map[uint64]uint64{}}
			for range 12 {
				d, err := OpenDisk(diskOptions(dir))
				require.NoError(t, err)
				w.check(d)
				for range w.IntN(9) {
					w.step(d.raft)
				}
				if w.IntN(3) == 0 {
					w.compact(d)
				}
				require.NoError(t, d.Close())
				if format == boltFormat && w.IntN(3) == 0 {
					old := olderVersion(t, dir, w.IntN(2) == 0)
					for range w.IntN(5) {
						w.step(old)
					}
					require.NoError(t, old.Close())
				}
			}
		})
	}
}

// Both ways: rolling an exchange forward, and one node of it back.
func TestOlderVersionsReadWhatWeWriteAndTheOtherWayRound(t *testing.T) {
	t.Parallel()
	dir := votedDisk(t, 30)
	old := olderVersion(t, dir, true)
	last, err := old.LastIndex()
	require.NoError(t, err)
	require.Equal(t, uint64(30), last)
	var l raft.Log
	require.NoError(t, old.GetLog(30, &l))
	require.Equal(t, checksumOf(&l), l.Extensions)
	vote, err := old.Get(keyVote)
	require.NoError(t, err)
	require.Equal(t, "n1", string(vote[:2]))

	// An older version replaces the newest entries by fewer: the record of the tail is no longer its business.
	require.NoError(t, old.DeleteRange(21, 30))
	l.Index, l.Term = 21, 90
	l.Extensions = checksumOf(&l)
	require.NoError(t, old.StoreLog(&l))
	require.NoError(t, old.Close())
	d, err := OpenDisk(diskOptions(dir))
	require.NoError(t, err)
	last, err = d.Logs().LastIndex()
	require.NoError(t, err)
	require.Equal(t, uint64(21), last)
	require.NoError(t, d.Close())
	found, _, err := verifyLog(filepath.Join(dir, logFile), 0)
	require.NoError(t, err)
	require.NotZero(t, found.tx, "once opened, the tail is on record again")
}

func TestEntriesAreEncodedAsByRaftBoltdb(t *testing.T) {
	t.Parallel()
	l := &raft.Log{Index: 7, Term: 3, Type: raft.LogConfiguration, Data: []byte("data"), AppendedAt: time.Now()}
	ours, err := encodeLog(l)
	require.NoError(t, err)
	l.Extensions = checksumOf(l)
	path := filepath.Join(t.TempDir(), logFile)
	bolt, err := raftboltdb.NewBoltStore(path)
	require.NoError(t, err)
	require.NoError(t, bolt.StoreLog(l))
	require.NoError(t, bolt.Close())
	db, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		require.Equal(t, tx.Bucket(logBucket).Get(indexKey(7)), ours)
		return nil
	}))
	require.NoError(t, db.Close())

	var read raft.Log
	copied := append([]byte(nil), ours...)
	require.NoError(t, decodeLog(7, copied, &read))
	clear(copied) // belongs to the transaction
	require.Equal(t, "data", string(read.Data))
	require.True(t, l.AppendedAt.Equal(read.AppendedAt))
	require.Nil(t, read.Extensions)
}

func TestTheRecordOfTheTailIsCompared(t *testing.T) {
	t.Parallel()
	recorded := tail{tx: 9, first: 2, last: 5, sum: 77, stable: 3}
	for name, c := range map[string]struct {
		now    uint64
		change func(*tail)
		wantTx uint64
		want   string
	}{
		"as stored":                   {9, func(*tail) {}, 9, ""},
		"the newest entry is missing": {9, func(t *tail) { t.last-- }, 0, "2 to 4 are there, 2 to 5 were stored"},
		"there is one more":           {9, func(t *tail) { t.last++ }, 0, "2 to 6 are there"},
		"the oldest entry is missing": {9, func(t *tail) { t.first++ }, 0, "3 to 5 are there"},
		"another entry":               {9, func(t *tail) { t.sum++ }, 0, "entries are not those"},
		"another vote":                {9, func(t *tail) { t.stable++ }, 0, "vote"},
		"an older version wrote last": {10, func(t *tail) { t.last-- }, 0, ""},
		"a newer record":              {8, func(*tail) {}, 0, "transaction 9"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := recorded
			found.tx = 0
			c.change(&found)
			err := verifyTail(recorded.encode(), c.now, &found)
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, c.wantTx, found.tx)
		})
	}
	require.NoError(t, verifyTail(nil, 9, &tail{first: 1, last: 2}), "older versions write none")
}
