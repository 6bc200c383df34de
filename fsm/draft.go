package fsm

import (
	"slices"
	"strings"

	"github.com/bourse-dev/bourse/internal/planted"
)

// draft is what one command is about to write. Nothing of it is in the state before commit,
// so a refusal just drops it.
type draft struct {
	*applier
	written []*draftRow // in the order they were first touched, which is that of revisions
	sum     sum         // of the holds added, less those removed
}

// draftRow is one row of a draft. Every part it changes is copied first.
type draftRow struct {
	before   *Row // nil: created by this command
	row      *Row
	revision Revision
	deleted  bool
	ended    bool // the command ended it
	ownParts struct{ ledger, account bool }
}

func (a *applier) draft() *draft {
	clear(a.drafted)
	return &draft{applier: a}
}

// read returns the row as the command has left it so far, or nil.
func (d *draft) read(key string) *Row {
	if dr := d.drafted[key]; dr != nil {
		if dr.deleted {
			return nil
		}
		return dr.row
	}
	row, _ := d.tree.Get([]byte(key))
	return row
}

// touch makes the row one that the command writes, creating it where it is not there.
func (d *draft) touch(key string) *draftRow {
	if dr := d.drafted[key]; dr != nil {
		return dr
	}
	dr := &draftRow{revision: d.revision + Revision(len(d.written)) + 1}
	if dr.before, _ = d.tree.Get([]byte(key)); dr.before != nil {
		dr.row = dr.before.edit()
	} else {
		dr.row = &Row{Key: key, Created: dr.revision}
	}
	d.drafted[key] = dr
	d.written = append(d.written, dr)
	return dr
}

// ledger returns the row's ledger to change, its revision raised.
func (dr *draftRow) ledger() *Ledger {
	if !dr.ownParts.ledger {
		own := Ledger{}
		if dr.row.Ledger != nil {
			own = *dr.row.Ledger
		}
		dr.row.Ledger, dr.ownParts.ledger = &own, true
	}
	dr.row.LedgerRev = dr.revision
	return dr.row.Ledger
}

// account returns the row's account to change, its revision raised.
func (dr *draftRow) account() *Account {
	if !dr.ownParts.account {
		own := Account{}
		if dr.row.Account != nil {
			own = *dr.row.Account
		}
		dr.row.Account, dr.ownParts.account = &own, true
	}
	dr.row.LedgerRev = dr.revision
	return dr.row.Account
}

// commit writes the draft to the state being made.
func (d *draft) commit() {
	d.applier.sum = d.applier.sum.add(d.sum)
	for _, dr := range d.written {
		change := Change{Revision: dr.revision, Before: dr.before, After: dr.row}
		if dr.before != nil {
			d.applier.sum = d.applier.sum.sub(dr.before.sum)
		}
		if dr.deleted {
			change.After = nil
			d.tree.Delete([]byte(dr.before.Key))
		} else {
			dr.row.sum = d.hasher.row(dr.row)
			d.applier.sum = d.applier.sum.add(dr.row.sum)
			d.tree.Insert([]byte(dr.row.Key), dr.row)
		}
		d.changes = append(d.changes, change)
	}
	d.revision += Revision(len(d.written))
}

// run does the Txn in the draft, or says why not.
func (d *draft) run(t *Txn) *Refusal {
	for i := range t.Guards {
		g := &t.Guards[i]
		if refusal := g.check(d.read(g.Key), &d.State); refusal != nil {
			return refusal
		}
	}
	if fault := t.fault(); fault != "" {
		return &Refusal{Kind: RefusedInvalid, Key: fault, Revision: d.revision}
	}
	if refusal := d.moves(t, MoveRelease, d.release); refusal != nil {
		return refusal
	}
	writes := t.Writes
	if planted.Bug == planted.MapOrder {
		writes = planted.MapOrdered(writes)
	}
	for i := range writes {
		if refusal := d.write(&writes[i]); refusal != nil {
			return refusal
		}
	}
	if refusal := d.moves(t, MoveTransfer, d.transfer); refusal != nil {
		return refusal
	}
	d.releaseEnded()
	if refusal := d.moves(t, MoveResize, d.resize); refusal != nil {
		return refusal
	}
	if refusal := d.moves(t, MoveHold, d.hold); refusal != nil {
		return refusal
	}
	return d.deletedInUse()
}

func (d *draft) moves(t *Txn, op MoveOp, do func(*Move) *Refusal) *Refusal {
	for i := range t.Moves {
		if t.Moves[i].Op != op {
			continue
		}
		if refusal := do(&t.Moves[i]); refusal != nil {
			return refusal
		}
	}
	return nil
}

func (d *draft) write(w *Write) *Refusal {
	row := d.read(w.Key)
	if w.IfAbsent && row != nil {
		return nil
	}
	if w.Delete {
		if row == nil {
			return &Refusal{Kind: RefusedMissing, Key: w.Key, Revision: d.revision}
		}
		d.touch(w.Key).deleted = true
		return nil
	}
	dr := d.touch(w.Key)
	if w.Body != nil {
		if w.SpecChanged || dr.row.BodyRev == 0 {
			dr.row.SpecRev = dr.revision
		}
		dr.row.Body, dr.row.BodyRev = w.Body, dr.revision
	}
	if w.Facts != nil {
		dr.row.Facts, dr.row.FactsRev = w.Facts, dr.revision
	}
	if w.Ledger != nil {
		own := dr.ledger()
		fence, holds := own.Fence, own.Holds
		*own = *w.Ledger
		own.Fence, own.Holds = fence, holds
		dr.ended = own.Ended
	}
	if w.Terms != nil {
		account := dr.account()
		account.KeepBack, account.Closed = w.Terms.KeepBack, w.Terms.Closed
	}
	return nil
}

// releaseEnded releases what rows that this command ended or deleted hold.
func (d *draft) releaseEnded() {
	for i := 0; i < len(d.written); i++ { // grows by the accounts
		dr := d.written[i]
		if !dr.deleted && !dr.ended || dr.row.Ledger == nil {
			continue
		}
		for _, held := range dr.row.Ledger.Holds {
			d.endHold(held.Account, dr)
		}
	}
}

// deletedInUse refuses to delete an account that somebody still holds on.
func (d *draft) deletedInUse() *Refusal {
	for _, dr := range d.written {
		if dr.deleted && dr.row.Account != nil && dr.row.Account.HoldCount() > 0 {
			return &Refusal{Kind: RefusedInUse, Key: dr.row.Key, Revision: dr.before.Revision()}
		}
	}
	return nil
}

// endHold takes the holder's hold off the account and out of the holder's ledger.
func (d *draft) endHold(account string, holder *draftRow) {
	dr := d.touch(account)
	hold := dr.row.Account.holds.get(holder.row.Key)
	dr.account().free(hold)
	d.sum = d.sum.sub(d.hasher.hold(account, hold))
	ledger := holder.ledger()
	at, _ := findHeld(ledger.Holds, account)
	ledger.Holds = slices.Delete(slices.Clone(ledger.Holds), at, at+1)
	if len(ledger.Holds) == 0 {
		ledger.Holds = nil
	}
}

// beginHold puts the hold on the account and into the holder's ledger, fenced by the
// revision of the holder's write.
func (d *draft) beginHold(account string, holder *draftRow, hold *Hold) {
	hold.Holder, hold.Fence = holder.row.Key, holder.revision
	d.putHold(account, holder, hold)
	holder.ledger().Fence = hold.Fence
}

// putHold adds the hold to both, as it is.
func (d *draft) putHold(account string, holder *draftRow, hold *Hold) {
	d.touch(account).account().take(hold)
	d.sum = d.sum.add(d.hasher.hold(account, hold))
	ledger := holder.ledger()
	at, _ := findHeld(ledger.Holds, account)
	held := Held{Account: account, Amounts: hold.Amounts, Fence: hold.Fence}
	ledger.Holds = slices.Insert(slices.Clone(ledger.Holds), at, held)
}

func findHeld(holds []Held, account string) (int, bool) {
	return slices.BinarySearchFunc(holds, account, func(h Held, key string) int { return strings.Compare(h.Account, key) })
}
