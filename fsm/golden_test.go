package fsm

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// goldenDir is frozen: what version 1 wrote must stay readable and give the same state. A
// new format gets a directory of its own beside it.
const goldenDir = "testdata/golden-v1"

func TestGoldenDataOfVersion1(t *testing.T) {
	t.Parallel()
	commands, err := os.ReadFile(filepath.Join(goldenDir, "commands"))
	require.NoError(t, err)
	snapshot, err := os.ReadFile(filepath.Join(goldenDir, "snapshot"))
	require.NoError(t, err)
	hash, err := os.ReadFile(filepath.Join(goldenDir, "hash"))
	require.NoError(t, err)
	want := strings.TrimSpace(string(hash))

	entries, err := readFrames(bufio.NewReader(bytes.NewReader(commands)))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(entries), 100)
	s := New()
	for _, data := range entries {
		s = mustApply(t, s, data).State
	}
	require.Equal(t, want, s.Hash().String())
	require.Equal(t, snapshot, snapshotOf(t, s))

	restored, err := ReadSnapshot(bytes.NewReader(snapshot))
	require.NoError(t, err)
	require.Equal(t, want, restored.Hash().String())
	require.Positive(t, restored.Results())
	info, err := InspectSnapshot(bytes.NewReader(snapshot))
	require.NoError(t, err)
	require.Positive(t, info.Holds)
}

// TestWriteGolden makes the golden data of a new format: BOURSE_WRITE_GOLDEN names its
// directory, which must not exist.
func TestWriteGolden(t *testing.T) {
	dir := os.Getenv("BOURSE_WRITE_GOLDEN")
	if dir == "" {
		t.Skip("BOURSE_WRITE_GOLDEN is not set")
	}
	w := newWorld()
	for i := range uint64(160) {
		_, err := w.propose(w.next(i))
		require.NoError(t, err)
	}
	txn, report, _ := everything()
	full := *txn.Writes[1].Ledger
	full.Ended = false
	key, holder := "clusteradvertisements/golden-adv", "reservations/rome/golden"
	for _, e := range []*Entry{
		{Time: w.now, Txns: []Txn{{Writes: []Write{{Key: key, Body: []byte("{}"), Facts: []byte("f"), Terms: &Terms{KeepBack: cores(1)}, Ledger: &Ledger{}}}}}},
		{Time: w.now, Reports: []Report{{Account: key, Session: report.Session, Open: true}, {
			Account: key, Session: report.Session, Epoch: 1, Sequence: 1,
			Facts: AccountFacts{Allocatable: report.Facts.Allocatable.Add(cores(64)), Allocated: cores(1), LargestFree: cores(8)},
		}}},
		{Time: w.now, Txns: []Txn{{
			Writes: []Write{{Key: holder, Body: []byte("{}"), Ledger: &full}},
			Moves:  []Move{{Op: MoveHold, Account: key, Holder: holder, Amounts: cores(2), Priority: -5}},
		}}},
	} {
		out, err := w.propose(e)
		require.NoError(t, err)
		for _, r := range out.Results {
			require.Nil(t, r.Refusal)
		}
	}
	fence := w.state.Row(holder).Ledger.Fence
	_, err := w.propose(&Entry{Time: w.now, Reports: []Report{{
		Account: key, Session: report.Session, Epoch: 1, Sequence: 2, Use: []HoldUse{{Holder: holder, Fence: fence, Used: cores(3)}},
	}}})
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "commands"), frames(w.entries), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "snapshot"), snapshotOf(t, w.state), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hash"), []byte(w.state.Hash().String()+"\n"), 0o644))
}
