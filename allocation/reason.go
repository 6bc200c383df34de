package allocation

// Reason says which filter excludes a cluster. Filters are asked in the order of byRank and the first
// that excludes is the reason; so a later one is a nearer miss. Numbers are stored in records.
type Reason uint8

// The filters. The requester's own cluster is left out before all of them.
const (
	ReasonNone          Reason = 0  // feasible
	ReasonStale         Reason = 1  // its agent is not heard
	ReasonWithdrawn     Reason = 2  // by its provider
	ReasonCordoned      Reason = 3  // by its provider
	ReasonWrongTarget   Reason = 4  // the request names another cluster
	ReasonLabelMismatch Reason = 5  // the request's selector
	ReasonUnpriced      Reason = 6  // a price limit, and no price
	ReasonOverPrice     Reason = 7  // dearer than the price limit
	ReasonInsufficient  Reason = 8  // too little available of some resource
	ReasonFragmented    Reason = 9  // enough in all, but no node with the chunk free
	ReasonFull          Reason = 10 // it has MaxHolds holds

	reasonCount = 11
)

// byRank is the order of the filters.
var byRank = [reasonCount]Reason{
	ReasonNone, ReasonStale, ReasonWithdrawn, ReasonCordoned, ReasonFull, ReasonWrongTarget, ReasonLabelMismatch,
	ReasonUnpriced, ReasonOverPrice, ReasonInsufficient, ReasonFragmented,
}

var rankOf = func() (rank [reasonCount]uint64) {
	for at, reason := range byRank {
		rank[reason] = uint64(at)
	}
	return rank
}()

var reasonNames = [reasonCount]string{
	"Feasible", "Stale", "Withdrawn", "Cordoned", "WrongTarget", "LabelMismatch",
	"Unpriced", "OverPrice", "Insufficient", "Fragmented", "Full",
}

// String is the reason as counts and metrics name it.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return "Unknown"
}
