package allocation

import "k8s.io/apimachinery/pkg/labels"

// NoPriceLimit as a Request's MaxPriceNano: any price will do, none too.
const NoPriceLimit = int64(-1)

// Request is what is asked for, in integers.
type Request struct {
	Requester    string          // its own cluster is no candidate
	Amounts      Amounts         // not empty
	Chunk        Amounts         // must be free on one single node; nil: anywhere
	Selector     labels.Selector // of the clusters' labels; nil: all
	Target       string          // the only candidate; "": all
	MaxPriceNano int64           // of the whole request per hour; negative: NoPriceLimit
}
