package main

import (
	"bytes"
	"slices"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/reservation"
	"github.com/bourse-dev/bourse/store"
)

// state is what a process finds on its disk.
func (d *disk) state() (*fsm.State, error) {
	if d.snapshot.index == 0 {
		return fsm.New(), nil
	}
	return fsm.ReadSnapshot(bytes.NewReader(d.snapshot.data))
}

// heal ends every fault.
func (t *trace) heal() {
	t.tell("all faults end")
	t.healing = true
	clear(t.links.cut)
	t.links.slowPercent, t.links.lossPercent, t.links.duplicatePercent = 0, 0, 0
	for _, n := range t.nodes {
		n.clock.offset = between(t.faultDice, -200, 200)
		n.slowDiskUntil, n.slowApplyUntil, n.stubbornUntil = 0, 0, 0
		n.asleepUntil = min(n.asleepUntil, t.now)
		n.knows = fsm.SupportedBehaviour // the upgrade comes to its end, too
		if !n.up {
			t.restart(n)
		}
	}
	for _, a := range t.agents {
		a.silent, a.allocated = a.second, ""
	}
}

// converged checks what must be so once nothing goes wrong any more.
func (t *trace) converged() {
	t.history.checkAnswers()
	n := t.leading()
	if n == nil || n.gate.Load() == nil {
		t.fail("no node leads, %d s after all faults ended", healPhase/1000)
		return
	}
	for _, o := range t.nodes {
		if behind := n.raft.commit - o.raft.applied; o.raft.applied+2 < n.raft.commit {
			t.fail("n%d is %d entries behind at the end", o.id, behind)
		}
		if o.db.State().Hash() != o.db.State().FullHash() {
			t.fail("n%d: its state's kept hash is not the one computed anew", o.id)
		}
		for _, w := range o.watches {
			if w.last < o.db.State().Revision() {
				t.fail("n%d: its watch of %q was told up to revision %d of %d", o.id, w.prefix, w.last, o.db.State().Revision())
			}
		}
	}
	for _, c := range t.clients {
		if !c.idle {
			t.fail("a client still waits for its answer")
		}
	}
	state := n.db.State()
	t.checkHolds(state)
	now := n.term.l.Now()
	t.checkBlueprints(state, now)
	for row := range state.Scan(broker.ReservationsPrefix) {
		t.checkReservation(state, row, now)
	}
	for row := range state.Scan(broker.BatchesPrefix) {
		t.checkBatch(row, now)
	}
	for row := range state.Scan(broker.AdvertisementsPrefix) {
		ad := store.AdvertisementOf(row)
		if want := broker.AdvertisementActive; ad.Status.Phase != want && !ad.Spec.Lending.Withdrawn {
			t.fail("%s is %s though its agent speaks", row.Key, ad.Status.Phase)
		}
		if ad.Spec.Lending.Withdrawn && row.Account.HoldCount() > 0 {
			t.fail("%s is withdrawn and still held on", row.Key)
		}
	}
}

// checkHolds compares the book with the state.
func (t *trace) checkHolds(state *fsm.State) {
	holds := t.history.book.Holds()
	for _, h := range holds {
		row := state.Row(h.Holder)
		if row == nil || holdOf(row) == nil || uint64(holdOf(row).Fence) != h.Fence || holdOf(row).Account != h.Cluster {
			t.fail("%s holds on %s by the book, not by the state", h.Holder, h.Cluster)
		}
	}
	count := 0
	for row := range state.Scan("") {
		if row.Account != nil {
			count += row.Account.HoldCount()
		}
	}
	if count != len(holds) {
		t.fail("the accounts have %d holds, the book has %d", count, len(holds))
	}
}

// fits asks the book, for what wants just capacity.
func (t *trace) fits(r *broker.Reservation) bool {
	if r.Spec.TargetClusterID != "" || r.Spec.MaxCostPerHour != "" {
		return false
	}
	asked, err := allocation.AmountsOf(r.Spec.RequestedResources, true)
	if err != nil {
		return false
	}
	for _, id := range clusterIDs {
		available := t.history.book.Available(broker.AdvertisementKey(id))
		if all := amountsOf(asked); !slices.ContainsFunc(sortedKeys(all), func(resource string) bool { return available[resource] < all[resource] }) {
			return true
		}
	}
	return false
}

// late is how long after its time something may still be under way.
const late = 3000

func (t *trace) checkReservation(state *fsm.State, row *fsm.Row, now fsm.Millis) {
	r := store.ReservationOf(row)
	l := row.Ledger
	if r == nil || l == nil {
		t.fail("%s is undecided or can't be read", row.Key)
		return
	}
	t.stats.count("phase at the end", string(r.Status.Phase))
	switch l.Phase {
	case store.PhaseReserved:
		if l.ExpiresAt > 0 && now > l.ExpiresAt+late {
			t.fail("the lease of %s was over %d ms ago", row.Key, now-l.ExpiresAt)
		}
	case store.PhasePending:
		if l.WaitUntil == 0 || now > l.WaitUntil+late {
			t.fail("%s waits beyond its time: until %d, it is %d", row.Key, l.WaitUntil, now)
		}
		if reservation.Decide(state, r, now).Phase == broker.ReservationReserved || t.fits(r) {
			t.fail("%s waits, and fits", row.Key)
		}
	default:
		if l.Message == "" || l.Reason == "" {
			t.fail("%s ended and doesn't say why", row.Key)
		}
		if l.WaitUntil > 0 && now > l.WaitUntil+late {
			t.fail("%s should have been removed %d ms ago", row.Key, now-l.WaitUntil)
		}
	}
}

func (t *trace) checkBatch(row *fsm.Row, now fsm.Millis) {
	b := store.BatchOf(row)
	t.stats.count("batch at the end", string(b.Status.Phase))
	l := row.Ledger
	switch {
	case l == nil || l.Phase == store.PhasePending || len(b.Status.Results) < len(b.Spec.Items):
		t.fail("%s is undecided: %d of %d items", row.Key, len(b.Status.Results), len(b.Spec.Items))
	case l.Phase == store.PhaseReserved && l.ExpiresAt > 0 && now > l.ExpiresAt+late:
		t.fail("the lease of %s was over %d ms ago", row.Key, now-l.ExpiresAt)
	case l.Phase != store.PhaseReserved && now > l.WaitUntil+late:
		t.fail("%s should have been removed %d ms ago", row.Key, now-l.WaitUntil)
	}
}
