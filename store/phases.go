package store

import (
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
)

// Phases of a reservation, as Ledger.Phase stores them. Append only. Of a batch, Pending means that
// items are undecided, Reserved that all are decided and it goes on.
const (
	PhasePending  uint8 = 1
	PhaseReserved uint8 = 2
	PhaseReleased uint8 = 3
	PhaseFailed   uint8 = 4
)

// Phases of an advertisement, as Ledger.Phase stores them. Append only. Ledger.SeenAt of an
// advertisement is when its agent's last recorded report came, Ledger.GrantedAt when the phase began.
const (
	PhaseActive    uint8 = 1
	PhaseStale     uint8 = 2
	PhaseWithdrawn uint8 = 3
)

// reservationNumbers is the other way round; 0 for none.
var reservationNumbers = map[broker.ReservationPhase]uint8{
	broker.ReservationPending:  PhasePending,
	broker.ReservationReserved: PhaseReserved,
	broker.ReservationReleased: PhaseReleased,
	broker.ReservationFailed:   PhaseFailed,
}

// PhaseOf is the phase of a reservation's row.
func PhaseOf(row *fsm.Row) broker.ReservationPhase {
	if row.Ledger == nil {
		return broker.ReservationPending
	}
	return PhaseText(row.Ledger.Phase)
}

// PhaseText is a reservation's phase as the API says it: one that no room has decided yet is Pending.
func PhaseText(n uint8) broker.ReservationPhase {
	switch n {
	case PhaseReserved:
		return broker.ReservationReserved
	case PhaseReleased:
		return broker.ReservationReleased
	case PhaseFailed:
		return broker.ReservationFailed
	default:
		return broker.ReservationPending
	}
}

// advertisementPhase: an advertisement whose agent was never heard is Stale.
func advertisementPhase(n uint8) broker.AdvertisementPhase {
	switch n {
	case PhaseActive:
		return broker.AdvertisementActive
	case PhaseWithdrawn:
		return broker.AdvertisementWithdrawn
	default:
		return broker.AdvertisementStale
	}
}
