package allocation

import (
	"cmp"
	"math"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// Site is one cluster as the placement of one blueprint sees it: a copy of its account, from which the
// blueprint's slices take one after another.
type Site struct {
	ClusterID string
	Account   Account
	Prices    Prices
	Running   int // instances of the blueprint
}

// take holds n instances more, or gives back where n is negative. It does not ask whether they fit.
func (s *Site) take(ask Amounts, n int) {
	s.Account.HeldOrUsed = s.Account.HeldOrUsed.Add(ask.Times(n))
	s.Running += n
}

// Spot is a site as it is to one slice of the blueprint.
type Spot struct {
	Open  bool // takes new instances
	Most  int  // never more than that
	Count int  // instances of the slice there
}

// Spread places the instances of one slice over sites. It adds one after another, each where the
// strategy likes it best with those before it in place, and removes one after another from where it
// would be added last; so growing step by step comes to what placing at once does. Deterministic: it
// depends on nothing but its fields. Sites are sorted by cluster ID, which breaks every tie.
type Spread struct {
	Strategy broker.BlueprintStrategy
	Ask      Amounts // of one instance
	Offset   int     // RoundRobin begins that many open sites after the first
	Sites    []Site  // shared with the blueprint's other slices
	Spots    []Spot  // as Sites

	figures []siteFigures
}

// siteFigures are what ranks one site; its account's changes alter them.
type siteFigures struct {
	room    int   // instances that fit still
	left    int64 // resource score now
	leftOne int64 // and with one more
	price   int64 // of one instance; never changes
	turn    int   // RoundRobin's order; never changes
}

// Keep counts n instances that are on a site already, whether they fit or not; or takes them away
// again where n is negative.
func (s *Spread) Keep(at, n int) { s.KeepAs(at, n, s.Ask) }

// KeepAs is Keep of instances that are of another size.
func (s *Spread) KeepAs(at, n int, ask Amounts) {
	s.Sites[at].take(ask, n)
	s.Spots[at].Count += n
}

// Fill adds up to n instances and returns how many found a place.
func (s *Spread) Fill(n int) int {
	if n <= 0 {
		return 0
	}
	s.measure()
	for placed := range n {
		at := s.best()
		if at < 0 {
			return placed
		}
		s.Keep(at, 1)
		s.measureSite(at)
	}
	return n
}

// Drop removes n instances: from sites that take none first, then from where one would be added last.
func (s *Spread) Drop(n int) {
	if n <= 0 {
		return
	}
	s.measure()
	for range n {
		at := s.worst()
		if at < 0 {
			return
		}
		s.Keep(at, -1)
		s.measureSite(at)
	}
}

func (s *Spread) measure() {
	s.figures = make([]siteFigures, len(s.Sites))
	open := 0
	for i := range s.Sites {
		if s.Spots[i].Open {
			open++
		}
	}
	turn := 0
	for i := range s.Sites {
		f := &s.figures[i]
		if f.price = s.Sites[i].Prices.Price(s.Ask); f.price == Unpriced {
			f.price = pricelessTie
		}
		if s.Spots[i].Open {
			f.turn = ((turn-s.Offset)%open + open) % open
			turn++
		}
		s.measureSite(i)
	}
}

func (s *Spread) measureSite(i int) {
	f, account := &s.figures[i], &s.Sites[i].Account
	room := int64(math.MaxInt32)
	for _, a := range s.Ask {
		room = min(room, account.Available(a.Resource)/a.Value)
	}
	f.room = int(room)
	f.left = resourcesLeft(account, nil)
	f.leftOne = resourcesLeft(account, s.Ask)
}

// resourcesLeft is a decision's resource score: the mean of what is left of cpu and of memory, in ppb.
func resourcesLeft(a *Account, ask Amounts) int64 {
	return (leftOf(a, CPU, ask) + leftOf(a, Memory, ask)) / 2
}

func leftOf(a *Account, resource string, ask Amounts) int64 {
	whole := max(0, a.Allocatable.Get(resource))
	return floorShare(max(0, min(a.Available(resource), whole)-ask.Get(resource)), whole)
}

// best is where the next instance goes, -1 where none fits.
func (s *Spread) best() int {
	dearest := s.dearest(s.fits)
	at, least := -1, rankKey{}
	for i := range s.Sites {
		if !s.fits(i) {
			continue
		}
		if key := s.key(i, 1, dearest); at < 0 || key.before(least) {
			at, least = i, key
		}
	}
	return at
}

func (s *Spread) fits(i int) bool {
	spot := &s.Spots[i]
	return spot.Open && s.figures[i].room > 0 && spot.Count < spot.Most
}

// worst is the instance that would have been added last, -1 where there is none.
func (s *Spread) worst() int {
	runs := func(i int) bool { return s.Spots[i].Count > 0 }
	dearest := s.dearest(runs)
	at, most, closed := -1, rankKey{}, false
	for i := range s.Sites {
		if !runs(i) || closed && s.Spots[i].Open {
			continue
		}
		key := s.key(i, 0, dearest)
		if at < 0 || !closed && !s.Spots[i].Open || !key.before(most) {
			at, most, closed = i, key, !s.Spots[i].Open
		}
	}
	return at
}

// rankKey orders sites: the lesser is better.
type rankKey [2]int64

func (k rankKey) before(o rankKey) bool {
	return cmp.Or(cmp.Compare(k[0], o[0]), cmp.Compare(k[1], o[1])) < 0
}

// key ranks the site for an instance: more is 1 for one that is to be added, 0 for the last of those there.
func (s *Spread) key(i, more int, dearest int64) rankKey {
	f, site := &s.figures[i], &s.Sites[i]
	left, others := f.left, site.Running-1
	if more > 0 {
		left, others = f.leftOne, site.Running
	}
	switch s.Strategy {
	case broker.StrategySpread:
		return rankKey{int64(others), -left}
	case broker.StrategyPack:
		if more == 0 { // sites were filled one by one: what was a site's rank when its first came decides
			count := s.Spots[i].Count
			left, others = resourcesLeft(&site.Account, s.Ask.Times(1-count)), site.Running-count
		}
		return rankKey{int64(min(1, max(0, 1-others))), left}
	case broker.StrategyCheapest:
		return rankKey{f.price}
	case broker.StrategyBalanced:
		return rankKey{-DefaultPolicy().score(left, s.costScore(f.price, dearest)), f.price}
	default:
		return rankKey{int64(s.Spots[i].Count - 1 + more), int64(f.turn)}
	}
}

// dearest is the highest price of the sites in question, by which an unpriced one is judged.
func (s *Spread) dearest(asked func(int) bool) int64 {
	dearest := Unpriced
	if s.Strategy != broker.StrategyBalanced {
		return dearest
	}
	for i := range s.Sites {
		if asked(i) && s.Sites[i].Prices.Priced {
			dearest = max(dearest, s.figures[i].price)
		}
	}
	return dearest
}

// costScore is a decision's, of one instance.
func (s *Spread) costScore(price, dearest int64) int64 {
	if price == pricelessTie {
		price = dearest
	}
	if price == Unpriced {
		return 0
	}
	cores := s.Ask.Get(CPU)
	if cores == 0 {
		cores = milliPerCore
	}
	return costScore(pricePerCore(price, cores))
}

// Liking says in words why the strategy puts instances on a site.
func (s *Spread) Liking(i int) string {
	switch s.Strategy {
	case broker.StrategySpread:
		return "fewest instances of the blueprint, then most left"
	case broker.StrategyPack:
		return "runs the blueprint already, then least left"
	case broker.StrategyCheapest:
		price := s.Sites[i].Prices.Price(s.Ask)
		if price == Unpriced {
			return "no cluster with room states a price"
		}
		return "cheapest: " + broker.FormatPrice(price) + " per instance and hour"
	case broker.StrategyBalanced:
		return "best score of what is left and price"
	default:
		return "its turn"
	}
}
