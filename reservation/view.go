package reservation

import (
	"strings"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// view is the market as the state shows it, and what this Step has taken from it. It is what a
// grant is decided on; Apply may still refuse.
type view struct {
	market *allocation.Market
	offers map[string]*offer // by account key
	dirty  map[string]bool   // what was taken from or given to since it was last set
}

// offer is one cluster. What comes from the body is read once per body: a grant changes the
// account of a row, not its prices.
type offer struct {
	allocation.Offer
	endpoint string
	cordoned bool // by its body
	bodyRev  fsm.Revision
}

// newView reads every advertisement of the state.
func newView(state *fsm.State) *view {
	v := &view{market: allocation.NewMarket(), offers: map[string]*offer{}, dirty: map[string]bool{}}
	for row := range state.Scan(broker.AdvertisementsPrefix) {
		v.set(row)
	}
	return v
}

// set brings one cluster up to the row; what was taken from it is forgotten.
func (v *view) set(row *fsm.Row) {
	o := v.offers[row.Key]
	if o == nil || o.bodyRev != row.BodyRev {
		o = readOffer(row)
		v.offers[row.Key] = o
	}
	o.Account, o.LargestFree, o.Cordoned, o.Holds = &allocation.Account{}, nil, o.cordoned, 0
	if row.Account != nil {
		o.Account, o.LargestFree = &row.Account.Account, row.Account.LargestFree
		o.Cordoned, o.Holds = o.cordoned || row.Account.Closed, row.Account.HoldCount()
	}
	// Apply refuses a hold on a closed account; the view says the same.
	o.Stale = row.Ledger == nil || row.Ledger.Phase != store.PhaseActive || row.Ledger.Closed
	v.market.Set(o.Offer)
}

// take has the view without what is granted.
func (v *view) take(key string, amounts allocation.Amounts) {
	v.market.Take(clusterIDOf(key), amounts)
	v.dirty[key] = true
}

// give returns to the view what a hold that is being ended leaves free: what the pods inside use
// stays allocated. The next set forgets it.
func (v *view) give(key string, hold *fsm.Hold) {
	o := v.offers[key]
	if o == nil {
		return
	}
	freed := hold.Amounts.Sub(hold.Used).Max(nil)
	v.market.Give(o.ClusterID, freed)
	v.dirty[key] = true
	account := *o.Account
	account.HeldOrUsed = account.HeldOrUsed.Sub(freed)
	o.Account, o.Holds = &account, o.Holds-1
}

// remove forgets a cluster that is no more.
func (v *view) remove(key string) {
	if o := v.offers[key]; o != nil {
		v.market.Remove(o.ClusterID)
		delete(v.offers, key)
	}
}

// reset brings clusters back to what the state says, after a Step took from them.
func (v *view) reset(state *fsm.State) {
	for key := range v.dirty {
		if row := state.Row(key); row != nil {
			v.set(row)
		} else {
			v.remove(key)
		}
	}
	clear(v.dirty)
}

func readOffer(row *fsm.Row) *offer {
	ad := store.AdvertisementOf(row)
	o := &offer{bodyRev: row.BodyRev}
	o.ClusterID = clusterIDOf(row.Key)
	if ad == nil {
		o.cordoned = true // nothing that Storage wrote: it offers nothing
		return o
	}
	o.endpoint = ad.Spec.Endpoint
	o.Region, o.Provider, o.Labels = ad.Spec.Region, ad.Spec.Provider, ad.Labels
	o.cordoned, o.Withdrawn = ad.Spec.Lending.Cordoned, ad.Spec.Lending.Withdrawn
	// A price list that does not parse can't be stored through the API; were it there, the
	// cluster would be unpriced.
	if prices, currency, err := allocation.ParsePrices(ad.Spec.Cost, ad.Annotations); err == nil {
		o.Prices, o.Currency = prices, currency
	}
	return o
}

// clusterIDOf the account key "clusteradvertisements/<id>-adv".
func clusterIDOf(key string) string {
	id, _ := broker.ClusterIDOf(strings.TrimPrefix(key, broker.AdvertisementsPrefix))
	return id
}

// improved says whether a change of an advertisement could make a request fit that did not fit
// before: more of a resource, a larger node, another price, label or lending, or open again.
func improved(change *fsm.Change) bool {
	before, after := change.Before, change.After
	switch {
	case after == nil:
		return false
	case before == nil || before.BodyRev != after.BodyRev:
		return true
	case phaseNumber(before) != phaseNumber(after):
		return phaseNumber(after) == store.PhaseActive
	case after.Account == nil:
		return false
	case before.Account == nil:
		return true
	}
	return grew(before.Account, after.Account)
}

func phaseNumber(row *fsm.Row) uint8 {
	if row.Ledger == nil {
		return 0
	}
	return row.Ledger.Phase
}

func grew(before, after *fsm.Account) bool {
	if before.HoldCount() >= fsm.MaxHoldsPerAccount && after.HoldCount() < fsm.MaxHoldsPerAccount {
		return true
	}
	for i := range after.Allocatable {
		if name := after.Allocatable[i].Resource; after.Available(name) > before.Available(name) {
			return true
		}
	}
	for i := range after.LargestFree {
		if a := &after.LargestFree[i]; a.Value > before.LargestFree.Get(a.Resource) {
			return true
		}
	}
	return false
}

// couldFit is the cheap question asked before a full decision: is this cluster, alone, open to
// the request and large enough? The price is left to the decision.
func couldFit(o *offer, ask *allocation.Request) bool {
	if o == nil || o.Stale || o.Cordoned || o.Withdrawn || o.Holds >= allocation.MaxHolds || o.ClusterID == ask.Requester {
		return false
	}
	if ask.Target != "" && ask.Target != o.ClusterID {
		return false
	}
	if _, fits := allocation.Fits(o.Account, ask.Amounts); !fits {
		return false
	}
	for _, a := range ask.Chunk {
		if o.LargestFree.Get(a.Resource) < a.Value {
			return false
		}
	}
	return true
}
