package reservation

import (
	"slices"
	"strings"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
)

// placer decides requests one after the other on one view, each on what the earlier ones left. It
// proposes nothing: a term does with what it placed, a dry-run shows it.
type placer struct {
	view     *view
	now      fsm.Millis
	revision fsm.Revision
	decision *allocation.Decision
}

// placed is a request that was decided, and what it takes.
type placed struct {
	request *request
	ledger  *fsm.Ledger
	move    *fsm.Move // nil: nothing is held
	short   string    // why not, in a few words
	pieces  []placed  // of a split one that is granted
}

// place decides one request and takes from the view what it is granted.
func (p *placer) place(r *request) placed {
	p.view.market.Decide(&r.ask, p.decision)
	return p.placed(r)
}

// placed does so with the decision that was made last, which is the request's.
func (p *placer) placed(r *request) placed {
	if !p.decision.Found {
		return placed{
			request: r, short: shortMiss(p.decision, &r.ask),
			ledger: r.notGranted(p.now, p.decision.Message(&r.ask), p.record()),
		}
	}
	winner := p.decision.Best()
	account := broker.AdvertisementKey(winner.ClusterID)
	p.view.take(account, r.ask.Amounts)
	return placed{
		request: r,
		ledger:  r.granted(p.now, winner, p.view.offers[account].endpoint, p.record()),
		move: &fsm.Move{
			Op: fsm.MoveHold, Account: account, Holder: r.key, Amounts: r.ask.Amounts, Priority: r.priority,
		},
	}
}

func (p *placer) record() []byte {
	return allocation.EncodeDecision(nil, p.decision, uint64(p.revision))
}

// giveBack undoes what was taken from the view.
func (p *placer) giveBack(all []placed) {
	for i := range all {
		if m := all[i].move; m != nil {
			p.view.market.Give(clusterIDOf(m.Account), m.Amounts)
		}
	}
}

// placeWhole places all or none, greedily: the largest first. Where one does not fit the others are
// still decided, so that all that is missing is told at once; then everything is given back.
// What it returns is in the order of the requests.
func (p *placer) placeWhole(requests []*request) (all []placed, ok bool) {
	all, ok = make([]placed, len(requests)), true
	for _, i := range largestFirst(requests) {
		all[i] = p.place(requests[i])
		ok = ok && all[i].move != nil
	}
	if !ok {
		p.giveBack(all)
	}
	return all, ok
}

// largestFirst orders requests by their dominant share: the greatest of what they ask for, as a
// share of the most that any of them asks of that resource. Among equals the earlier.
func largestFirst(requests []*request) []int {
	most := map[string]int64{}
	for _, r := range requests {
		for _, a := range r.ask.Amounts {
			most[a.Resource] = max(most[a.Resource], a.Value)
		}
	}
	shares, order := make([]share, len(requests)), make([]int, len(requests))
	for i, r := range requests {
		order[i], shares[i] = i, share{0, 1}
		for _, a := range r.ask.Amounts {
			if of := (share{a.Value, most[a.Resource]}); shares[i].less(of) {
				shares[i] = of
			}
		}
	}
	slices.SortStableFunc(order, func(x, y int) int {
		switch {
		case shares[y].less(shares[x]):
			return -1
		case shares[x].less(shares[y]):
			return 1
		}
		return 0
	})
	return order
}

// shortMiss says in a few words what the nearest candidate lacks: "tokyo lacks nvidia.com/gpu".
func shortMiss(d *allocation.Decision, ask *allocation.Request) string {
	misses := d.Nearest()
	if len(misses) == 0 || misses[0].Reason != allocation.ReasonInsufficient {
		return clip(d.Message(ask))
	}
	var lacking []string
	for i, a := range ask.Amounts {
		if i < len(misses[0].Available) && misses[0].Available[i] < a.Value {
			lacking = append(lacking, a.Resource)
		}
	}
	return clip(misses[0].ClusterID + " lacks " + strings.Join(lacking, ", "))
}

// clip keeps a result short: a thousand of them are in one row.
func clip(s string) string { return broker.Clip(s, broker.MaxResultMessageBytes) }
