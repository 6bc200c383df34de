package fsm

import (
	"fmt"

	"github.com/bourse-dev/bourse/allocation"
	"github.com/bourse-dev/bourse/internal/planted"
)

// fault names the part of the Txn that is malformed whatever the state is; empty where none is.
func (t *Txn) fault() string {
	for i := range t.Writes {
		if part := t.Writes[i].fault(); part != "" {
			return fmt.Sprintf("writes[%d].%s", i, part)
		}
	}
	if i, ok := t.deletedTwice(); ok {
		return fmt.Sprintf("writes[%d].delete", i)
	}
	for i := range t.Moves {
		if part := t.Moves[i].fault(); part != "" {
			return fmt.Sprintf("moves[%d].%s", i, part)
		}
	}
	return ""
}

// deletedTwice finds a write to a row that the same Txn deletes: which came first is no
// question a command should raise.
func (t *Txn) deletedTwice() (int, bool) {
	if len(t.Writes) < 2 {
		return 0, false
	}
	deleted := make(map[string]int, len(t.Writes))
	for i := range t.Writes {
		if t.Writes[i].Delete {
			deleted[t.Writes[i].Key] = i
		}
	}
	for i := range t.Writes {
		if at, ok := deleted[t.Writes[i].Key]; ok && at != i {
			return i, true
		}
	}
	return 0, false
}

func (w *Write) fault() string {
	parts := w.Body != nil || w.Facts != nil || w.Ledger != nil || w.Terms != nil
	switch {
	case w.Key == "":
		return "key"
	case w.Delete && (parts || w.IfAbsent || w.SpecChanged):
		return "delete"
	case !w.Delete && !parts:
		return "body"
	case w.SpecChanged && w.Body == nil:
		return "specChanged"
	case w.Terms != nil && !w.Terms.KeepBack.Valid():
		return "terms.keepBack"
	case w.Ledger != nil && w.Ledger.ExpiresAt < 0:
		return "ledger.expiresAt"
	}
	return ""
}

func (m *Move) fault() string {
	switch {
	case m.Op < MoveHold || m.Op > MoveResize:
		return "op"
	case m.Account == "":
		return "account"
	case m.Holder == "" || m.Holder == m.Account:
		return "holder"
	case (m.Op == MoveTransfer) != (m.To != "") || m.To == m.Holder || m.To == m.Account:
		return "to"
	case m.sizes() != (len(m.Amounts) > 0) || !m.Amounts.Valid():
		return "amounts"
	case !m.sizes() && m.Priority != 0:
		return "priority"
	}
	return ""
}

// sizes says whether the move says how much is held.
func (m *Move) sizes() bool { return m.Op == MoveHold || m.Op == MoveResize }

// release ends a hold that must be there.
func (d *draft) release(m *Move) *Refusal {
	if _, refusal := d.accountOf(m); refusal != nil {
		return refusal
	}
	if _, refusal := d.holdOf(m); refusal != nil {
		return refusal
	}
	d.endHold(m.Account, d.touch(m.Holder))
	return nil
}

// transfer hands a hold on. It takes nothing new, so it asks neither for room nor whether
// the account is open. What the pods inside use stays counted until the agent's next report.
func (d *draft) transfer(m *Move) *Refusal {
	account, refusal := d.accountOf(m)
	if refusal != nil {
		return refusal
	}
	hold, refusal := d.holdOf(m)
	if refusal != nil {
		return refusal
	}
	if refusal := d.mayHold(m.To, account); refusal != nil {
		return refusal
	}
	d.endHold(m.Account, d.touch(m.Holder))
	next := *hold
	d.beginHold(m.Account, d.touch(m.To), &next)
	return nil
}

// resize changes what a hold takes. Less is always granted, more as a new hold would be: the account
// must be open, and what is added must fit. (Release and hold in its place would count the pods inside
// twice, as the cluster's own and as what is promised, until the agent's next report.)
func (d *draft) resize(m *Move) *Refusal {
	if d.behaviour < ResizeBehaviour {
		return &Refusal{Kind: RefusedInvalid, Key: "moves.op", Revision: d.revision}
	}
	account, refusal := d.accountOf(m)
	if refusal != nil {
		return refusal
	}
	hold, refusal := d.holdOf(m)
	if refusal != nil {
		return refusal
	}
	if added := m.Amounts.Max(hold.Used).Sub(hold.Amounts.Max(hold.Used)).Max(nil); len(added) > 0 {
		if account.Closed() {
			return &Refusal{Kind: RefusedClosed, Key: m.Account, Revision: account.Revision()}
		}
		if lack, fits := allocation.Fits(&account.Account.Account, added); !fits {
			return &Refusal{Kind: RefusedCapacity, Key: m.Account, Lack: lack, Revision: account.Revision()}
		}
	}
	holder := d.touch(m.Holder)
	d.endHold(m.Account, holder)
	next := *hold
	next.Amounts, next.Priority = m.Amounts, m.Priority
	d.putHold(m.Account, holder, &next)
	return nil
}

// hold takes an amount of the account, if it fits. This is where nothing is promised twice.
func (d *draft) hold(m *Move) *Refusal {
	account, refusal := d.accountOf(m)
	if refusal != nil {
		return refusal
	}
	if account.Closed() {
		return &Refusal{Kind: RefusedClosed, Key: m.Account, Revision: account.Revision()}
	}
	if refusal := d.mayHold(m.Holder, account); refusal != nil {
		return refusal
	}
	lack, fits := allocation.Fits(&account.Account.Account, m.Amounts)
	if fits && account.Account.HoldCount() >= MaxHoldsPerAccount {
		lack, fits = allocation.Lack{Resource: "holds", Requested: 1}, false
	}
	if !fits && planted.Bug != planted.TwoPlanners {
		return &Refusal{Kind: RefusedCapacity, Key: m.Account, Lack: lack, Revision: account.Revision()}
	}
	d.beginHold(m.Account, d.touch(m.Holder), &Hold{Amounts: m.Amounts, Priority: m.Priority})
	return nil
}

func (d *draft) accountOf(m *Move) (*Row, *Refusal) {
	if row := d.read(m.Account); row != nil && row.Account != nil {
		return row, nil
	}
	return nil, &Refusal{Kind: RefusedMissing, Key: m.Account, Revision: d.revision}
}

// holdOf finds the hold that a move ends. Its holder may be deleted by this very command.
func (d *draft) holdOf(m *Move) (*Hold, *Refusal) {
	if hold := d.read(m.Account).Account.holds.get(m.Holder); hold != nil {
		return hold, nil
	}
	return nil, &Refusal{Kind: RefusedMissing, Key: m.Holder, Revision: d.revision}
}

// mayHold asks whether the row can take one more hold, on this account.
func (d *draft) mayHold(holder string, account *Row) *Refusal {
	row := d.read(holder)
	switch {
	case row == nil:
		return &Refusal{Kind: RefusedMissing, Key: holder, Revision: d.revision}
	case row.Ledger == nil:
		return nil
	case row.Ledger.Ended:
		return &Refusal{Kind: RefusedGuard, Key: holder, Part: PartLedger, Revision: row.LedgerRev}
	case len(row.Ledger.Holds) >= MaxHoldsPerRow:
		return &Refusal{Kind: RefusedInvalid, Key: "moves.holder", Revision: row.LedgerRev}
	}
	if _, held := findHeld(row.Ledger.Holds, account.Key); held {
		return &Refusal{Kind: RefusedHeld, Key: account.Key, Revision: account.Revision()}
	}
	return nil
}
