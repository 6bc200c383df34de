package fsm

import (
	"sync/atomic"
	"weak"

	"github.com/bourse-dev/bourse/allocation"
)

// Row is one object of the state, in parts with a revision each. Rows are immutable.
//
// Keys are "<resource>/<name>" or "<resource>/<namespace>/<name>".
type Row struct {
	Key     string
	Created Revision

	Body    []byte
	BodyRev Revision
	SpecRev Revision

	Facts    []byte
	FactsRev Revision

	Ledger    *Ledger  // nil until a leader room or Apply writes it
	Account   *Account // nil unless the row is an account
	LedgerRev Revision

	sum  sum          // of this row's encoding, for the state hash
	memo atomic.Value // weak.Pointer
}

// edit returns a copy to change. Nothing that the parts point to may be changed in place.
func (r *Row) edit() *Row {
	return &Row{
		Key: r.Key, Created: r.Created,
		Body: r.Body, BodyRev: r.BodyRev, SpecRev: r.SpecRev,
		Facts: r.Facts, FactsRev: r.FactsRev,
		Ledger: r.Ledger, Account: r.Account, LedgerRev: r.LedgerRev,
	}
}

// Closed says whether the row is an account that takes no new hold, by its terms or its ledger.
func (r *Row) Closed() bool {
	return r.Account != nil && (r.Account.Closed || r.Ledger != nil && r.Ledger.Closed)
}

// part is the revision that a guard on the part compares with.
func (r *Row) part(p Part) Revision {
	switch p {
	case PartBody:
		return r.BodyRev
	case PartFacts:
		return r.FactsRev
	case PartLedger, PartLease:
		return r.LedgerRev
	case PartSpec:
		return r.SpecRev
	default:
		return r.Revision()
	}
}

// Revision is the row's: the newest of its parts'.
func (r *Row) Revision() Revision {
	return max(r.BodyRev, r.FactsRev, r.LedgerRev)
}

// Memo is what readers derive from a row (a decoded object), until nobody holds it and the collector takes it: kept for
// ever, what was read once would take more memory than the state. Readers that come at once get the same. derive must
// be pure; all readers of a row must derive the same type, else it panics. No part of the state.
func Memo[T any](r *Row, derive func() *T) *T {
	for {
		kept := r.memo.Load()
		if p, ok := kept.(weak.Pointer[T]); ok {
			if v := p.Value(); v != nil {
				return v
			}
		}
		v := derive()
		if r.memo.CompareAndSwap(kept, weak.Make(v)) {
			return v
		}
	}
}

// Ledger is the typed part of a row that only Apply writes, from what a leader room proposed.
// Holds and Fence are Apply's own and ignored in a proposal.
type Ledger struct {
	Phase      uint8 // the domain's numbers
	Ended      bool  // final: Apply releases every hold of the row
	Closed     bool  // an account takes no new hold
	Target     string
	Endpoint   string
	GrantedAt  Millis
	ExpiresAt  Millis // 0: no lease
	EndedAt    Millis
	SeenAt     Millis
	WaitUntil  Millis
	PriceNano  int64 // per hour, in billionths of the currency; -1 unpriced
	Reason     string
	Message    string
	Decision   []byte // the domain's encoding, under 1 KiB
	Conditions []Condition

	Fence Revision // at which the newest hold of the row began
	Holds []Held   // sorted by account
}

// Condition is a server-owned condition, rendered on read.
type Condition struct {
	Type, Reason, Message string
	Status                bool
	Since                 Millis
	Observed              int64 // generation
}

// Held is an amount that a row holds on an account.
type Held struct {
	Account string
	Amounts allocation.Amounts
	Fence   Revision
}

// Account is the state of one account: the reported facts, the owner's terms, and who holds what.
type Account struct {
	allocation.Account

	LargestFree allocation.Amounts
	Closed      bool // by its terms; see also Ledger.Closed
	Session     [16]byte
	Epoch       uint64
	Sequence    uint64
	Held        allocation.Amounts // sum of the holds' amounts

	holds holdTree
}

// Hold is one holder's share of an account.
type Hold struct {
	Holder   string
	Amounts  allocation.Amounts
	Used     allocation.Amounts
	Fence    Revision
	Priority int32
}

// Change is one row written: what it was and what it is.
// Before is nil at creation, After at deletion. Revision orders all changes.
type Change struct {
	Revision Revision
	Before   *Row
	After    *Row
}

// Key of the row that changed.
func (c *Change) Key() string {
	if c.After != nil {
		return c.After.Key
	}
	return c.Before.Key
}
