package fsm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bourse-dev/bourse/allocation"
)

// everything names every field of every message.
func everything() (*Txn, *Report, *Result) {
	two := allocation.NewAmounts(allocation.Amount{Resource: "cpu", Value: 1500}, allocation.Amount{Resource: "memory", Value: 1 << 40})
	txn := &Txn{
		ID: RequestID{Seen: 9, Random: 1 << 63},
		Guards: []Guard{
			{Key: "reservations/rome/a", Part: PartLease, Revision: 4, ExpiresAt: 17},
			{Key: "reservations/rome/b"},
		},
		Writes: []Write{
			{Key: "reservations/rome/a", Delete: true},
			{
				Key: "clusteradvertisements/x-adv", IfAbsent: true, Body: []byte("{}"), SpecChanged: true, Facts: []byte{},
				Ledger: &Ledger{
					Phase: 2, Ended: true, Closed: true, Target: "x", Endpoint: "https://x", GrantedAt: 1, ExpiresAt: 2, EndedAt: 3,
					SeenAt: 4, WaitUntil: 5, PriceNano: -1, Reason: "r", Message: "m", Decision: []byte{0},
					Conditions: []Condition{{Type: "Ready", Reason: "r", Message: "m", Status: true, Since: 6, Observed: 7}, {}},
				},
				Terms: &Terms{KeepBack: two, Closed: true},
			},
			{Key: "x", Body: []byte{}, Ledger: &Ledger{}, Terms: &Terms{}},
		},
		Moves: []Move{{Op: MoveTransfer, Account: "a", Holder: "h", To: "t"}, {Op: MoveHold, Account: "a", Holder: "h", Amounts: two, Priority: -1000}},
	}
	report := &Report{
		Account: "clusteradvertisements/x-adv", Session: [16]byte{15: 1}, Open: true, Epoch: 3, Sequence: 4,
		Facts: AccountFacts{Allocatable: two, Allocated: two[:1], LargestFree: two[1:]},
		Use:   []HoldUse{{Holder: "h", Fence: 8, Used: two}, {Holder: "i"}},
	}
	result := &Result{Revision: 12, Epoch: 3, Refusal: &Refusal{
		Kind: RefusedCapacity, Key: "a", Part: PartLedger, Revision: 11, Lack: allocation.Lack{Resource: "cpu", Requested: 8, Available: -1},
	}}
	return txn, report, result
}

func TestEveryFieldSurvivesTheWire(t *testing.T) {
	t.Parallel()
	txn, report, result := everything()
	b, err := EncodeTxn(txn)
	require.NoError(t, err)
	gotTxn, err := DecodeTxn(b)
	require.NoError(t, err)
	require.Equal(t, *txn, gotTxn)

	b, err = EncodeReport(report)
	require.NoError(t, err)
	gotReport, err := DecodeReport(b)
	require.NoError(t, err)
	require.Equal(t, *report, gotReport)

	gotResult, err := DecodeResult(EncodeResult(result))
	require.NoError(t, err)
	require.Equal(t, *result, gotResult)

	for _, e := range []*Entry{{Time: 5}, {Time: 5, Txns: []Txn{*txn, {}}}, {Reports: []Report{*report}}, {Time: MaxMillis, Behaviour: 7}} {
		b, err := EncodeEntry(e)
		require.NoError(t, err)
		got, err := DecodeEntry(b)
		require.NoError(t, err)
		require.Equal(t, e, got)
	}
}

func TestAProposalCannotNameFenceOrHolds(t *testing.T) {
	t.Parallel()
	own := Txn{Writes: []Write{{Key: "x", Ledger: &Ledger{Phase: 1, Fence: 7, Holds: []Held{{Account: "a", Fence: 7}}}}}}
	b, err := EncodeTxn(&own)
	require.NoError(t, err)
	got, err := DecodeTxn(b)
	require.NoError(t, err)
	require.Equal(t, &Ledger{Phase: 1}, got.Writes[0].Ledger)

	forged := appendLedger(nil, own.Writes[0].Ledger)
	_, err = parseProposedLedger(forged)
	require.ErrorIs(t, err, ErrUnknownCommand)
}

func TestWhatTheLogMayNotHoldIsRefusedWhereItIsEncoded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", MaxKeyBytes+1)
	for name, e := range map[string]*Entry{
		"key":       {Txns: []Txn{{Writes: []Write{{Key: long, Body: []byte("x")}}}}},
		"body":      {Txns: []Txn{{Writes: []Write{{Key: "x", Body: make([]byte, MaxEntryBytes)}}}}},
		"guards":    {Txns: []Txn{{Guards: make([]Guard, MaxGuards+1)}}},
		"writes":    {Txns: []Txn{{Writes: make([]Write, MaxWrites+1)}}},
		"moves":     {Txns: []Txn{{Moves: make([]Move, MaxMoves+1)}}},
		"commands":  {Txns: make([]Txn, MaxCommands+1)},
		"resources": {Txns: []Txn{{Moves: []Move{{Amounts: make(allocation.Amounts, MaxResources+1)}}}}},
		"decision":  {Txns: []Txn{{Writes: []Write{{Key: "x", Ledger: &Ledger{Decision: make([]byte, MaxDecisionBytes+1)}}}}}},
		"entry":     {Txns: []Txn{{Writes: []Write{{Key: "x", Body: make([]byte, MaxEntryBytes/2)}}}, {Writes: []Write{{Key: "y", Body: make([]byte, MaxEntryBytes/2)}}}}},
	} {
		_, err := EncodeEntry(e)
		require.ErrorIs(t, err, ErrTooLarge, name)
	}
	_, err := EncodeEntry(&Entry{Behaviour: 1, Txns: []Txn{{}}})
	require.ErrorIs(t, err, ErrInvalid)
	_, err = EncodeEntry(&Entry{Time: -1})
	require.ErrorIs(t, err, ErrInvalid)
	_, err = EncodeTxn(&Txn{Guards: []Guard{{Key: "x", Part: PartLease + 1}}})
	require.ErrorIs(t, err, ErrUnknownCommand)

	// The largest Txn fits an entry.
	largest := Txn{Writes: []Write{{Key: "x", Body: make([]byte, MaxTxnBytes-32)}}}
	_, err = EncodeTxn(&largest)
	require.NoError(t, err)
	b, err := EncodeEntry(&Entry{Time: MaxMillis, Txns: []Txn{largest}})
	require.NoError(t, err)
	one, err := EncodeTxn(&largest)
	require.NoError(t, err)
	require.LessOrEqual(t, len(b), len(one)+CommandOverhead+EntryOverhead)
}

func TestAnEntryThatCannotBeAppliedStopsTheNode(t *testing.T) {
	t.Parallel()
	good, err := EncodeEntry(&Entry{Time: 5, Txns: []Txn{{Writes: []Write{{Key: "x", Body: []byte("y")}}}}})
	require.NoError(t, err)
	flip := func(at int) []byte {
		b := bytes.Clone(good)
		b[at] ^= 0x40
		return b
	}
	for name, c := range map[string]struct {
		entry []byte
		want  error
	}{
		"empty":              {nil, ErrCorrupt},
		"cut off":            {good[:len(good)-1], ErrCorrupt},
		"header cut off":     {good[:4], ErrCorrupt},
		"a flipped bit":      {flip(len(good) - 1), ErrCorrupt},
		"a flipped type":     {flip(1), ErrCorrupt},
		"another format":     {flip(0), ErrUnknownCommand},
		"unknown type":       {seal(77, 0, nil), ErrUnknownCommand},
		"unknown flags":      {seal(kindTick, 2, nil), ErrUnknownCommand},
		"unknown field":      {seal(kindTick, 0, putUint(nil, 9, 1)), ErrUnknownCommand},
		"no command":         {seal(kindTxns, 0, putInt(nil, 1, 5)), ErrCorrupt},
		"too large":          {make([]byte, MaxEntryBytes+1), ErrTooLarge},
		"not minimal":        {seal(kindTick, 0, []byte{8, 0x80, 0}), ErrCorrupt},
		"fields in no order": {seal(kindTxns, 0, append(putMessage(nil, 2, &Txn{}, appendTxn), putInt(nil, 1, 5)...)), ErrCorrupt},
	} {
		_, err := New().Apply(c.entry)
		require.ErrorIs(t, err, c.want, name)
	}
	s := New()
	out, err := s.Apply(seal(77, flagIgnorable, []byte("whatever")))
	require.NoError(t, err)
	require.Equal(t, s, out.State, "what may be ignored changes nothing")
}

func TestABinaryStopsAtABehaviourItDoesNotKnow(t *testing.T) {
	t.Parallel()
	raise, err := EncodeEntry(&Entry{Time: 1, Behaviour: SupportedBehaviour + 1})
	require.NoError(t, err)
	_, err = New().Apply(raise)
	require.ErrorIs(t, err, ErrUnsupportedBehaviour)
	newer, err := New().apply(raise, SupportedBehaviour+1)
	require.NoError(t, err)
	require.Equal(t, SupportedBehaviour+1, newer.State.Behaviour())
	tick, err := EncodeEntry(&Entry{Time: 2})
	require.NoError(t, err)
	_, err = newer.State.Apply(tick)
	require.ErrorIs(t, err, ErrUnsupportedBehaviour)
	_, err = ReadSnapshot(bytes.NewReader(snapshotOf(t, newer.State)))
	require.ErrorIs(t, err, ErrUnsupportedBehaviour)
	lower, err := EncodeEntry(&Entry{Behaviour: FirstBehaviour})
	require.NoError(t, err)
	again, err := newer.State.apply(lower, SupportedBehaviour+1)
	require.NoError(t, err)
	require.Equal(t, SupportedBehaviour+1, again.State.Behaviour(), "it is never lowered")
}

// FuzzDecode: no bytes make a decoder panic, and what decodes encodes to the same bytes.
func FuzzDecode(f *testing.F) {
	txn, report, result := everything()
	f.Add(appendTxn(nil, txn))
	f.Add(appendReport(nil, report))
	f.Add(EncodeResult(result))
	f.Add(appendRow(nil, &Row{Key: "a/b", Created: 1, Body: []byte("x"), BodyRev: 2, Ledger: txn.Writes[1].Ledger, Account: &Account{Epoch: 3, Held: cores(2)}}))
	f.Add(appendRemembered(nil, &remembered{id: RequestID{Seen: 1, Random: 2}, result: *result}))
	header := newWorld().state.header()
	f.Add(appendHeader(nil, &header))
	f.Add(appendHold(nil, &Hold{Holder: "h", Amounts: cores(1), Used: cores(2), Fence: 3, Priority: -4}))
	f.Fuzz(func(t *testing.T, data []byte) {
		same := func(what string, err error, again func() []byte) {
			if err == nil && !bytes.Equal(again(), data) {
				t.Fatalf("%s: %x encodes to %x", what, data, again())
			}
		}
		txn, err := DecodeTxn(data)
		same("txn", err, func() []byte { return appendTxn(nil, &txn) })
		report, err := DecodeReport(data)
		same("report", err, func() []byte { return appendReport(nil, &report) })
		result, err := DecodeResult(data)
		same("result", err, func() []byte { return EncodeResult(&result) })
		row, err := parseRow(data)
		same("row", err, func() []byte { return appendRow(nil, row) })
		hold, err := parseHold(data)
		same("hold", err, func() []byte { return appendHold(nil, &hold) })
		kept, err := parseRemembered(data)
		same("remembered result", err, func() []byte { return appendRemembered(nil, &kept) })
		header, err := parseHeader(data)
		same("snapshot header", err, func() []byte { return appendHeader(nil, &header) })
	})
}

// FuzzApply: no entry, its checksum made right, makes Apply panic or break an account; two
// Applies agree.
func FuzzApply(f *testing.F) {
	w := newWorld()
	for i := range uint64(12) {
		if _, err := w.propose(w.next(i)); err != nil {
			f.Fatal(err)
		}
	}
	base := w.state
	for _, e := range w.entries {
		f.Add(e)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 7 {
			data = bytes.Clone(data)
			crc := crc32.Update(crc32.Checksum(data[:3], castagnoli), castagnoli, data[7:])
			binary.LittleEndian.PutUint32(data[3:], crc)
		}
		out, err := base.Apply(data)
		if err != nil {
			return
		}
		if e, err := DecodeEntry(data); err == nil {
			if again, err := EncodeEntry(e); err != nil || data[2] == 0 && !bytes.Equal(again, data) {
				t.Fatalf("entry %x encodes to %x (%v)", data, again, err)
			}
		}
		if again := mustApply(t, base, data); again.State.Hash() != out.State.Hash() || out.State.FullHash() != out.State.Hash() {
			t.Fatalf("hashes differ")
		}
		if err := out.State.verify(); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzReadSnapshot: no bytes, their checksum made right, make it panic, and what it accepts it writes again.
func FuzzReadSnapshot(f *testing.F) {
	w := newWorld()
	for i := range uint64(40) {
		if _, err := w.propose(w.next(i)); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(snapshotOf(f, New()))
	f.Add(snapshotOf(f, w.state))
	f.Fuzz(func(t *testing.T, data []byte) {
		if at := len(data) - sha256.Size; at > 0 { // else the checksum would hide all the rest
			sum := sha256.Sum256(data[:at])
			data = append(data[:at:at], sum[:]...)
		}
		s, err := ReadSnapshot(bytes.NewReader(data))
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnknownCommand) && !errors.Is(err, ErrTooLarge) && !errors.Is(err, ErrUnsupportedBehaviour) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if !bytes.Equal(snapshotOf(t, s), data) {
			t.Fatal("accepted, and written otherwise")
		}
	})
}
