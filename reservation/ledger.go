package reservation

import (
	"github.com/bourse-dev/bourse/allocation"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// The ledgers that a decision leads to. They are the same for a real request and for a dry-run.
//
// Ledger.WaitUntil is what the row waits until: Pending for capacity, final for its removal.

func (r *request) granted(now fsm.Millis, winner *allocation.Candidate, endpoint string, record []byte) *fsm.Ledger {
	ledger := &fsm.Ledger{
		Phase: store.PhaseReserved, Target: winner.ClusterID, Endpoint: endpoint,
		GrantedAt: now, PriceNano: winner.PriceNano, Reason: reasonReserved, Decision: record,
	}
	if r.duration > 0 {
		ledger.ExpiresAt = now + r.duration
	}
	ledger.Message = describeGrant(r.ask.Amounts, winner.ClusterID, ledger.ExpiresAt)
	return ledger
}

// notGranted waits where the request may, and has failed where it may not.
func (r *request) notGranted(now fsm.Millis, why string, record []byte) *fsm.Ledger {
	if r.waitUntil(now) > now {
		return r.pending(now, why, record)
	}
	return r.failed(now, why, record)
}

func (r *request) pending(now fsm.Millis, why string, record []byte) *fsm.Ledger {
	return &fsm.Ledger{
		Phase: store.PhasePending, WaitUntil: r.waitUntil(now), PriceNano: allocation.Unpriced,
		Reason: reasonWaiting, Message: "Waiting: " + why, Decision: record,
	}
}

func (r *request) failed(now fsm.Millis, why string, record []byte) *fsm.Ledger {
	why += ". Delete it and apply again"
	if r.object.Spec.Split == nil { // which does not wait
		why += ", or set spec.waitFor"
	}
	return &fsm.Ledger{
		Phase: store.PhaseFailed, Ended: true, EndedAt: now, PriceNano: allocation.Unpriced,
		WaitUntil: keepUntil(&r.object.Spec, now), Reason: reasonNoFit, Decision: record,
		Message: why,
	}
}

// extended is the row's lease with the request's duration, counted from the grant. False: that would
// be shorter.
func (r *request) extended() (*fsm.Ledger, bool) {
	ledger, longer := extended(*r.row.Ledger, r.duration)
	if r.batch != nil {
		return ledger, longer
	}
	if pieces := store.ReservationOf(r.row).Status.Pieces; len(pieces) > 0 {
		ledger.Message = describePieces(r.ask.Amounts, pieces, ledger.ExpiresAt)
	} else {
		ledger.Message = describeGrant(r.ask.Amounts, ledger.Target, ledger.ExpiresAt)
	}
	return ledger, longer
}

func extended(ledger fsm.Ledger, duration fsm.Millis) (*fsm.Ledger, bool) {
	was := ledger.ExpiresAt
	if ledger.ExpiresAt = 0; duration > 0 {
		ledger.ExpiresAt = ledger.GrantedAt + duration
	}
	longer := ledger.ExpiresAt == 0 || was != 0 && ledger.ExpiresAt >= was
	return &ledger, longer
}
