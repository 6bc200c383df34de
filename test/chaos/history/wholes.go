package history

import "fmt"

// wholesIn says whether of each whole among the reservations of one revision all or nothing is held: no
// list may ever show two of three.
func wholesIn(rows map[string]Row) error {
	parts, heads := map[string][]Row{}, map[string]Row{}
	for _, key := range sortedKeys(rows) {
		body := rows[key].Body.(Reservation)
		switch {
		case body.Bound:
			parts[body.PartOf] = append(parts[body.PartOf], rows[key])
		case body.Pieces > 0:
			heads[body.UID] = rows[key]
			if _, some := parts[body.UID]; !some {
				parts[body.UID] = nil
			}
		}
	}
	for _, uid := range sortedKeys(parts) {
		if err := wholeIn(heads[uid], parts[uid]); err != nil {
			return err
		}
	}
	return nil
}

// wholeIn is asked of the parts of one whole that are there. head is the split reservation; an atomic batch
// has none.
func wholeIn(head Row, parts []Row) error {
	split, isSplit := head.Body.(Reservation)
	held, size, expiresAt := 0, split.Pieces, split.ExpiresAt
	var sum Amounts
	for _, part := range parts {
		body := part.Body.(Reservation)
		if body.Phase != Reserved {
			continue
		}
		held++
		if body.Parts > 0 { // an item of a batch says how many there are
			size, expiresAt = body.Parts, body.ExpiresAt
		}
		sum.CPUMilli += body.Asked.CPUMilli
		sum.MemoryBytes += body.Asked.MemoryBytes
	}
	if held == 0 && split.Phase != Reserved {
		return nil
	}
	if held != size || isSplit && (split.Phase != Reserved || sum != split.Asked) {
		return fmt.Errorf("%d of %d parts are held: %+v, %+v", held, size, head, parts)
	}
	for _, part := range parts {
		if body := part.Body.(Reservation); body.ExpiresAt != expiresAt {
			return fmt.Errorf("parts of one whole end apart: %+v, %+v", head, parts)
		}
	}
	return nil
}

// lostProvider says whether who held lost its provider, or the whole that it is a part or the head of lost
// one: then all of it ends.
func (r *replay) lostProvider(held Reservation) bool {
	withdrawn := func(target string) bool {
		ad, _ := r.rows[name{Advertisements, target + "-adv"}].Body.(Advertisement)
		return ad.Withdrawn
	}
	if withdrawn(held.Target) {
		return true
	}
	whole := held.UID
	if held.Bound {
		whole = held.PartOf
	}
	for of, row := range r.rows {
		if of.kind == Reservations {
			if part := row.Body.(Reservation); part.Bound && part.PartOf == whole && withdrawn(part.Target) {
				return true
			}
		}
	}
	return false
}

// madeOnce: no part is ever made twice for one whole, however often that was asked for.
func (r *replay) madeOnce(row Row) error {
	body := row.Body.(Reservation)
	if body.PartOf == "" {
		return nil
	}
	once := body.PartOf + " " + row.Key
	if r.made[once] {
		return fmt.Errorf("it was made before, for the same whole")
	}
	r.made[once] = true
	return nil
}
