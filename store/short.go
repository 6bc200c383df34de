package store

import (
	"github.com/bourse-dev/bourse/allocation"
	"github.com/bourse-dev/bourse/fsm"
)

// ShortHolders asks allocation.ShortHolders of an account as it is in the state: row keys, and what
// each is short of. nil where the account has all it has promised.
func ShortHolders(account *fsm.Account) map[string]allocation.Amounts {
	if len(account.Missing()) == 0 {
		return nil
	}
	holds := make([]allocation.Holding, 0, account.HoldCount())
	for h := range account.Holds() {
		holds = append(holds, allocation.Holding{
			Holder: h.Holder, Amounts: h.Amounts, Used: h.Used, Priority: h.Priority, Fence: uint64(h.Fence),
		})
	}
	return allocation.ShortHolders(&account.Account, holds)
}
