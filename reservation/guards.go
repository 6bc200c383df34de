package reservation

import "github.com/bourse-dev/bourse/fsm"

// guardsHold says whether Apply would find the Txn's guards true on this state. Where it would
// not, there is nothing to decide: Apply refuses the Txn, or remembers its id.
func guardsHold(state *fsm.State, txn *fsm.Txn) bool {
	for i := range txn.Guards {
		g := &txn.Guards[i]
		row := state.Row(g.Key)
		if row == nil {
			if g.Part != fsm.PartRow || g.Revision != 0 {
				return false
			}
			continue
		}
		if revisionOf(row, g.Part) != g.Revision {
			return false
		}
	}
	return true
}

func revisionOf(row *fsm.Row, part fsm.Part) fsm.Revision {
	switch part {
	case fsm.PartBody:
		return row.BodyRev
	case fsm.PartFacts:
		return row.FactsRev
	case fsm.PartLedger:
		return row.LedgerRev
	case fsm.PartSpec:
		return row.SpecRev
	case fsm.PartLease:
		if row.Ledger != nil {
			return row.Ledger.Fence
		}
		return 0
	default:
		return row.Revision()
	}
}
