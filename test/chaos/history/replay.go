package history

import (
	"fmt"

	"github.com/bourse-dev/bourse/test/model"
)

// replay follows the changes in the order of their revisions in the model's book.
type replay struct {
	book     *model.Book
	done     [kinds]int // events of each kind that have been followed
	rows     map[name]Row
	made     map[string]bool           // parts, by their whole's uid and their key
	consents func(cluster string) bool // to blueprints; nil: none does
}

func newReplay(consents func(string) bool) *replay {
	return &replay{book: model.New(), rows: map[name]Row{}, made: map[string]bool{}, consents: consents}
}

func (r *replay) follow(row Row, counts *Counts) error {
	of := name{row.Kind, row.Key}
	before, existed := r.rows[of]
	if row.Gone {
		if !existed {
			return fmt.Errorf("it is deleted and was not there")
		}
		delete(r.rows, of)
	} else {
		r.rows[of] = row
	}
	if row.Kind == Advertisements {
		return r.advertisement(row)
	}
	body := row.Body.(Reservation)
	if existed {
		return r.changed(row, before.Body.(Reservation), body, counts)
	}
	if err := r.madeOnce(row); err != nil {
		return err
	}
	switch body.Phase {
	case Pending, Failed:
		return nil
	case Reserved:
		return r.grant(row, body, counts)
	default:
		return fmt.Errorf("a new reservation is %s", body.Phase)
	}
}

func (r *replay) advertisement(row Row) error {
	a := row.Body.(Advertisement)
	if err := r.slices(row, a); err != nil {
		return err
	}
	// The reservation's row comes first in what changes both.
	if held := r.book.Held(a.Cluster); held["cpu"] != a.Reserved.CPUMilli || held["memory"] != a.Reserved.MemoryBytes {
		return fmt.Errorf("its reservations sum up to %v", held)
	}
	return r.book.Advertise(row.Rev, a.Cluster, a.Allocatable.model(), a.Allocated.model(), a.KeepBack.model(), a.Closed || row.Gone)
}

// slicesOf is who holds what blueprints hold of a cluster: slices don't show their holds, so all of a cluster
// are one holder, that takes what reservations don't. There can be none where nobody consents.
func slicesOf(cluster string) string { return "the slices of " + cluster }

func (r *replay) slices(row Row, a Advertisement) error {
	if r.consents == nil || !r.consents(a.Cluster) {
		return nil
	}
	all, now := r.book.Held(a.Cluster), a.Reserved.model()
	hold, held := r.book.Hold(slicesOf(a.Cluster))
	old := hold.Amounts
	for resource := range now {
		now[resource] -= all[resource] - old[resource]
	}
	switch {
	case now["cpu"] == old["cpu"] && now["memory"] == old["memory"]:
		return nil
	case !held:
		return r.book.Grant(row.Rev, model.Hold{Holder: slicesOf(a.Cluster), Cluster: a.Cluster, Amounts: now, Fence: row.Rev})
	}
	return r.book.Resize(row.Rev, slicesOf(a.Cluster), now)
}

// HeldBySlices of a cluster.
func (h *History) HeldBySlices(cluster string) Amounts {
	h.mu.Lock()
	defer h.mu.Unlock()
	hold, _ := h.replay.book.Hold(slicesOf(cluster))
	return Amounts{hold.Amounts["cpu"], hold.Amounts["memory"]}
}

func (r *replay) changed(row Row, old, body Reservation, counts *Counts) error {
	if row.Gone {
		if old.Phase == Reserved {
			counts.Ends++
			return r.end(row, old)
		}
		return nil
	}
	switch {
	case old.UID != body.UID:
		return fmt.Errorf("the uid was %s", old.UID)
	case old.Generation > body.Generation:
		return fmt.Errorf("the generation goes back from %d", old.Generation)
	case old.Phase == Pending && body.Phase == Reserved:
		return r.grant(row, body, counts)
	case old.Phase == Pending && (body.Phase == Pending || body.Phase == Failed):
		return nil
	case old.Phase == Reserved && body.Phase == Reserved:
		return r.extended(row, old, body, counts)
	case old.Phase == Reserved && body.Phase == Released:
		return r.released(row, old, body, counts)
	case old.Phase == body.Phase:
		return nil
	}
	return fmt.Errorf("the phase was %s", old.Phase)
}

func (r *replay) grant(row Row, body Reservation, counts *Counts) error {
	counts.Grants++
	if err := spans(body); err != nil || body.Pieces > 0 {
		return err
	}
	if body.Fence != row.Rev {
		return fmt.Errorf("granted at revision %d with fence %d", row.Rev, body.Fence)
	}
	return r.book.Grant(row.Rev, model.Hold{
		Holder: row.Key, Cluster: body.Target, Amounts: body.Asked.model(), Fence: body.Fence, ExpiresAt: body.ExpiresAt,
	})
}

func (r *replay) extended(row Row, old, body Reservation, counts *Counts) error {
	switch {
	case old.Target != body.Target || old.Fence != body.Fence || old.ReservedAt != body.ReservedAt || old.Asked != body.Asked:
		return fmt.Errorf("what was granted has changed from %+v", old)
	case old.ExpiresAt == body.ExpiresAt:
		return nil
	case body.ExpiresAt != 0 && (old.ExpiresAt == 0 || body.ExpiresAt < old.ExpiresAt):
		return fmt.Errorf("it expires earlier, not at %d", old.ExpiresAt)
	}
	counts.Extensions++
	if err := spans(body); err != nil || body.Pieces > 0 {
		return err
	}
	return r.book.Extend(row.Rev, row.Key, body.ExpiresAt)
}

func (r *replay) released(row Row, old, body Reservation, counts *Counts) error {
	counts.Ends++
	switch body.Reason {
	case "Expired":
		counts.Expiries++
		// Ends are told in seconds, rounded down.
		if old.ExpiresAt == 0 || old.ExpiresAt >= (body.EndedAt+1)*1_000_000 {
			return fmt.Errorf("it ended before it expired, at %d", old.ExpiresAt)
		}
	case "ProviderWithdrawn":
		if !r.lostProvider(old) {
			return fmt.Errorf("no provider of it did withdraw")
		}
	default:
		return fmt.Errorf("no reason for an end")
	}
	return r.end(row, old)
}

// end of what was held; a split reservation itself holds nothing.
func (r *replay) end(row Row, old Reservation) error {
	if old.Pieces > 0 {
		return nil
	}
	return r.book.End(row.Rev, row.Key)
}
