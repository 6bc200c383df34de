package allocation

import (
	"maps"
	"math"
	"math/big"
	"sort"

	"k8s.io/apimachinery/pkg/labels"
)

// oracleVerdict is a whole decision as DESIGN.md words it, computed in big numbers, cluster by cluster.
type oracleVerdict struct {
	feasible, misses []oracleCluster // in order
	considered       int
	excluded         [reasonCount]int
}

type oracleCluster struct {
	id                         string
	reason                     Reason
	price                      *big.Int // nil: unpriced
	nearness                   *big.Int
	resource, costScore, score *big.Int
	available, largest         []int64
	tiePrice                   *big.Int
}

func bigOf(v int64) *big.Int { return big.NewInt(v) }

func floorDiv(a, b *big.Int) *big.Int { return new(big.Int).Div(a, b) }

func mul(factors ...*big.Int) *big.Int {
	p := bigOf(1)
	for _, f := range factors {
		p.Mul(p, f)
	}
	return p
}

func saturated(v *big.Int) *big.Int {
	if v.Cmp(bigOf(math.MaxInt64)) > 0 {
		return bigOf(math.MaxInt64)
	}
	return v
}

func oracleAvailable(a *Account, resource string) *big.Int {
	own := new(big.Int).Sub(bigOf(a.Allocated.Get(resource)), bigOf(a.Used.Get(resource)))
	if own.Sign() < 0 {
		own = bigOf(0)
	}
	free := new(big.Int).Sub(bigOf(a.Allocatable.Get(resource)), bigOf(a.KeepBack.Get(resource)))
	free.Sub(free, own)
	free.Sub(free, bigOf(a.HeldOrUsed.Get(resource)))
	if free.Sign() < 0 {
		return bigOf(0)
	}
	return free
}

func oraclePrice(p Prices, request Amounts) *big.Int {
	if !p.Priced {
		return nil
	}
	if p.PerHour > 0 {
		return saturated(floorDiv(mul(bigOf(p.PerHour), bigOf(request.Get(CPU))), bigOf(1000)))
	}
	sum := bigOf(0)
	for _, r := range request {
		for _, u := range p.Unit {
			if u.Resource != r.Resource {
				continue
			}
			unit := bigOf(1)
			switch r.Resource {
			case CPU:
				unit = bigOf(1000)
			case Memory, "ephemeral-storage":
				unit = bigOf(1 << 30)
			}
			sum.Add(sum, floorDiv(mul(bigOf(r.Value), bigOf(u.Nano)), unit))
		}
	}
	return saturated(sum)
}

func oracleCost(price *big.Int, request Amounts) *big.Int {
	perCore := price
	if milli := request.Get(CPU); milli > 0 {
		perCore = saturated(floorDiv(mul(price, bigOf(1000)), bigOf(milli)))
	}
	below := saturated(new(big.Int).Add(perCore, bigOf(1e9)))
	return floorDiv(bigOf(1e18), below)
}

// oracleShort is the greatest missing share in parts of 2^30, nil where nothing is missing.
func oracleShort(want Amounts, have func(string) *big.Int) *big.Int {
	var worst *big.Int
	for _, w := range want {
		missing := new(big.Int).Sub(bigOf(w.Value), have(w.Resource))
		if missing.Sign() <= 0 {
			continue
		}
		weight := floorDiv(bigOf(1<<62), bigOf(w.Value))
		share := floorDiv(mul(missing, weight), bigOf(1<<32))
		if worst == nil || share.Cmp(worst) > 0 {
			worst = share
		}
	}
	return worst
}

func oracleLabels(o *Offer) map[string]string {
	all := map[string]string{}
	maps.Copy(all, o.Labels)
	if o.Region != "" {
		all["region"] = o.Region
	}
	if o.Provider != "" {
		all["provider"] = o.Provider
	}
	return all
}

func oracleFilter(o *Offer, request *Request, price *big.Int) (Reason, *big.Int) {
	zero := bigOf(0)
	switch {
	case o.Stale:
		return ReasonStale, zero
	case o.Withdrawn:
		return ReasonWithdrawn, zero
	case o.Cordoned:
		return ReasonCordoned, zero
	case o.Holds >= MaxHolds:
		return ReasonFull, zero
	case request.Target != "" && o.ClusterID != request.Target:
		return ReasonWrongTarget, zero
	case request.Selector != nil && !request.Selector.Matches(labels.Set(oracleLabels(o))):
		return ReasonLabelMismatch, zero
	case request.MaxPriceNano >= 0 && price == nil:
		return ReasonUnpriced, zero
	case request.MaxPriceNano >= 0 && price.Cmp(bigOf(request.MaxPriceNano)) > 0:
		over := new(big.Int).Sub(price, bigOf(request.MaxPriceNano))
		if most := bigOf(1<<60 - 1); over.Cmp(most) > 0 {
			over = most
		}
		return ReasonOverPrice, over
	}
	if short := oracleShort(request.Amounts, func(r string) *big.Int { return oracleAvailable(o.Account, r) }); short != nil {
		return ReasonInsufficient, short
	}
	if short := oracleShort(request.Chunk, func(r string) *big.Int { return bigOf(o.LargestFree.Get(r)) }); short != nil {
		return ReasonFragmented, short
	}
	return ReasonNone, zero
}

func oracleLeft(o *Offer, request Amounts, resource string) *big.Int {
	allocatable := o.Account.Allocatable.Get(resource)
	if allocatable == 0 {
		return bigOf(0)
	}
	left := oracleAvailable(o.Account, resource)
	left.Sub(left, bigOf(request.Get(resource)))
	return floorDiv(mul(left, bigOf(1e9)), bigOf(allocatable))
}

func oracleDecide(offers []Offer, request *Request, policy Policy) oracleVerdict {
	var v oracleVerdict
	var dearest *big.Int
	for i := range offers {
		o := &offers[i]
		if o.ClusterID == request.Requester {
			continue
		}
		v.considered++
		c := oracleCluster{id: o.ClusterID, price: oraclePrice(o.Prices, request.Amounts)}
		for _, a := range request.Amounts {
			c.available = append(c.available, oracleAvailable(o.Account, a.Resource).Int64())
		}
		for _, a := range request.Chunk {
			c.largest = append(c.largest, o.LargestFree.Get(a.Resource))
		}
		c.reason, c.nearness = oracleFilter(o, request, c.price)
		if c.reason != ReasonNone {
			v.excluded[c.reason]++
			v.misses = append(v.misses, c)
			continue
		}
		c.resource = new(big.Int).Add(oracleLeft(o, request.Amounts, CPU), oracleLeft(o, request.Amounts, Memory))
		c.resource = floorDiv(c.resource, bigOf(2))
		if c.price != nil && (dearest == nil || c.price.Cmp(dearest) > 0) {
			dearest = c.price
		}
		v.feasible = append(v.feasible, c)
	}
	for i := range v.feasible {
		c := &v.feasible[i]
		c.costScore, c.tiePrice = bigOf(0), bigOf(math.MaxInt64)
		switch {
		case c.price != nil:
			c.costScore, c.tiePrice = oracleCost(c.price, request.Amounts), c.price
		case dearest != nil:
			c.costScore = oracleCost(dearest, request.Amounts)
		}
		weighted := new(big.Int).Add(mul(bigOf(policy.ResourceWeight), c.resource), mul(bigOf(policy.CostWeight), c.costScore))
		c.score = floorDiv(weighted, bigOf(policy.ResourceWeight+policy.CostWeight))
	}
	sort.Slice(v.feasible, func(i, j int) bool {
		x, y := v.feasible[i], v.feasible[j]
		if by := x.score.Cmp(y.score); by != 0 {
			return by > 0
		}
		if by := x.tiePrice.Cmp(y.tiePrice); by != 0 {
			return by < 0
		}
		return x.id < y.id
	})
	sort.Slice(v.misses, func(i, j int) bool {
		x, y := v.misses[i], v.misses[j]
		if x.reason != y.reason {
			return rankOf[x.reason] > rankOf[y.reason]
		}
		if by := x.nearness.Cmp(y.nearness); by != 0 {
			return by < 0
		}
		return x.id < y.id
	})
	return v
}
