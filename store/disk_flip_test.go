package store

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/bourse-dev/bourse/fsm"
)

const testPage = 4096

var native = binary.NativeEndian

func command(t *testing.T, size int) []byte {
	t.Helper()
	entry, err := fsm.EncodeEntry(&fsm.Entry{Time: 1, Txns: []fsm.Txn{{Writes: []fsm.Write{{Key: "a/b", Body: make([]byte, size)}}}}})
	require.NoError(t, err)
	return entry
}

// logHistory is what a log went through: entries one by one, entries in batches of five, the newest ones replaced by
// those of another term, the oldest ones removed behind a snapshot. Older trees of all that stay in the file.
type logHistory struct{ single, batched, replaced, removed, size int }

// dir of the format that bbolt writes.
func (h logHistory) dir(t *testing.T) string {
	t.Helper()
	dir := newDir(t, boltFormat)
	d, err := OpenDisk(diskOptions(dir))
	require.NoError(t, err)
	next, term, data := uint64(1), uint64(1), command(t, h.size)
	store := func(n int) {
		logs := make([]*raft.Log, n)
		for i := range logs {
			logs[i] = &raft.Log{Index: next, Term: term, Type: raft.LogCommand, Data: data, AppendedAt: time.Unix(int64(next), 0)}
			next++
		}
		require.NoError(t, d.Logs().StoreLogs(logs))
	}
	require.NoError(t, d.Stable().SetUint64(keyVoteTerm, 2))
	require.NoError(t, d.Stable().Set(keyVote, []byte("n1")))
	for range h.single {
		store(1)
	}
	for range h.batched {
		store(5)
	}
	if h.replaced > 0 {
		next -= uint64(h.replaced)
		require.NoError(t, d.Logs().DeleteRange(next, next+uint64(h.replaced)-1))
		term = 2
		for range h.replaced {
			store(1)
		}
	}
	if h.removed > 0 {
		addSnapshot(t, d, uint64(h.removed)+1, nil)
		require.NoError(t, d.Logs().DeleteRange(1, uint64(h.removed)))
	}
	require.NoError(t, d.Stable().SetUint64(keyTerm, 2))
	require.NoError(t, d.SetCluster("c1", "n1", "", false))
	require.NoError(t, d.Close())
	return dir
}

// filePages is where in a log file the numbers and sizes are that bbolt trusts.
type filePages struct {
	b      []byte
	root   int   // page of the buckets
	trusts []int // bytes
	ids    []int // bytes at which the number of a page begins
}

func pagesOf(t *testing.T, b []byte) *filePages {
	t.Helper()
	p := &filePages{b: b}
	newest := testPage
	if native.Uint64(b[16+48:]) > native.Uint64(b[testPage+16+48:]) {
		newest = 0
	}
	p.trust(0, 80)
	p.trust(testPage, testPage+80)
	p.root = int(native.Uint64(b[newest+16+16:]))
	at := p.root * testPage
	require.Equal(t, 2, int(native.Uint16(b[at+10:])))
	last := at + 32 // element of "logs"
	value := last + int(native.Uint32(b[last+4:])+native.Uint32(b[last+8:]))
	p.trust(at, value+int(native.Uint32(b[last+12:])))
	if id := native.Uint64(b[value:]); id != 0 {
		p.ids = append(p.ids, value)
		p.tree(int(id))
	}
	return p
}

func (p *filePages) trust(from, to int) {
	for at := from; at < to; at++ {
		p.trusts = append(p.trusts, at)
	}
}

func (p *filePages) tree(id int) {
	at := id * testPage
	count := int(native.Uint16(p.b[at+10:]))
	p.trust(at, at+16)
	if native.Uint16(p.b[at+8:]) == 2 { // a leaf
		p.trust(at+16*count, at+16+16*count) // its last element
		return
	}
	p.trust(at+16, at+16+(16+8)*count)
	for i := range count {
		p.ids = append(p.ids, at+16+16*i+8)
		p.tree(int(native.Uint64(p.b[at+16+16*i+8:])))
	}
}

// damageBench opens one directory again and again, each time with other damage.
type damageBench struct {
	t                         *testing.T
	dir, want                 string
	whole                     []byte
	tried, refused, unnoticed int
}

func newDamageBench(t *testing.T, dir string) *damageBench {
	t.Helper()
	d := &damageBench{t: t, dir: dir}
	var err error
	d.want, err = raftReads(dir)
	require.NoError(t, err)
	d.whole, err = os.ReadFile(d.path())
	require.NoError(t, err)
	return d
}

func (d *damageBench) path() string { return filepath.Join(d.dir, logFile) }

// try some bytes instead of those that are there: OpenDisk refuses, or Raft reads what was stored.
func (d *damageBench) try(what string, at int, damage ...byte) (refused bool) {
	d.t.Helper()
	d.write(at, damage)
	d.tried++
	var err error
	done := make(chan string, 1)
	go func() {
		var got string
		if got, err = raftReads(d.dir); err == nil && got == d.want && d.unnoticed%8 == 0 {
			got, err = d.goOn()
		}
		done <- got
	}()
	select {
	case got := <-done:
		if err != nil {
			require.ErrorIs(d.t, err, ErrCorrupt, what)
			d.refused++
			d.write(at, d.whole[at:at+len(damage)])
			return true
		}
		require.Equal(d.t, d.want, got, what)
		d.unnoticed++
		require.NoError(d.t, os.WriteFile(d.path(), d.whole, 0o600))
	case <-time.After(20 * time.Second):
		d.t.Fatal("OpenDisk hangs: ", what)
	}
	return false
}

func (d *damageBench) write(at int, b []byte) {
	d.t.Helper()
	f, err := os.OpenFile(d.path(), os.O_WRONLY, 0)
	require.NoError(d.t, err)
	_, err = f.WriteAt(b, int64(at))
	require.NoError(d.t, err)
	require.NoError(d.t, f.Close())
}

// goOn writes what takes new pages and takes it back again.
func (d *damageBench) goOn() (string, error) {
	disk, err := OpenDisk(diskOptions(d.dir))
	if err != nil {
		return "", err
	}
	last, err := disk.Logs().LastIndex()
	if err != nil {
		return "", err
	}
	if err := disk.Logs().StoreLog(&raft.Log{Index: last + 1, Type: raft.LogCommand, Data: command(d.t, 3*testPage)}); err != nil {
		return "", err
	}
	if err := disk.Logs().DeleteRange(last+1, last+1); err != nil {
		return "", err
	}
	if err := disk.Close(); err != nil {
		return "", err
	}
	return raftReads(d.dir)
}

// No flipped bit of the log file, its pages, entries, term or vote, gives Raft anything but what was stored.
func TestAFlippedBitOfTheLogFileIsFoundOrHarmless(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		logHistory
		step int // of the bytes that are not zero and that bbolt does not go by
	}{
		"a log inside the root page": {logHistory{single: 3, size: 10}, 5},
		"one page":                   {logHistory{single: 9, replaced: 3, size: 100}, 13},
		"pages below a branch":       {logHistory{single: 30, batched: 4, replaced: 10, removed: 10, size: 100}, 53},
		"long entries":               {logHistory{single: 4, batched: 1, replaced: 2, size: 9000}, 97},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDamageBench(t, c.dir(t))
			for _, at := range pagesOf(t, d.whole).trusts {
				for bit := range 8 {
					what := fmt.Sprintf("bit %d of byte %d", bit, at)
					require.True(t, d.try(what, at, d.whole[at]^1<<bit), what)
				}
			}
			n := 0
			for at, b := range d.whole {
				if b != 0 {
					n++
				}
				if b != 0 && n%c.step == 0 || b == 0 && at%(100*c.step) == 2 {
					d.try(fmt.Sprintf("bit %d of byte %d", n%8, at), at, b^1<<(n%8))
				}
			}
			t.Logf("%d bits: %d refused, %d harmless", d.tried, d.refused, d.unnoticed)
			require.Greater(t, d.refused, 3000)
			require.Positive(t, d.unnoticed)
		})
	}
}

// Pages are written anew elsewhere, so the file is full of older ones, each whole in itself.
func TestANumberThatNamesAnOlderPageIsFound(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]logHistory{
		"the root of the log":   {single: 9, replaced: 3, size: 100},
		"a child of a branch":   {single: 30, batched: 4, replaced: 10, removed: 10, size: 100},
		"a root with long ones": {single: 4, batched: 1, replaced: 2, size: 9000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDamageBench(t, h.dir(t))
			ids := pagesOf(t, d.whole).ids
			require.NotEmpty(t, ids)
			for _, at := range ids {
				right := native.Uint64(d.whole[at:])
				for id := range uint64(min(len(d.whole)/testPage, 60)) {
					if id != right {
						what := fmt.Sprintf("page %d instead of %d", id, right)
						require.True(t, d.try(what, at, native.AppendUint64(nil, id)...), what)
					}
				}
			}
		})
	}
}

// Each of these made bbolt hang, exhaust stack or memory, panic on a goroutine of its own, or write over entries.
func TestAPageThatBboltWouldNotWriteIsRefused(t *testing.T) {
	t.Parallel()
	d := newDamageBench(t, logHistory{single: 40, size: 100}.dir(t))
	p := pagesOf(t, d.whole)
	branch := int(native.Uint64(d.whole[p.ids[0]:])) * testPage
	leaf := int(native.Uint64(d.whole[branch+24:])) * testPage
	require.Greater(t, len(p.ids), 3)
	for what, c := range map[string]struct {
		at   int
		want []byte
	}{
		"the log's root is the page that names it": {p.ids[0], native.AppendUint64(nil, uint64(p.root))},
		"the child of a branch is itself":          {branch + 24, native.AppendUint64(nil, uint64(branch/testPage))},
		"two children are one":                     {branch + 24, d.whole[branch+40 : branch+48]},
		"a page number far out":                    {branch + 24, native.AppendUint64(nil, 1<<52)},
		"a branch with 65,535 elements":            {branch + 10, []byte{255, 255}},
		"a leaf with 65,535 elements":              {leaf + 10, []byte{255, 255}},
		"a leaf without elements":                  {leaf + 10, []byte{0, 0}},
		"a leaf that 4 billion pages follow":       {leaf + 12, []byte{255, 255, 255, 255}},
		"a leaf that one page follows":             {leaf + 12, []byte{1, 0, 0, 0}},
		"a leaf of no kind":                        {leaf + 8, []byte{0, 0}},
		"a leaf of another number":                 {leaf, []byte{255}},
		"a value as long as the file":              {leaf + 16 + 12, []byte{0, 0, 1, 0}},
		"a key without bytes":                      {leaf + 16 + 8, []byte{0}},
	} {
		require.True(t, d.try(what, c.at, c.want...), what)
	}
}

// bbolt writes over the pages in that list.
func TestADamagedListOfFreePagesIsFoundOrHarmless(t *testing.T) {
	t.Parallel()
	dir := logHistory{batched: 40, size: 100}.dir(t)
	old := olderVersion(t, dir, false) // it keeps the list on disk; ours never does
	require.NoError(t, old.DeleteRange(20, 200))
	require.NoError(t, old.SetUint64(keyTerm, 3))
	require.NoError(t, old.Close())
	whole, err := os.ReadFile(filepath.Join(dir, logFile))
	require.NoError(t, err)
	d := newDamageBench(t, dir)
	require.NoError(t, os.WriteFile(d.path(), whole, 0o600))
	d.whole = whole
	newest := 0
	if native.Uint64(whole[16+48:]) < native.Uint64(whole[testPage+16+48:]) {
		newest = testPage
	}
	at := int(native.Uint64(whole[newest+16+32:])) * testPage
	require.Equal(t, byte(0x10), whole[at+8])
	count := int(native.Uint16(whole[at+10:]))
	require.Greater(t, count, 3)
	for i := at; i < at+16+8*count; i++ {
		for bit := range 8 {
			d.unnoticed = 0 // so that each is gone on with
			d.try(fmt.Sprintf("bit %d of byte %d", bit, i-at), i, whole[i]^1<<bit)
		}
	}
	require.Greater(t, d.refused, 200)
}
