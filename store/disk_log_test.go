package store

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

const smallSegment = 16 // sectors

func openLog(dir string, sectors int) (*diskLog, error) {
	d, err := readDiskLog(dir, sectors)
	if err != nil {
		return nil, err
	}
	if err := d.start(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// told is all that Raft would be told.
func told(d *diskLog) (string, error) {
	first, _ := d.FirstIndex()
	last, _ := d.LastIndex()
	var b strings.Builder
	fmt.Fprintln(&b, first, last)
	for i := first; first > 0 && i <= last; i++ {
		var l raft.Log
		if err := d.GetLog(i, &l); err != nil {
			return "", err
		}
		fmt.Fprintln(&b, l.Index, l.Term, l.Type, l.AppendedAt.UnixNano(), string(l.Extensions), string(l.Data))
	}
	for _, key := range slices.Sorted(maps.Keys(d.ledger.values)) {
		fmt.Fprintf(&b, "%s %x\n", key, d.ledger.values[key])
	}
	return b.String(), nil
}

func mustTell(t *testing.T, d *diskLog) string {
	t.Helper()
	s, err := told(d)
	require.NoError(t, err)
	return s
}

// randomCall is one call of Raft, at random: appends, conflicts, compactions, gaps, votes.
func randomCall(rng *rand.Rand, d *diskLog) func(*diskLog) error {
	next, first := d.ledger.next(), d.ledger.first
	held := next - first
	n := rng.Uint64()
	switch k := rng.IntN(12); {
	case k == 0 && held > 0:
		return func(d *diskLog) error { return d.DeleteRange(first+n%held, next-1) }
	case k == 1 && held > 0:
		return func(d *diskLog) error { return d.DeleteRange(first, first+n%held) }
	case k == 2:
		return func(d *diskLog) error { return d.SetUint64(keyTerm, n) }
	case k == 3:
		return func(d *diskLog) error { return d.Set(keyVote, []byte(fmt.Sprint("n", n%9))) }
	case k == 4 && n%4 == 0:
		next += 5 // behind an installed snapshot
	case k == 5 && held > 0:
		next -= 1 + n%held // over what a failed append may have left
	}
	logs := make([]*raft.Log, 1+rng.IntN(4))
	for i := range logs {
		logs[i] = &raft.Log{
			Index: next + uint64(i), Term: n, Type: raft.LogType(n % 6), Data: make([]byte, rng.IntN(700)), //nolint:gosec // small
			AppendedAt: time.Unix(int64(n%1e9), 7), Extensions: fmt.Append(nil, n), //nolint:gosec // small
		}
	}
	return func(d *diskLog) error { return d.StoreLogs(logs) }
}

func TestALogComesBackAsItWas(t *testing.T) {
	t.Parallel()
	dir, rng := t.TempDir(), rand.New(rand.NewPCG(rand.Uint64(), 0))
	segments := uint64(0)
	for range 20 {
		d, err := openLog(dir, smallSegment)
		require.NoError(t, err)
		for range 20 {
			require.NoError(t, randomCall(rng, d)(d))
		}
		want := mustTell(t, d)
		segments = d.newest
		require.NoError(t, d.Close())
		d, err = openLog(dir, smallSegment)
		require.NoError(t, err)
		require.Equal(t, want, mustTell(t, d))
		require.NoError(t, d.Close())
	}
	require.Greater(t, segments, uint64(20))
}

var errPlanned = errors.New("planned")

// failAt fails the step-th step of what d does from now on, after a part of what it writes is on disk. fired says at what.
func failAt(t *testing.T, rng *rand.Rand, d *diskLog, step int, forEver bool) (fired *string) {
	t.Helper()
	fired = new(string)
	d.step = func(what string) error {
		if step--; step > 0 || step < 0 && !forEver {
			return nil
		}
		if *fired == "" {
			*fired = what
		}
		if what != "sync append" && what != "sync blank" || step < 0 {
			return errPlanned
		}
		for i := range d.dirty {
			if rng.IntN(2) == 0 {
				_, err := d.files[d.newest].WriteAt(blankSector[:], int64(d.end+i)*sectorSize)
				require.NoError(t, err)
			}
		}
		return errPlanned
	}
	return fired
}

func copyOf(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	require.NoError(t, os.CopyFS(to, os.DirFS(dir)))
	return to
}

func hasAll(seen map[string]bool, steps ...string) bool {
	return !slices.ContainsFunc(steps, func(step string) bool { return !seen[step] })
}

// A crash before any step leaves the log as it was before or after the change; the disk may fail again after it.
func TestACrashAtAnyStepLosesNothingAndInventsNothing(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	dir, at := t.TempDir(), map[string]bool{}
	for n := 0; n < 250 || !hasAll(at, "append", "sync append", "create", "name", "remove"); n++ {
		d, err := openLog(dir, smallSegment)
		require.NoError(t, err)
		before, do := mustTell(t, d), randomCall(rng, d)
		require.NoError(t, d.Close())

		twin, err := openLog(copyOf(t, dir), smallSegment)
		require.NoError(t, err)
		require.NoError(t, do(twin))
		after := mustTell(t, twin)
		require.NoError(t, twin.Close())

		d, err = openLog(dir, smallSegment)
		require.NoError(t, err)
		fired := failAt(t, rng, d, 1+rng.IntN(6), true)
		err = do(d)
		at[*fired] = true
		require.Equal(t, *fired != "", err != nil)
		require.NoError(t, d.Close())
		d, err = openLog(dir, smallSegment)
		require.NoError(t, err, "seed %d, crash at %s", seed, *fired)
		got := mustTell(t, d)
		if *fired == "" {
			require.Equal(t, after, got, "seed %d", seed)
		} else {
			require.Contains(t, []string{before, after}, got, "seed %d, crash at %s", seed, *fired)
		}
		require.NoError(t, d.Close())
	}
}

// A failed write has no effect, and the log goes on: the disk was full.
func TestALogGoesOnAfterAWriteFailed(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	d, err := openLog(dir, smallSegment)
	require.NoError(t, err)
	failed := map[string]bool{}
	for n := 0; n < 400 || !hasAll(failed, "append", "sync append", "blank", "create", "name", "remove"); n++ {
		before, do := mustTell(t, d), randomCall(rng, d)
		fired := failAt(t, rng, d, 1+rng.IntN(6), rng.IntN(2) == 0)
		err := do(d)
		d.step = func(string) error { return nil }
		failed[*fired] = true
		if *fired == "remove" {
			require.ErrorIs(t, err, errPlanned)
			continue // the entries are gone, their file follows
		}
		if err != nil {
			require.ErrorIs(t, err, errPlanned)
			require.Equal(t, before, mustTell(t, d), "seed %d", seed)
			if rng.IntN(2) == 0 {
				continue // something else comes next
			}
			require.NoError(t, do(d), "seed %d", seed)
		}
		if rng.IntN(10) == 0 {
			want := mustTell(t, d)
			require.NoError(t, d.Close())
			d, err = openLog(dir, smallSegment)
			require.NoError(t, err, "seed %d", seed)
			require.Equal(t, want, mustTell(t, d), "seed %d", seed)
		}
	}
	require.NoError(t, d.Close())
}

// A process was killed before a sync: what it wrote is read, and a power cut would still take it.
func TestWhatWasReadIsSyncedBeforeAnythingIsBuiltOnIt(t *testing.T) {
	t.Parallel()
	dir, want := threeSegments(t)
	d, err := readDiskLog(dir, smallSegment)
	require.NoError(t, err)
	settled := 0
	d.step = func(what string) error {
		require.Equal(t, "settle", what)
		settled++
		return nil
	}
	require.NoError(t, d.start())
	require.Equal(t, 3, settled, "the seal of a segment may be as new as the newest entry")
	require.Equal(t, want, mustTell(t, d))
	require.NoError(t, d.Close())
}

// Raft's leader reads to send while it appends.
func TestNoReadWaitsForASync(t *testing.T) {
	t.Parallel()
	d, err := openLog(t.TempDir(), smallSegment)
	require.NoError(t, err)
	require.NoError(t, d.StoreLog(&raft.Log{Index: 1}))
	reads := 0
	d.step = func(string) error { // while the writer stands here
		reads++
		last, err := d.LastIndex()
		require.Positive(t, last)
		return errors.Join(err, d.GetLog(last, &raft.Log{}))
	}
	for i := range uint64(20) {
		require.NoError(t, d.StoreLog(&raft.Log{Index: i + 2, Data: make([]byte, 900)}))
	}
	require.NoError(t, d.DeleteRange(1, 19))
	require.Greater(t, reads, 40)
	require.NoError(t, d.Close())
}

func segmentFiles(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"+segmentSuffix))
	require.NoError(t, err)
	return paths
}

// threeSegments that are in use.
func threeSegments(t *testing.T) (dir, want string) {
	t.Helper()
	dir = t.TempDir()
	d, err := openLog(dir, smallSegment)
	require.NoError(t, err)
	require.NoError(t, d.Set(keyVote, []byte("n1")))
	for i := uint64(1); d.newest < 3 || d.end < 5; i++ {
		require.NoError(t, d.StoreLog(&raft.Log{Index: i, Term: 1, Data: make([]byte, 600)}))
	}
	want = mustTell(t, d)
	require.NoError(t, d.Close())
	return dir, want
}

func TestEveryFlippedBitOfALogIsFoundAtStartAndWhenRead(t *testing.T) {
	t.Parallel()
	dir, want := threeSegments(t)
	running, err := openLog(dir, smallSegment)
	require.NoError(t, err)
	for _, path := range segmentFiles(t, dir) {
		whole, err := os.ReadFile(path)
		require.NoError(t, err)
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		require.NoError(t, err)
		for at := 0; at < len(whole); at += 1 + rand.IntN(8) {
			_, err := file.WriteAt([]byte{whole[at] ^ 1<<rand.IntN(8)}, int64(at))
			require.NoError(t, err)
			_, err = readDiskLog(dir, smallSegment)
			require.ErrorIs(t, err, ErrCorrupt, "byte %d of %s", at, path)
			require.ErrorContains(t, err, path)
			if got, err := told(running); err != nil {
				require.ErrorIs(t, err, ErrCorrupt)
			} else {
				require.Equal(t, want, got)
			}
			_, err = file.WriteAt(whole[at:at+1], int64(at))
			require.NoError(t, err)
		}
		require.NoError(t, file.Close())
	}
	require.Equal(t, want, mustTell(t, running))
	require.NoError(t, running.Close())
}

func TestAMissingOrShortenedSegmentIsDamageAndJunkBehindOneIsNot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damage func(paths []string) error
		want   error
	}{
		"the oldest is missing":   {func(p []string) error { return os.Remove(p[0]) }, ErrCorrupt},
		"one between is missing":  {func(p []string) error { return os.Remove(p[1]) }, ErrCorrupt},
		"the newest is missing":   {func(p []string) error { return os.Remove(p[2]) }, ErrCorrupt},
		"the newest is cut short": {func(p []string) error { return os.Truncate(p[2], smallSegment*sectorSize-1) }, ErrCorrupt},
		"one has another's name":  {func(p []string) error { return os.Rename(p[0], p[1]) }, ErrCorrupt},
		"the newest is longer":    {func(p []string) error { return os.Truncate(p[2], smallSegment*sectorSize+99) }, nil},
		"a crash while one is made": {func(p []string) error {
			return os.WriteFile(filepath.Join(filepath.Dir(p[0]), "next"+segmentSuffix+tmpSuffix), []byte("half"), 0o600)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, want := threeSegments(t)
			require.NoError(t, c.damage(segmentFiles(t, dir)))
			d, err := openLog(dir, smallSegment)
			require.ErrorIs(t, err, c.want)
			if err == nil {
				require.Equal(t, want, mustTell(t, d))
				require.NoError(t, d.Close())
				require.Len(t, contents(t, dir), 3)
			}
		})
	}
}

func TestTheNextSegmentIsMadeAhead(t *testing.T) {
	t.Parallel()
	d, err := openLog(t.TempDir(), smallSegment)
	require.NoError(t, err)
	ahead := filepath.Join(d.dir, "next"+segmentSuffix+tmpSuffix)
	store := func(index uint64) { require.NoError(t, d.StoreLog(&raft.Log{Index: index, Data: make([]byte, 900)})) }
	index := uint64(1)
	for ; d.end <= smallSegment/2; index++ {
		require.NoFileExists(t, ahead)
		store(index)
	}
	d.making.Wait()
	blank, err := os.ReadFile(ahead)
	require.NoError(t, err)
	require.Equal(t, make([]byte, smallSegment*sectorSize), blank)
	before, err := os.Stat(ahead)
	require.NoError(t, err)
	for ; d.newest == 1; index++ {
		store(index)
	}
	now, err := os.Stat(d.path(2))
	require.NoError(t, err)
	require.True(t, os.SameFile(before, now))
	for ; d.end <= smallSegment/2; index++ {
		store(index)
	}
	want := mustTell(t, d)
	require.NoError(t, d.Close())
	require.FileExists(t, ahead)
	d, err = openLog(d.dir, smallSegment)
	require.NoError(t, err)
	require.NoFileExists(t, ahead)
	require.Equal(t, want, mustTell(t, d))
	require.NoError(t, d.Close())
}

// Appends may be larger than a segment, and an entry may not.
func TestEntriesAreSpreadOverSegments(t *testing.T) {
	t.Parallel()
	d, err := openLog(t.TempDir(), smallSegment)
	require.NoError(t, err)
	logs := make([]*raft.Log, 40)
	for i := range logs {
		logs[i] = &raft.Log{Index: uint64(i + 7), Data: make([]byte, 1500)}
	}
	require.NoError(t, d.StoreLogs(logs))
	first, _ := d.FirstIndex()
	last, _ := d.LastIndex()
	require.Equal(t, []uint64{7, 46}, []uint64{first, last})
	require.ErrorContains(t, d.StoreLog(&raft.Log{Index: 47, Data: make([]byte, 7000)}), "at most")
	require.NoError(t, d.DeleteRange(40, 42), "an append failed after 42, as far as Raft knows")
	require.NoError(t, d.StoreLog(&raft.Log{Index: 40}))
	last, _ = d.LastIndex()
	require.EqualValues(t, 40, last)
	require.ErrorIs(t, d.GetLog(47, &raft.Log{}), raft.ErrLogNotFound)
	require.NoError(t, d.DeleteRange(7, 46))
	require.Len(t, segmentFiles(t, d.dir), 1)
	require.NoError(t, d.Close())
}

// Raft takes newest entries away, fails to append others in their place, and goes on as if the first were there.
func TestTheNewestEntriesStayUntilOthersAreThere(t *testing.T) {
	t.Parallel()
	for _, conflict := range []uint64{7, 9} {
		d, err := openLog(t.TempDir(), smallSegment)
		require.NoError(t, err)
		d.covered = func() (uint64, error) { return 6, nil }
		for i := uint64(7); i < 12; i++ {
			require.NoError(t, d.StoreLog(&raft.Log{Index: i, Term: 1}))
		}
		want := mustTell(t, d)
		d.step = func(string) error { return errPlanned }
		require.NoError(t, d.DeleteRange(conflict, 11))
		require.ErrorIs(t, d.StoreLog(&raft.Log{Index: conflict, Term: 2}), errPlanned)
		require.Equal(t, want, mustTell(t, d))
		d.step = func(string) error { return nil }
		require.NoError(t, d.StoreLog(&raft.Log{Index: conflict, Term: 2}))
		last, _ := d.LastIndex()
		require.Equal(t, conflict, last)
		d.covered = func() (uint64, error) { return last, nil }
		require.NoError(t, d.DeleteRange(7, last), "a snapshot covers all")
		last, _ = d.LastIndex()
		require.Zero(t, last)
		require.NoError(t, d.Close())
	}
}

func TestOnlyASnapshotCoversAGap(t *testing.T) {
	t.Parallel()
	d, err := openLog(t.TempDir(), smallSegment)
	require.NoError(t, err)
	d.covered = func() (uint64, error) { return 3, nil }
	require.NoError(t, d.StoreLog(&raft.Log{Index: 1}))
	want := mustTell(t, d)
	require.ErrorContains(t, d.StoreLog(&raft.Log{Index: 5}), "does not follow")
	require.Equal(t, want, mustTell(t, d))
	require.NoError(t, d.StoreLog(&raft.Log{Index: 4}))
	first, _ := d.FirstIndex()
	require.EqualValues(t, 4, first)
	require.NoError(t, d.Close())
}

func TestAnErrorNamesTheSegmentAsItIsNamedNow(t *testing.T) {
	t.Parallel()
	d, err := openLog(t.TempDir(), smallSegment)
	require.NoError(t, err)
	require.NoError(t, d.StoreLog(&raft.Log{Index: 1}))
	file := d.files[1]
	require.NoError(t, file.Close())
	for _, err := range []error{d.StoreLog(&raft.Log{Index: 2}), d.GetLog(1, &raft.Log{})} {
		require.ErrorIs(t, err, os.ErrClosed)
		require.ErrorContains(t, err, d.path(1))
		require.NotContains(t, err.Error(), tmpSuffix)
	}
	require.ErrorContains(t, syncData(file), file.Name())
	delete(d.files, 1)
	require.NoError(t, d.Close())
}

func TestADirectoryMayHaveAnyName(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "[x")
	for range 2 {
		d, err := openLog(dir, smallSegment)
		require.NoError(t, err)
		require.NoError(t, d.Close())
	}
}

func TestAFullDiskLeavesRoomForVotesAndCompaction(t *testing.T) {
	t.Parallel()
	d, err := openLog(t.TempDir(), segmentSectors)
	require.NoError(t, err)
	defer d.Close()
	d.covered = func() (uint64, error) { return 0, nil }
	full := errors.New("no space left on device")
	data := make([]byte, 200<<10)
	for index := uint64(1); err == nil; index++ {
		if err = d.StoreLog(&raft.Log{Index: index, Term: 1, Data: data}); index == 1 {
			require.NoError(t, err)
			d.step = func(what string) error {
				if what == "create" {
					return full
				}
				return nil
			}
		}
	}
	require.ErrorIs(t, err, full)
	small := &raft.Log{Index: d.ledger.next(), Term: 1, Data: make([]byte, 300)}
	for err = nil; err == nil; small.Index++ {
		err = d.StoreLog(small)
	}
	require.ErrorIs(t, err, full)
	for term := range uint64(60) {
		require.NoError(t, d.SetUint64([]byte("CurrentTerm"), term))
		require.NoError(t, d.Set([]byte("LastVoteCand"), []byte("n1")))
	}
	require.NoError(t, d.DeleteRange(1, 5))
	first, err := d.FirstIndex()
	require.NoError(t, err)
	require.EqualValues(t, 6, first)
}

func TestASegmentThatCantBeReadIsNotCalledCorrupt(t *testing.T) {
	t.Parallel()
	dir, _ := threeSegments(t)
	path := segmentFiles(t, dir)[1]
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Mkdir(path, 0o700)) // reading it fails for root, too
	_, err := readDiskLog(dir, smallSegment)
	require.ErrorContains(t, err, path)
	require.NotErrorIs(t, err, ErrCorrupt)
}
