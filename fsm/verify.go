package fsm

import "fmt"

// addUpHolds is how many holds an assertion may add up per account and change, on average.
const addUpHolds = 8

// assert checks what may never break, on every row that this entry wrote: each account's
// figures are the sums of its holds, and each row's ledger names exactly its holds.
func (a *applier) assert() {
	var s sums
	for i := range a.changes {
		row := a.changes[i].After
		if row == nil || a.Row(row.Key) != row {
			continue // gone, or written again by a later command
		}
		broken := a.ledgerDisagreement(row)
		if broken == "" && dueToAddUp(row) {
			broken = row.Account.disagreement(&s)
		}
		if broken != "" {
			panic(&InvariantError{Revision: a.revision, Key: row.Key, Broken: broken})
		}
	}
}

// dueToAddUp spreads the work: an account of fewer than addUpHolds holds is added up at each of its
// changes, a longer one at one in holds/addUpHolds of them. A wrong sum is carried on from change
// to change, so it is found a little later, and by every replica at the same revision.
func dueToAddUp(row *Row) bool {
	if row.Account == nil {
		return false
	}
	oneIn := uint64(1 + row.Account.HoldCount()/addUpHolds)
	// Revisions of one account come in strides: mixed, they can't all miss.
	return (uint64(row.Revision())*0x9E3779B97F4A7C15)>>32%oneIn == 0
}

// disagreement names what is wrong between the row and those it holds on; empty where nothing is.
func (s *State) disagreement(row *Row, scratch *sums) string {
	if row.Account != nil {
		if broken := row.Account.disagreement(scratch); broken != "" {
			return broken
		}
	}
	return s.ledgerDisagreement(row)
}

// ledgerDisagreement compares the row's ledger with the accounts it holds on.
func (s *State) ledgerDisagreement(row *Row) string {
	if row.Ledger == nil {
		return ""
	}
	if row.Ledger.Ended && len(row.Ledger.Holds) > 0 {
		return "ended, and still holds"
	}
	for i, held := range row.Ledger.Holds {
		if i > 0 && held.Account <= row.Ledger.Holds[i-1].Account {
			return "holds are not in order"
		}
		account := s.Row(held.Account)
		if account == nil || account.Account == nil {
			return "holds on an account that is not there: " + held.Account
		}
		hold := account.Account.holds.get(row.Key)
		if hold == nil || hold.Fence != held.Fence || !hold.Amounts.Equal(held.Amounts) {
			return "the ledger's hold is not the account's: " + held.Account
		}
	}
	return ""
}

// verify checks every row as Apply checks those it writes, and both ways: as many holds in
// ledgers as on accounts.
func (s *State) verify() error {
	var scratch sums
	inLedgers, onAccounts := 0, 0
	for row := range s.Scan("") {
		if broken := s.disagreement(row, &scratch); broken != "" {
			return fmt.Errorf("%w: row %q: %s", ErrCorrupt, row.Key, broken)
		}
		if row.Ledger != nil {
			inLedgers += len(row.Ledger.Holds)
		}
		if row.Account != nil {
			onAccounts += row.Account.HoldCount()
		}
	}
	if inLedgers != onAccounts {
		return fmt.Errorf("%w: %d holds in ledgers, %d on accounts", ErrCorrupt, inLedgers, onAccounts)
	}
	return nil
}
