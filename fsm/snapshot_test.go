package fsm

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func sampleState(t testing.TB) *State {
	b := newBench(t, cores(20))
	b.must(grant("a", cores(3)))
	b.must(grant("b", cores(4)))
	b.must(withID(RequestID{Seen: 3, Random: 9}, "namespaces/rome"))
	b.refused(RefusedExists, Txn{Guards: []Guard{GuardAbsent("namespaces/rome")}})
	return b.state
}

func TestASnapshotIsTheStateAndTheStateOneSnapshot(t *testing.T) {
	t.Parallel()
	s := sampleState(t)
	data := snapshotOf(t, s)
	restored, err := ReadSnapshot(bytes.NewReader(data))
	require.NoError(t, err)
	require.Equal(t, s.Hash(), restored.Hash())
	require.Equal(t, restored.FullHash(), restored.Hash())
	require.Equal(t, data, snapshotOf(t, restored))
	require.Equal(t, s.Revision(), restored.Revision())
	require.Equal(t, s.Time(), restored.Time())

	info, err := InspectSnapshot(bytes.NewReader(data))
	require.NoError(t, err)
	require.Equal(t, SnapshotInfo{
		Format: 1, Revision: s.Revision(), Time: s.Time(), Behaviour: 1, Hash: s.Hash(), Holds: 2, Results: 1,
		Tables: []TableInfo{{"clusteradvertisements", 1}, {"namespaces", 1}, {"reservations", 2}},
	}, info)
}

func TestADamagedSnapshotIsRefused(t *testing.T) {
	t.Parallel()
	data := snapshotOf(t, sampleState(t))
	for at := range data {
		damaged := bytes.Clone(data)
		damaged[at] ^= 0x04
		_, err := ReadSnapshot(bytes.NewReader(damaged))
		require.Error(t, err, "byte %d", at)
		_, err = ReadSnapshot(bytes.NewReader(data[:at]))
		require.ErrorIs(t, err, ErrCorrupt, "cut off at %d", at)
	}
	_, err := ReadSnapshot(bytes.NewReader(append(bytes.Clone(data), 0)))
	require.ErrorIs(t, err, ErrCorrupt)
}

// forge writes a snapshot whose checksum and hash are right whatever the state is.
func forge(t *testing.T, s *State) []byte {
	forged := *s
	forged.sum = sum{}
	var h hasher
	for row := range s.Scan("") {
		forged.sum = forged.sum.add(h.row(row))
		if row.Account != nil {
			for hold := range row.Account.holds.all() {
				forged.sum = forged.sum.add(h.hold(row.Key, hold))
			}
		}
	}
	for r := range s.results.all() {
		forged.sum = forged.sum.add(h.result(r))
	}
	return snapshotOf(t, &forged)
}

func TestASnapshotWhoseBooksDoNotBalanceIsRefused(t *testing.T) {
	t.Parallel()
	s := sampleState(t)
	_, err := ReadSnapshot(bytes.NewReader(forge(t, s)))
	require.NoError(t, err, "an honest forgery")
	holder := "reservations/rome/a"
	for name, change := range map[string]func(account, holder *Row){
		"held":        func(a, _ *Row) { a.Account.Held = cores(1) },
		"used":        func(a, _ *Row) { a.Account.Used = cores(1) },
		"heldOrUsed":  func(a, _ *Row) { a.Account.HeldOrUsed = nil },
		"lost hold":   func(a, _ *Row) { hold := *a.Account.holds.get(holder); a.Account.free(&hold) },
		"lost ledger": func(_, h *Row) { h.Ledger = &Ledger{} },
		"ended":       func(_, h *Row) { h.Ledger.Ended = true },
		"fence":       func(_, h *Row) { h.Ledger.Holds[0].Fence++ },
		"newer":       func(_, h *Row) { h.BodyRev = s.Revision() + 1 },
		"facts":       func(a, _ *Row) { a.Account.Allocatable[0].Value = -1 },
	} {
		account, row := s.Row(paris).edit(), s.Row(holder).edit()
		figures, ledger := *account.Account, *row.Ledger
		figures.Allocatable = append(figures.Allocatable[:0:0], figures.Allocatable...)
		ledger.Holds = append(ledger.Holds[:0:0], ledger.Holds...)
		account.Account, row.Ledger = &figures, &ledger
		change(account, row)
		broken := *s
		broken.rows, _, _ = s.rows.Insert([]byte(paris), account)
		broken.rows, _, _ = broken.rows.Insert([]byte(holder), row)
		_, err := ReadSnapshot(bytes.NewReader(forge(t, &broken)))
		require.ErrorIs(t, err, ErrCorrupt, name)
	}
}

func TestAHugeLengthInASnapshotTakesNoMemory(t *testing.T) {
	t.Parallel()
	head := append([]byte(snapshotMagic), snapshotFormat, frameHeader)
	_, err := ReadSnapshot(bytes.NewReader(append(bytes.Clone(head), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f)))
	require.ErrorIs(t, err, ErrCorrupt)
	_, err = ReadSnapshot(bytes.NewReader(head))
	require.ErrorIs(t, err, ErrCorrupt)
}

func TestAJumpMovesTheRevisionOnly(t *testing.T) {
	t.Parallel()
	s := sampleState(t)
	far, err := s.Jump(s.Revision() + 1_000_000)
	require.NoError(t, err)
	require.Equal(t, s.Revision()+1_000_000, far.Revision())
	require.Equal(t, s.Len(""), far.Len(""))
	require.NotEqual(t, s.Hash(), far.Hash())
	_, err = ReadSnapshot(bytes.NewReader(snapshotOf(t, far)))
	require.NoError(t, err)
	_, err = far.Jump(s.Revision())
	require.ErrorIs(t, err, ErrInvalid)

	b := &bench{t: t, state: far, now: 2000}
	require.Equal(t, far.Revision()+1, b.must(Txn{Writes: []Write{{Key: "x/y", Body: []byte("z")}}}).Revision)
}

var errDiskFull = errors.New("disk full")

type failingWriter struct{ left int }

func (w *failingWriter) Write(b []byte) (int, error) {
	if w.left -= len(b); w.left < 0 {
		return 0, errDiskFull
	}
	return len(b), nil
}

func TestAFailedWriteIsReported(t *testing.T) {
	t.Parallel()
	s := sampleState(t)
	size := len(snapshotOf(t, s))
	for _, room := range []int{0, size - sha256.Size, size - 1} {
		require.ErrorIs(t, WriteSnapshot(&failingWriter{room}, s), errDiskFull, "room %d", room)
	}
	require.NoError(t, WriteSnapshot(&failingWriter{size}, s))
}
