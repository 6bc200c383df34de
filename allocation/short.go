package allocation

import (
	"cmp"
	"slices"
)

// Holding is one live hold of an account.
type Holding struct {
	Holder        string
	Amounts, Used Amounts
	Priority      int32
	Fence         uint64 // the greater, the younger
}

// Missing is what an account lacks of each resource that is promised on it; nil where it has all.
func (a *Account) Missing() Amounts {
	var missing Amounts
	for _, promised := range a.HeldOrUsed {
		if lack := a.Short(promised.Resource); lack > 0 {
			missing = append(missing, Amount{promised.Resource, lack})
		}
	}
	return missing
}

// ShortHolders says who is short on an account that is promised beyond what it has, and of how much:
// the lowest priorities first, among equals the youngest, until the rest fit. A hold that takes
// nothing of what is missing is not short. It looks at all holds of the account, of whichever kind;
// each room marks its own.
func ShortHolders(a *Account, holds []Holding) map[string]Amounts {
	missing := a.Missing()
	if len(missing) == 0 {
		return nil
	}
	holds = slices.Clone(holds)
	slices.SortFunc(holds, func(a, b Holding) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(b.Fence, a.Fence), cmp.Compare(a.Holder, b.Holder))
	})
	short := map[string]Amounts{}
	for i := range holds {
		takes := holds[i].Amounts.Max(holds[i].Used)
		var share Amounts
		for _, lack := range missing {
			if v := min(takes.Get(lack.Resource), lack.Value); v > 0 {
				share = append(share, Amount{lack.Resource, v})
			}
		}
		if len(share) > 0 {
			short[holds[i].Holder] = share
			missing = missing.Sub(share)
		}
		if len(missing) == 0 {
			break
		}
	}
	return short
}
