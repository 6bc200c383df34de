package allocation

import (
	"cmp"
	"slices"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// Explain is the full table: every cluster but the requester's own, the feasible ones first, best first,
// then the misses, nearest first. It agrees with Decide on the same market. It allocates, and takes its
// time: cluster by cluster, with none of Decide's short cuts.
func (m *Market) Explain(request *Request) []Candidate {
	m.prepare(request)
	s := &m.scan
	var feasible []ranked
	var misses []miss
	dearest := Unpriced
	for i := range m.ids {
		if m.ids[i] == request.Requester {
			continue
		}
		reason, distance := m.classify(i, request)
		if reason != ReasonNone {
			misses = append(misses, miss{missKey(reason, distance), i})
			continue
		}
		r := ranked{at: i, resource: m.resourceScore(i), price: pricelessTie}
		if m.slots[i].offer.Prices.Priced {
			r.price = s.priceAt(i)
			r.costScore = s.costScore(r.price)
			dearest = max(dearest, r.price)
		}
		feasible = append(feasible, r)
	}
	for n := range feasible {
		r := &feasible[n]
		if !m.slots[r.at].offer.Prices.Priced && dearest != Unpriced {
			r.costScore = s.costScore(dearest)
		}
		r.score = m.policy.score(r.resource, r.costScore)
	}
	slices.SortFunc(feasible, func(x, y ranked) int {
		return cmp.Or(cmp.Compare(y.score, x.score), cmp.Compare(x.price, y.price), cmp.Compare(x.at, y.at))
	})
	slices.SortFunc(misses, func(x, y miss) int {
		return cmp.Or(cmp.Compare(x.key, y.key), cmp.Compare(x.at, y.at))
	})
	table := make([]Candidate, len(feasible)+len(misses))
	for n, r := range feasible {
		c := &table[n]
		m.describe(c, r.at, ReasonNone)
		c.ResourceScore, c.CostScore, c.Score = r.resource, r.costScore, r.score
	}
	for n, x := range misses {
		m.describe(&table[len(feasible)+n], x.at, x.reason())
	}
	return table
}

// Explanation is Explain as the API shows it, with the revision of the state that the market shows.
func (m *Market) Explanation(request *Request, revision uint64) broker.Decision {
	var counted Decision
	counted.reset(request, m.policy)
	table := m.Explain(request)
	counted.Considered = len(table)
	out := broker.Decision{Revision: int64(revision), Policy: m.policy.String()}
	for i := range table {
		c := &table[i]
		if c.Feasible() {
			counted.Feasible++
		} else {
			counted.Excluded[c.Reason]++
		}
		out.Candidates = append(out.Candidates, c.object(request.Amounts, request.Chunk))
	}
	out.Counts = counted.counts()
	return out
}
