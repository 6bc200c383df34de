package allocation

import (
	"fmt"
	"strings"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// Message says in one sentence what was decided: the winner and its score, or the nearest candidates
// and what each lacked. At most MaxMessageBytes, without a final stop.
func (d *Decision) Message(request *Request) string {
	var b strings.Builder
	switch {
	case d.Found:
		best := d.Best()
		fmt.Fprintf(&b, "%s is the best of %d feasible clusters: score %d ppb, price per hour %s",
			best.ClusterID, d.Feasible, best.Score, broker.FormatPrice(best.PriceNano))
	case d.missed > 0:
		d.writeMisses(&b, request)
	case request.Target != "" && request.Target == request.Requester:
		fmt.Fprintf(&b, "targetClusterID %s is the requester itself", request.Target)
	case request.Target != "":
		fmt.Fprintf(&b, "targetClusterID %s is not advertised", request.Target)
	default:
		b.WriteString("No other cluster is advertised")
	}
	return broker.Clip(b.String(), MaxMessageBytes)
}

func (d *Decision) writeMisses(b *strings.Builder, request *Request) {
	misses := d.Nearest()
	if misses[0].Reason == ReasonInsufficient {
		b.WriteString("Insufficient resources in ")
	} else {
		b.WriteString("No cluster fits: ")
	}
	named := misses[:min(len(misses), messageCandidates)]
	var rest [reasonCount]int
	if request.Target == "" {
		rest = d.Excluded
	}
	for i := range named {
		if i > 0 {
			b.WriteString("; ")
		}
		c := &named[i]
		b.WriteString(c.ClusterID)
		b.WriteString(": ")
		c.writeReason(b, d.requested, d.chunk)
		if c.Reason == ReasonOverPrice {
			fmt.Fprintf(b, " %s per hour, at most %s", broker.FormatPrice(c.PriceNano), broker.FormatPrice(request.MaxPriceNano))
		}
		rest[c.Reason]--
	}
	writeRest(b, &rest)
}

// writeRest counts the clusters that were not named, nearest reason first.
func writeRest(b *strings.Builder, rest *[reasonCount]int) {
	separator := "; others: "
	for rank := reasonCount - 1; rank > 0; rank-- {
		if reason := byRank[rank]; rest[reason] > 0 {
			fmt.Fprintf(b, "%s%d %s", separator, rest[reason], reasonWords[reason])
			separator = ", "
		}
	}
}

// reasonWords are the reasons as a sentence says them.
var reasonWords = [reasonCount]string{
	"feasible", "stale", "withdrawn by its provider", "cordoned by its provider", "not the target",
	"not selected by clusterSelector", "without a price under a price limit", "over the price limit",
	"insufficient", "fragmented", "at the limit of 16384 holds",
}

// writeReason says why the cluster is excluded, with the figures it has.
func (c *Candidate) writeReason(b *strings.Builder, requested, chunk Amounts) {
	switch c.Reason {
	case ReasonInsufficient:
		if !writeLacks(b, requested, &c.Available, "requested", "available") {
			b.WriteString(reasonWords[c.Reason])
		}
	case ReasonFragmented:
		if !writeLacks(b, chunk, &c.LargestFree, "on one node requested", "on the largest free node") {
			b.WriteString(reasonWords[c.Reason])
		}
	case ReasonOverPrice:
		b.WriteString("over the price limit:")
	default:
		b.WriteString(reasonWords[c.Reason])
	}
}

// explain is the candidate's reason as the API shows it: the code, and the figures where there are.
func (c *Candidate) explain(requested, chunk Amounts) string {
	var b strings.Builder
	switch c.Reason {
	case ReasonInsufficient:
		writeLacks(&b, requested, &c.Available, "requested", "available")
	case ReasonFragmented:
		writeLacks(&b, chunk, &c.LargestFree, "on one node requested", "on the largest free node")
	}
	if b.Len() == 0 {
		return c.Reason.String()
	}
	return c.Reason.String() + ": " + b.String()
}

// writeLacks names every wanted resource of which there is too little, up to messageReasons.
func writeLacks(b *strings.Builder, wanted Amounts, have *[MaxResources]int64, ask, there string) bool {
	lacks := 0
	for i := range min(len(wanted), MaxResources) {
		w := wanted[i]
		if have[i] >= w.Value {
			continue
		}
		if lacks++; lacks > messageReasons {
			continue
		}
		if lacks > 1 {
			b.WriteString(", ")
		}
		requested, available := broker.QuantityOf(w.Resource, w.Value), broker.QuantityOf(w.Resource, have[i])
		fmt.Fprintf(b, "%s %s %s, %s %s", w.Resource, requested.String(), ask, available.String(), there)
	}
	if lacks > messageReasons {
		fmt.Fprintf(b, " and %d more", lacks-messageReasons)
	}
	return lacks > 0
}
