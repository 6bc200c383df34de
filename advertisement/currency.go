package advertisement

import (
	"fmt"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// CurrencyConflict says in words that the advertisement's currency is not the exchange's, "" where
// it may be. The exchange's currency is that of the first other advertisement with prices. Pure:
// any node asks its own state before it accepts a price list, on any goroutine. Two nodes that accept
// different first currencies in the same moment are not told apart here.
func CurrencyConflict(state *fsm.State, advertisement *broker.ClusterAdvertisement) string {
	mine, ok := currencyOf(advertisement)
	if !ok {
		return ""
	}
	own := broker.AdvertisementsPrefix + advertisement.Name
	for row := range state.Scan(broker.AdvertisementsPrefix) {
		if row.Key == own {
			continue
		}
		other := store.AdvertisementOf(row)
		if other == nil {
			continue
		}
		theirs, ok := currencyOf(other)
		switch {
		case !ok:
		case theirs == mine:
			return ""
		default:
			return fmt.Sprintf("currency %q: the exchange trades in %q (%s)", mine, theirs, other.Name)
		}
	}
	return ""
}

// currencyOf a price list; false where there are no prices, or none that can be read.
func currencyOf(a *broker.ClusterAdvertisement) (string, bool) {
	prices, currency, err := allocation.ParsePrices(a.Spec.Cost, a.Annotations)
	return currency, err == nil && prices.Priced && currency != ""
}
