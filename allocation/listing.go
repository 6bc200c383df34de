package allocation

import "math"

// ranked is one feasible cluster among the best.
type ranked struct {
	at                         int
	score, resource, costScore int64
	price                      int64 // tells equal scores apart; unpriced clusters come last
}

// pricelessTie is an unpriced cluster's price where scores are equal.
const pricelessTie = math.MaxInt64

func (r *ranked) before(other *ranked) bool {
	if r.score != other.score {
		return r.score > other.score
	}
	if r.price != other.price {
		return r.price < other.price
	}
	return r.at < other.at
}

// bestList keeps the Listed best, best first.
type bestList struct {
	n    int
	list [Listed]ranked
}

func (l *bestList) full() bool    { return l.n == Listed }
func (l *bestList) last() *ranked { return &l.list[l.n-1] }

// offer puts the cluster in where it belongs and says whether it did.
func (l *bestList) offer(r ranked) bool {
	if l.full() {
		if !r.before(l.last()) {
			return false
		}
	} else {
		l.n++
	}
	i := l.n - 1
	for ; i > 0 && r.before(&l.list[i-1]); i-- {
		l.list[i] = l.list[i-1]
	}
	l.list[i] = r
	return true
}

// miss is one cluster that is not feasible. Its key orders reasons first, then distances.
type miss struct {
	key uint64
	at  int
}

const (
	missShift   = 60 // of the reason in the key
	maxDistance = 1<<missShift - 1
)

func missKey(reason Reason, distance uint64) uint64 {
	return (reasonCount-1-rankOf[reason])<<missShift | distance
}

func (x miss) reason() Reason   { return byRank[reasonCount-1-x.key>>missShift] }
func (x miss) distance() uint64 { return x.key & maxDistance }

func (x miss) before(other miss) bool {
	return x.key < other.key || x.key == other.key && x.at < other.at
}

// nearList keeps the Listed nearest misses, nearest first.
type nearList struct {
	n    int
	list [Listed]miss
}

func (l *nearList) full() bool { return l.n == Listed }
func (l *nearList) last() miss { return l.list[l.n-1] }

// offer puts the miss in where it belongs and says whether it did.
func (l *nearList) offer(x miss) bool {
	if l.full() {
		if !x.before(l.last()) {
			return false
		}
	} else {
		l.n++
	}
	i := l.n - 1
	for ; i > 0 && x.before(l.list[i-1]); i-- {
		l.list[i] = l.list[i-1]
	}
	l.list[i] = x
	return true
}
