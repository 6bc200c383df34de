package allocation

// Reason says which filter excludes a cluster. Filters are asked in the order of the numbers and the
// first that excludes is the reason; so a greater number is a nearer miss. Numbers are stored: the
// order is part of the record's format.
type Reason uint8

// The filters. The requester's own cluster is left out before all of them.
const (
	ReasonNone          Reason = 0 // feasible
	ReasonStale         Reason = 1 // its agent is not heard
	ReasonWithdrawn     Reason = 2 // by its provider
	ReasonCordoned      Reason = 3 // by its provider
	ReasonWrongTarget   Reason = 4 // the request names another cluster
	ReasonLabelMismatch Reason = 5 // the request's selector
	ReasonUnpriced      Reason = 6 // a price limit, and no price
	ReasonOverPrice     Reason = 7 // dearer than the price limit
	ReasonInsufficient  Reason = 8 // too little available of some resource
	ReasonFragmented    Reason = 9 // enough in all, but no node with the chunk free

	reasonCount = 10
)

var reasonNames = [reasonCount]string{
	"Feasible", "Stale", "Withdrawn", "Cordoned", "WrongTarget", "LabelMismatch",
	"Unpriced", "OverPrice", "Insufficient", "Fragmented",
}

// String is the reason as counts and metrics name it.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return "Unknown"
}
