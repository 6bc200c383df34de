package fsm

import "github.com/bourse-dev/bourse/internal/planted"

// Guards on rows as a reader saw them.

// GuardAbsent holds while no row has the key.
func GuardAbsent(key string) Guard { return Guard{Key: key, Part: PartRow} }

// GuardRow holds while no part of the row was written since.
func GuardRow(r *Row) Guard { return Guard{Key: r.Key, Part: PartRow, Revision: r.Revision()} }

// GuardBody holds while the body was not written since; facts and ledger may have been.
func GuardBody(r *Row) Guard { return Guard{Key: r.Key, Part: PartBody, Revision: r.BodyRev} }

// GuardSpec holds while the spec did not change since; annotations and labels may have.
func GuardSpec(r *Row) Guard { return Guard{Key: r.Key, Part: PartSpec, Revision: r.SpecRev} }

// GuardFacts holds while no report was recorded since.
func GuardFacts(r *Row) Guard { return Guard{Key: r.Key, Part: PartFacts, Revision: r.FactsRev} }

// GuardLedger holds while neither the ledger nor the account's figures changed since.
func GuardLedger(r *Row) Guard { return Guard{Key: r.Key, Part: PartLedger, Revision: r.LedgerRev} }

// GuardLease holds while the lease is the very one seen, not a newer nor an extended one, and once
// its end has come by the time of the entry. The row must have a ledger.
func GuardLease(r *Row) Guard {
	return Guard{Key: r.Key, Part: PartLease, Revision: r.Ledger.Fence, ExpiresAt: r.Ledger.ExpiresAt}
}

// check returns the refusal of a guard that does not hold in the state, or nil.
func (g *Guard) check(row *Row, s *State) *Refusal {
	if row == nil {
		if g.Part == PartRow && g.Revision == 0 {
			return nil
		}
		return &Refusal{Kind: RefusedMissing, Key: g.Key, Part: g.Part, Revision: s.revision}
	}
	refusal := &Refusal{Kind: RefusedGuard, Key: g.Key, Part: g.Part, Revision: row.part(g.Part)}
	switch {
	case g.Part == PartRow && g.Revision == 0:
		refusal.Kind = RefusedExists
		return refusal
	case g.Part == PartLease:
		if row.Ledger != nil && g.endsLease(row.Ledger, s.time) {
			return nil
		}
		return refusal
	case row.part(g.Part) == g.Revision:
		return nil
	}
	return refusal
}

// endsLease says whether the ledger's lease is the very one that the guard's maker saw, and is over.
func (g *Guard) endsLease(l *Ledger, now Millis) bool {
	fence := l.Fence == g.Revision || planted.Bug == planted.FenceUnchecked
	expiry := l.ExpiresAt > 0 && l.ExpiresAt == g.ExpiresAt || planted.Bug == planted.LateExpiry
	return fence && expiry && now >= g.ExpiresAt
}
