package reservation

import (
	"strings"
	"time"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
)

// shownAmounts of a grant's message; the object names them all.
const shownAmounts = 4

// describeGrant says what is held where, and nothing of rivals: agents read it.
func describeGrant(amounts allocation.Amounts, clusterID string, expiresAt fsm.Millis) string {
	return describeAmounts(amounts) + " held on " + clusterID + describeEnd(expiresAt)
}

// describeLease of what is held longer than before.
func describeLease(expiresAt fsm.Millis) string { return "held" + describeEnd(expiresAt) }

func describeEnd(expiresAt fsm.Millis) string {
	if expiresAt == 0 {
		return " until deleted"
	}
	return " until " + timeOf(expiresAt).Format(time.RFC3339)
}

// describeAmounts as "cpu 4, memory 8Gi".
func describeAmounts(amounts allocation.Amounts) string {
	var words []string
	for i, a := range amounts {
		if i == shownAmounts {
			words = append(words, "...")
			break
		}
		q := broker.QuantityOf(a.Resource, a.Value)
		words = append(words, a.Resource+" "+q.String())
	}
	return strings.Join(words, ", ")
}
