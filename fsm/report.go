package fsm

import (
	"fmt"

	"github.com/bourse-dev/bourse/allocation"
)

// report applies one Advertise. A fact always wins, even one that leaves an account short of
// what it has promised: no hold ends by that.
func (a *applier) report(r *Report) Result {
	d := a.draft()
	refusal := d.advertise(r)
	if refusal == nil {
		d.commit()
	}
	result := Result{Revision: a.revision, Refusal: refusal}
	if row := d.read(r.Account); row != nil && row.Account != nil {
		result.Epoch = row.Account.Epoch
	}
	return result
}

func (d *draft) advertise(r *Report) *Refusal {
	row := d.read(r.Account)
	if row == nil || row.Account == nil {
		return &Refusal{Kind: RefusedMissing, Key: r.Account, Revision: d.revision}
	}
	if fault := r.fault(); fault != "" {
		return &Refusal{Kind: RefusedInvalid, Key: fault, Revision: d.revision}
	}
	if r.Open {
		d.openSession(row, r)
		return nil
	}
	account := row.Account
	var kind RefusalKind
	switch {
	case r.Epoch < account.Epoch:
		kind = RefusedEpoch
	case r.Epoch > account.Epoch || r.Session != account.Session:
		// Another session under the same number comes from a history that a restore cut off.
		kind = RefusedSession
	case r.Sequence <= account.Sequence:
		kind = RefusedLate
	default:
		d.recordFacts(row, r)
		return nil
	}
	return &Refusal{Kind: kind, Key: r.Account, Revision: row.Revision()}
}

// openSession gives the session the next epoch; a repetition gets the same one again. Facts
// stay as they are until the session reports its own.
func (d *draft) openSession(row *Row, r *Report) {
	if row.Account.Epoch > 0 && row.Account.Session == r.Session {
		return
	}
	dr := d.touch(row.Key)
	account := dr.account()
	account.Session, account.Epoch, account.Sequence = r.Session, account.Epoch+1, 0
	dr.row.FactsRev = dr.revision
	dr.ledger().SeenAt = d.time
}

// recordFacts writes the row only where something changed: the sequence alone is not worth a
// revision, so it is remembered with the next change.
func (d *draft) recordFacts(row *Row, r *Report) {
	used := d.useByHold(row.Account, r.Use)
	old := AccountFacts{Allocatable: row.Account.Allocatable, Allocated: row.Account.Allocated, LargestFree: row.Account.LargestFree}
	if len(used) == 0 && old.Allocatable.Equal(r.Facts.Allocatable) && old.Allocated.Equal(r.Facts.Allocated) && old.LargestFree.Equal(r.Facts.LargestFree) {
		return
	}
	dr := d.touch(row.Key)
	account := dr.account()
	account.Sequence = r.Sequence
	account.Allocatable, account.Allocated, account.LargestFree = r.Facts.Allocatable, r.Facts.Allocated, r.Facts.LargestFree
	for _, hold := range used {
		before := account.holds.get(hold.Holder)
		account.free(before)
		account.take(hold)
		d.sum = d.sum.sub(d.hasher.hold(row.Key, before)).add(d.hasher.hold(row.Key, hold))
	}
	dr.row.FactsRev = dr.revision
	dr.ledger().SeenAt = d.time
}

// useByHold returns the holds whose use changes. A report names all use: a hold it leaves
// out, or names with another fence, has none.
func (d *draft) useByHold(account *Account, use []HoldUse) (changed []*Hold) {
	byHolder := make(map[string]*HoldUse, len(use))
	for i := range use {
		byHolder[use[i].Holder] = &use[i]
	}
	for hold := range account.holds.all() {
		var used allocation.Amounts
		if u := byHolder[hold.Holder]; u != nil && u.Fence == hold.Fence {
			used = u.Used
		}
		if !used.Equal(hold.Used) {
			next := *hold
			next.Used = used
			changed = append(changed, &next)
		}
	}
	return changed
}

// fault names the part of the report that is malformed; empty where none is.
func (r *Report) fault() string {
	switch {
	case r.Session == [16]byte{}:
		return "session"
	case !r.Facts.Allocatable.Valid():
		return "facts.allocatable"
	case !r.Facts.Allocated.Valid():
		return "facts.allocated"
	case !r.Facts.LargestFree.Valid():
		return "facts.largestFree"
	}
	var total tally
	seen := make(map[string]bool, len(r.Use))
	for i := range r.Use {
		u := &r.Use[i]
		if u.Holder == "" || seen[u.Holder] {
			return fmt.Sprintf("use[%d].holder", i)
		}
		seen[u.Holder] = true
		if !u.Used.Valid() {
			return fmt.Sprintf("use[%d].used", i)
		}
		// Bounded in sum, so that an account's figures never saturate.
		// Bounded in names too: adding up takes time by their number.
		total.add(u.Used)
		if len(total.list) > MaxResources {
			return fmt.Sprintf("use[%d].used", i)
		}
		for _, a := range u.Used {
			if total.list.Get(a.Resource) > allocation.MaxAmount {
				return fmt.Sprintf("use[%d].used", i)
			}
		}
	}
	return ""
}
