package allocation

import (
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// Candidate is one cluster as a decision saw it. Figures are of the request's resources, in the order
// of the request's Amounts; those of LargestFree in the order of its Chunk.
type Candidate struct {
	ClusterID     string
	Reason        Reason // ReasonNone: feasible
	PriceNano     int64  // of the whole request per hour; Unpriced
	ResourceScore int64  // parts per billion; this and the next two only where feasible
	CostScore     int64
	Score         int64
	Available     [MaxResources]int64
	LargestFree   [MaxResources]int64
}

// Feasible says whether no filter excludes the cluster.
func (c *Candidate) Feasible() bool { return c.Reason == ReasonNone }

// Decision is how one request was decided. The caller owns it and may use it again for the next
// request; it refers to the request's Amounts and Chunk, which are immutable.
type Decision struct {
	Found      bool // Best is the winner
	Policy     Policy
	Considered int              // all clusters but the requester's own
	Feasible   int              // of them
	Excluded   [reasonCount]int // of them, by Reason

	requested, chunk Amounts
	ranked, missed   int
	rankedList       [Listed]Candidate
	missedList       [Listed]Candidate
}

// Best is the winner; nil where no cluster is feasible.
func (d *Decision) Best() *Candidate {
	if d.ranked == 0 {
		return nil
	}
	return &d.rankedList[0]
}

// Ranked are the best feasible clusters, best first, at most Listed. Valid until the Decision is used again.
func (d *Decision) Ranked() []Candidate { return d.rankedList[:d.ranked] }

// Nearest are the nearest misses, nearest first, at most Listed. A miss is the nearer the more filters
// it passed; then the smaller the greatest missing share of what it lacks (or, OverPrice, the smaller
// the excess); then by cluster ID. Clusters of ReasonWrongTarget are counted, never listed. Valid
// until the Decision is used again.
func (d *Decision) Nearest() []Candidate { return d.missedList[:d.missed] }

func (d *Decision) reset(request *Request, policy Policy) {
	d.Found, d.Policy = false, policy
	d.Considered, d.Feasible, d.Excluded = 0, 0, [reasonCount]int{}
	d.requested, d.chunk = request.Amounts, request.Chunk
	d.ranked, d.missed = 0, 0
}

// counts is how the API shows what became of all clusters.
func (d *Decision) counts() map[string]int64 {
	counts := map[string]int64{"Considered": int64(d.Considered), ReasonNone.String(): int64(d.Feasible)}
	for reason, n := range d.Excluded {
		if n > 0 {
			counts[Reason(reason).String()] = int64(n)
		}
	}
	return counts
}

// object is the candidate as the API shows it, with every figure of the request.
func (c *Candidate) object(requested, chunk Amounts) broker.Candidate {
	out := broker.Candidate{
		ClusterID:     c.ClusterID,
		Feasible:      c.Feasible(),
		PricePerHour:  broker.FormatPrice(c.PriceNano),
		ResourceScore: c.ResourceScore,
		CostScore:     c.CostScore,
		Score:         c.Score,
	}
	if !out.Feasible {
		out.Reason = c.explain(requested, chunk)
	}
	available := make(Amounts, 0, len(requested))
	for i := range min(len(requested), MaxResources) {
		if requested[i].Value > 0 { // a record also names what only the chunk asks for
			available = append(available, Amount{requested[i].Resource, c.Available[i]})
		}
	}
	out.Available = available.list()
	return out
}
