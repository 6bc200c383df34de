package fsm

import (
	"fmt"

	"github.com/bourse-dev/bourse/allocation"
)

// world makes commands that are mostly sensible, from the state as it is: a proposer with
// good eyes and a bad character. What it has proposed is in entries.
type world struct {
	state   *State
	entries [][]byte
	now     Millis
	ids     uint64
	sent    []Txn // to be sent again
	step    uint64
}

func newWorld() *world { return &world{state: New(), now: 1_700_000_000_000} }

const accounts, holders = 3, 7

func accountKey(i int) string { return fmt.Sprintf("clusteradvertisements/c%d-adv", i) }
func holderKey(i int) string  { return fmt.Sprintf("reservations/rome/r%d", i) }

// dice stretches one draw to as many choices as a command needs.
type dice struct{ state uint64 }

func (d *dice) n(sides int) int {
	d.state += 0x9E3779B97F4A7C15
	z := d.state
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return int((z ^ z>>31) >> 1 % uint64(sides))
}

func (d *dice) one(in int) bool { return d.n(in) == 0 }

func amounts(cpu, memory, gpu int) allocation.Amounts {
	return allocation.NewAmounts(
		allocation.Amount{Resource: allocation.CPU, Value: int64(cpu)},
		allocation.Amount{Resource: allocation.Memory, Value: int64(memory)},
		allocation.Amount{Resource: "nvidia.com/gpu", Value: int64(gpu)},
	)
}

// next makes one entry of a draw.
func (w *world) next(draw uint64) *Entry {
	w.step++
	d := &dice{draw ^ w.step*0xD6E8FEB86659FD93}
	w.now += Millis(d.n(3000) - 200)
	e := &Entry{Time: w.now}
	switch {
	case w.step == 1:
		e.Behaviour = SupportedBehaviour
		return e
	case w.step <= 4:
		return w.open(e)
	}
	switch d.n(10) {
	case 0:
		if d.one(4) {
			e.Behaviour = FirstBehaviour
		}
	case 1, 2:
		for range 1 + d.n(2) {
			e.Reports = append(e.Reports, w.report(d))
		}
	default:
		for range 1 + d.n(3) {
			e.Txns = append(e.Txns, w.txn(d))
		}
	}
	return e
}

// open makes the accounts, with an agent each, in three entries.
func (w *world) open(e *Entry) *Entry {
	for i := range accounts {
		key := accountKey(i)
		r := Report{Account: key, Session: [16]byte{1}, Open: w.step == 3, Epoch: 1, Sequence: 1}
		switch w.step {
		case 2:
			e.Txns = append(e.Txns, Txn{Guards: []Guard{GuardAbsent(key)}, Writes: []Write{{Key: key, Body: []byte(key), Terms: &Terms{}}}})
		case 3:
			e.Reports = append(e.Reports, r)
		default:
			r.Facts = AccountFacts{Allocatable: amounts(40, 40, 4), Allocated: amounts(4, 4, 0), LargestFree: amounts(10, 10, 1)}
			e.Reports = append(e.Reports, r)
		}
	}
	return e
}

func (w *world) report(d *dice) Report {
	key := accountKey(d.n(accounts))
	r := Report{Account: key, Session: [16]byte{byte(1 + d.n(2))}}
	row := w.state.Row(key)
	if row == nil || row.Account == nil || row.Account.Epoch == 0 || d.one(8) {
		r.Open = true
		return r
	}
	a := row.Account
	if !d.one(6) {
		r.Session = a.Session
	}
	r.Epoch, r.Sequence = a.Epoch+uint64(d.n(20)/18)-uint64(d.n(20)/19), a.Sequence+uint64(d.n(4))
	r.Facts = AccountFacts{Allocatable: a.Allocatable, Allocated: a.Allocated, LargestFree: a.LargestFree}
	if !d.one(5) {
		r.Facts.Allocatable = amounts(d.n(40), d.n(40), d.n(4))
		r.Facts.Allocated = amounts(d.n(8), d.n(8), 0)
		r.Facts.LargestFree = amounts(d.n(10), d.n(10), 1)
	}
	for hold := range a.Holds() {
		if d.one(2) {
			r.Use = append(r.Use, HoldUse{Holder: hold.Holder, Fence: hold.Fence - Revision(d.n(5)/4), Used: amounts(d.n(12), d.n(12), 0)})
		}
	}
	return r
}

func (w *world) txn(d *dice) Txn {
	if len(w.sent) > 0 && d.one(12) {
		return w.sent[d.n(len(w.sent))]
	}
	t := w.command(d)
	if d.one(6) { // two in one, whatever that means
		more := w.command(d)
		t.Writes, t.Moves = append(t.Writes, more.Writes...), append(t.Moves, more.Moves...)
	}
	if !d.one(3) {
		w.ids++
		t.ID = RequestID{Seen: w.state.Revision(), Random: w.ids}
		w.sent = append(w.sent, t)
	}
	return t
}

func (w *world) command(d *dice) Txn {
	holder, account := holderKey(d.n(holders)), accountKey(d.n(accounts))
	row := w.state.Row(holder)
	switch d.n(14) {
	case 12, 13:
		return Txn{Moves: []Move{{Op: MoveResize, Account: w.heldBy(d, row, account), Holder: holder, Amounts: amounts(d.n(12), d.n(12), d.n(2)), Priority: int32(d.n(3))}}}
	case 0, 1:
		write := Write{Key: account, Body: []byte{byte(d.n(256))}, Terms: &Terms{KeepBack: amounts(d.n(5), 0, 0), Closed: d.one(10)}}
		if w.state.Row(account) == nil {
			return Txn{Guards: []Guard{GuardAbsent(account)}, Writes: []Write{write}}
		}
		return Txn{Writes: []Write{write}}
	case 2, 3, 4:
		return w.grant(d, holder, account)
	case 5:
		return Txn{Moves: []Move{{Op: MoveRelease, Account: w.heldBy(d, row, account), Holder: holder}}}
	case 6:
		return Txn{Moves: []Move{{Op: MoveTransfer, Account: w.heldBy(d, row, account), Holder: holder, To: holderKey(d.n(holders))}}}
	case 7:
		return Txn{Writes: []Write{{Key: holder, Ledger: &Ledger{Phase: 3, Ended: true, EndedAt: w.now, PriceNano: -1}}}}
	case 8:
		if d.one(3) {
			return Txn{Writes: []Write{{Key: account, Delete: true}}}
		}
		return Txn{Writes: []Write{{Key: holder, Delete: true}}}
	case 9:
		if row == nil || row.Ledger == nil {
			return Txn{Writes: []Write{{Key: holder, IfAbsent: true, Body: []byte("{}"), Facts: []byte{}}}}
		}
		longer := *row.Ledger
		longer.ExpiresAt += Millis(1 + d.n(5000))
		return Txn{Guards: []Guard{GuardLedger(row)}, Writes: []Write{{Key: holder, Body: []byte("longer"), SpecChanged: true, Ledger: &longer}}}
	case 10:
		if row == nil || row.Ledger == nil {
			return Txn{Guards: []Guard{{Key: holder, Part: PartLease, Revision: 1, ExpiresAt: 1}}}
		}
		expired := *row.Ledger
		expired.Phase, expired.Ended, expired.EndedAt = 3, true, w.now
		guard := GuardLease(row)
		guard.ExpiresAt -= Millis(d.n(4) / 3)
		guard.Revision -= Revision(d.n(4) / 3)
		return Txn{Guards: []Guard{guard}, Writes: []Write{{Key: holder, Ledger: &expired}}}
	default:
		return w.odd(d, holder, account)
	}
}

func (w *world) grant(d *dice, holder, account string) Txn {
	ledger := &Ledger{
		Phase: 2, Target: account, GrantedAt: w.now, ExpiresAt: w.now + Millis(d.n(8000)), PriceNano: int64(d.n(100)) - 1,
		Message: "granted", Decision: []byte{1, 2}, Conditions: []Condition{{Type: "Ready", Status: true, Since: w.now}},
	}
	t := Txn{
		Writes: []Write{{Key: holder, Ledger: ledger}},
		Moves:  []Move{{Op: MoveHold, Account: account, Holder: holder, Amounts: amounts(1+d.n(10), d.n(10), d.n(20)/18), Priority: int32(d.n(5) - 2)}},
	}
	switch row := w.state.Row(holder); {
	case row == nil:
		t.Guards = []Guard{GuardAbsent(holder)}
		t.Writes[0].Body, t.Writes[0].SpecChanged = []byte(holder), true
	case d.one(2):
		t.Guards = []Guard{GuardSpec(row), GuardLedger(row)}
	}
	return t
}

// heldBy picks an account that the row holds on, mostly.
func (w *world) heldBy(d *dice, row *Row, otherwise string) string {
	if row == nil || row.Ledger == nil || len(row.Ledger.Holds) == 0 || d.one(6) {
		return otherwise
	}
	return row.Ledger.Holds[d.n(len(row.Ledger.Holds))].Account
}

// odd makes what no room would.
func (w *world) odd(d *dice, holder, account string) Txn {
	switch d.n(6) {
	case 0:
		return Txn{Moves: []Move{{Op: MoveHold, Account: account, Holder: holder}}}
	case 1:
		return Txn{Writes: []Write{{Key: holder, Delete: true}, {Key: holder, Body: []byte("x")}}}
	case 2:
		return Txn{Writes: []Write{{Key: holder}}}
	case 3:
		return Txn{Moves: []Move{{Op: MoveHold, Account: account, Holder: holder, Amounts: allocation.Amounts{{Resource: allocation.CPU, Value: -5}}}}}
	case 4:
		return Txn{Guards: []Guard{{Key: holder, Part: Part(d.n(6)), Revision: Revision(d.n(30))}}}
	default:
		return Txn{ID: RequestID{Seen: w.state.Revision() + 7, Random: 1}, Writes: []Write{{Key: "namespaces/rome", IfAbsent: true, Body: []byte("ns")}}}
	}
}

// propose applies an entry to the world and keeps it.
func (w *world) propose(e *Entry) (Outcome, error) {
	data, err := EncodeEntry(e)
	if err != nil {
		return Outcome{}, err
	}
	out, err := w.state.Apply(data)
	if err != nil {
		return Outcome{}, err
	}
	w.entries = append(w.entries, data)
	w.state = out.State
	return out, nil
}
