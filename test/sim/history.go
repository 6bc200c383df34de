package main

import (
	"errors"
	"strings"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/test/model"
)

// history is what was committed, as the first node to apply it saw it, and what clients were told.
// Every other node is compared with it; so is every answer.
type history struct {
	trace   *trace
	book    *model.Book
	entries []committed  // by index, from 1
	changes []fsm.Change // by revision, from 1
	time    fsm.Millis
	term    uint64     // of the newest entry
	floor   fsm.Millis // state time when that term began
	effects map[fsm.RequestID][]fsm.Revision
	known   fsm.Revision // the newest that any client was told or shown, a watch and a local read included
	never   []never
	wholes  wholes

	withdrawn map[string]bool    // by account
	heard     map[string]hearing // by account: the newest report with an effect
}

type hearing struct{ epoch, sequence uint64 }

type committed struct {
	entry    entry
	revision fsm.Revision
	hash     fsm.Hash
}

func newHistory(t *trace) *history {
	return &history{
		trace: t, book: model.New(), effects: map[fsm.RequestID][]fsm.Revision{},
		wholes: newWholes(), withdrawn: map[string]bool{}, heard: map[string]hearing{},
	}
}

func (h *history) revision() fsm.Revision { return fsm.Revision(len(h.changes)) }

// applied is told of each entry that a node applied.
func (h *history) applied(n *node, index uint64, e *entry, results []fsm.Result) {
	state := n.db.State()
	hash := state.Hash()
	h.trace.mix(index, uint64(state.Revision()), uint64(hash[0])|uint64(hash[1])<<8|uint64(hash[2])<<16)
	switch have := uint64(len(h.entries)); {
	case index > have+1:
		h.trace.fail("the simulator's own log: n%d applies entry %d, only %d were committed", n.id, index, have)
	case index <= have:
		h.compare(n, index, e, state, hash)
	default:
		before := h.revision()
		h.entries = append(h.entries, committed{*e, state.Revision(), hash})
		changes, err := n.db.Changes(before)
		if err != nil {
			h.trace.fail("n%d has no changes after revision %d: %v", n.id, before, err)
			return
		}
		if got := before + fsm.Revision(len(changes)); got != state.Revision() {
			h.trace.fail("n%d: %d changes lead from revision %d to %d", n.id, len(changes), before, state.Revision())
			return
		}
		h.changes = append(h.changes, changes...)
		if e.data != nil {
			h.record(e, state, results, changes, before)
		}
		h.time = state.Time()
	}
}

func (h *history) compare(n *node, index uint64, e *entry, state *fsm.State, hash fsm.Hash) {
	first := &h.entries[index-1]
	switch {
	case !first.entry.same(e):
		h.trace.fail("the simulator's own log: n%d applies another entry %d", n.id, index)
	case first.hash != hash:
		h.trace.fail("n%d: after entry %d its state (revision %d) differs from the first node's (revision %d)",
			n.id, index, state.Revision(), first.revision)
	}
}

// restored is told of each snapshot that a node installed or started from.
func (h *history) restored(n *node, index uint64) {
	if index > uint64(len(h.entries)) {
		h.trace.fail("the simulator's own log: n%d has a snapshot of entry %d", n.id, index)
		return
	}
	state := n.db.State()
	if want := h.entries[index-1]; want.hash != state.Hash() {
		h.trace.fail("n%d: the snapshot of entry %d (revision %d) differs from the state then (revision %d)",
			n.id, index, state.Revision(), want.revision)
	}
}

// record checks one newly committed entry against the rules.
func (h *history) record(e *entry, state *fsm.State, results []fsm.Result, changes []fsm.Change, before fsm.Revision) {
	decoded, err := fsm.DecodeEntry(e.data)
	if errors.Is(err, fsm.ErrIgnorable) {
		h.trace.stats.count("command", "passed over")
		return
	}
	if err != nil {
		h.trace.fail("a committed entry can't be read: %v", err)
		return
	}
	if e.term > h.term {
		h.term, h.floor = e.term, h.time
	}
	// What a term took over includes the time: its clock starts from there.
	if decoded.Time < h.floor {
		h.trace.fail("an entry of term %d brings state time %d, and the term began at %d", e.term, decoded.Time, h.floor)
	}
	if state.Time() < h.time || state.Time() != max(h.time, decoded.Time) {
		h.trace.fail("state time went from %d to %d by an entry of %d", h.time, state.Time(), decoded.Time)
	}
	h.trace.stats.entry(decoded, results)
	done := before
	for i := range results {
		if i < len(decoded.Txns) {
			h.effect(decoded.Txns[i].ID, &results[i], done)
		} else if results[i].Refusal == nil && results[i].Revision > done {
			h.report(&decoded.Reports[i-len(decoded.Txns)], state)
		}
		if results[i].Refusal == nil && results[i].Revision > done {
			h.follow(changes[done-before:results[i].Revision-before], state.Time())
			done = results[i].Revision
		}
	}
	if done != before+fsm.Revision(len(changes)) {
		h.trace.fail("%d changes, and the results end at revision %d", len(changes), done)
	}
}

// report had an effect: it must be newer than all that had before, and the account be as it says.
func (h *history) report(r *fsm.Report, state *fsm.State) {
	if r.Open {
		return
	}
	last, is := h.heard[r.Account], hearing{r.Epoch, r.Sequence}
	if is.epoch < last.epoch || is.epoch == last.epoch && is.sequence <= last.sequence {
		h.trace.fail("a report of %s of epoch %d, number %d had an effect after one of epoch %d, number %d", r.Account, is.epoch, is.sequence, last.epoch, last.sequence)
	}
	h.heard[r.Account] = is
	a := state.Row(r.Account).Account
	if !equal(amountsOf(a.Allocatable), amountsOf(r.Facts.Allocatable)) || !equal(amountsOf(a.Allocated), amountsOf(r.Facts.Allocated)) {
		h.trace.fail("%s has %v, allocated %v, and its agent reported %v, %v", r.Account, a.Allocatable, a.Allocated, r.Facts.Allocatable, r.Facts.Allocated)
	}
}

func (h *history) effect(id fsm.RequestID, result *fsm.Result, done fsm.Revision) {
	if id != (fsm.RequestID{}) && result.Refusal == nil && result.Revision > done {
		h.effects[id] = append(h.effects[id], result.Revision)
		if len(h.effects[id]) > 1 {
			h.trace.fail("request %x was done more than once, at %v", id.Random, h.effects[id])
		}
	}
}

// follow brings the book up to what one command changed: ends make room for grants.
func (h *history) follow(changes []fsm.Change, now fsm.Millis) {
	for _, end := range []bool{true, false} {
		for i := range changes {
			h.followHolds(changes, i, end, now)
		}
	}
	for i := range changes {
		h.followAccount(&changes[i], uint64(changes[len(changes)-1].Revision))
	}
	h.followWholes(changes)
}

// followHolds is told one of the changes of a command.
func (h *history) followHolds(changes []fsm.Change, i int, end bool, now fsm.Millis) {
	c, revision := &changes[i], uint64(changes[len(changes)-1].Revision)
	was, is := holdOf(c.Before), holdOf(c.After)
	var err error
	switch {
	case was != nil && is != nil && is.Fence == was.Fence && !equal(amountsOf(is.Amounts), amountsOf(was.Amounts)):
		// As an end where it gives back, as a grant where it takes.
		if more := !within(is.Amounts, was.Amounts); more != end {
			h.trace.stats.count("hold resized", map[bool]string{true: "more", false: "less"}[more])
			err = h.book.Resize(revision, c.Key(), amountsOf(is.Amounts))
		}
	case end && was != nil && (is == nil || is.Fence != was.Fence):
		h.checkEnd(changes, i, now)
		err = h.book.End(revision, c.Key())
	case !end && is != nil && (was == nil || is.Fence != was.Fence):
		h.trace.stats.grants++
		err = h.book.Grant(revision, model.Hold{
			Holder: c.Key(), Cluster: is.Account, Amounts: amountsOf(is.Amounts), Fence: uint64(is.Fence),
			ExpiresAt: int64(c.After.Ledger.ExpiresAt),
		})
	case !end && is != nil && c.Before.Ledger.ExpiresAt != c.After.Ledger.ExpiresAt:
		if after, before := c.After.Ledger.ExpiresAt, c.Before.Ledger.ExpiresAt; after != 0 && (before == 0 || after < before) {
			h.trace.fail("revision %d: the lease of %s was cut from %d to %d", c.Revision, c.Key(), before, after)
		}
		err = h.book.Extend(revision, c.Key(), int64(c.After.Ledger.ExpiresAt))
	}
	if err != nil {
		h.trace.fail("%v", err)
	}
	if !end {
		h.checkLease(c.After)
	}
}

// checkLease: what is Reserved ends when its spec says, an extension included.
func (h *history) checkLease(row *fsm.Row) {
	if row == nil || !strings.HasPrefix(row.Key, broker.ReservationsPrefix) || row.Ledger == nil || row.Ledger.Phase != store.PhaseReserved {
		return
	}
	r := store.ReservationOf(row)
	want := fsm.Millis(0)
	if span, err := broker.ParseSpan(r.Spec.Duration); err == nil && r.Spec.Duration != "" {
		want = row.Ledger.GrantedAt + fsm.Millis(span.Milliseconds())
	}
	if row.Ledger.ExpiresAt != want {
		h.trace.fail("%s was granted at %d for %q and ends at %d", row.Key, row.Ledger.GrantedAt, r.Spec.Duration, row.Ledger.ExpiresAt)
	}
}

// checkEnd: a lease ends by its time only once that has come, by a withdrawal only where there was one.
func (h *history) checkEnd(changes []fsm.Change, i int, now fsm.Millis) {
	c := &changes[i]
	if c.After == nil || !strings.HasPrefix(c.Key(), broker.ReservationsPrefix) {
		return
	}
	before, after := c.Before.Ledger, c.After.Ledger
	h.trace.stats.count("end of a hold", after.Reason)
	switch {
	case after.Phase != store.PhaseReleased:
		h.trace.fail("revision %d: %s lost its hold and is in phase %d", c.Revision, c.Key(), after.Phase)
	case after.Reason == "Expired" && (before.ExpiresAt == 0 || now < before.ExpiresAt):
		h.trace.fail("revision %d: %s expired at %d, its lease ran until %d", c.Revision, c.Key(), now, before.ExpiresAt)
	case after.Reason == "ProviderWithdrawn" && !h.lostProvider(c, changes):
		h.trace.fail("revision %d: %s ended since its provider withdrew, and %s did not", c.Revision, c.Key(), before.Target)
	case after.Reason != "Expired" && after.Reason != "ProviderWithdrawn":
		h.trace.fail("revision %d: %s ended for no known reason: %q", c.Revision, c.Key(), after.Reason)
	}
}

// followAccount enters what a command did at the revision of its end: it may change several accounts.
func (h *history) followAccount(c *fsm.Change, revision uint64) {
	isAccount := c.After != nil && c.After.Account != nil
	if isAccount && c.Key() != stock {
		h.withdrawn[c.Key()] = store.AdvertisementOf(c.After).Spec.Lending.Withdrawn
	}
	wasAccount := c.Before != nil && c.Before.Account != nil
	var err error
	switch {
	case isAccount:
		a := c.After.Account
		err = h.book.Advertise(revision, c.Key(), amountsOf(a.Allocatable), amountsOf(a.Allocated), amountsOf(a.KeepBack), c.After.Closed())
		for hold := range a.Holds() {
			err = errors.Join(err, h.book.Use(revision, hold.Holder, amountsOf(hold.Used)))
		}
		if held := h.book.Held(c.Key()); err == nil && !equal(held, amountsOf(a.Held)) {
			h.trace.fail("revision %d: %s holds %v, the holds are %v", c.Revision, c.Key(), a.Held, held)
		}
	case wasAccount:
		delete(h.heard, c.Key()) // another account of this name counts anew
		err = h.book.Advertise(revision, c.Key(), nil, nil, nil, true)
		if held := h.book.Held(c.Key()); err == nil && len(held) > 0 {
			h.trace.fail("revision %d: %s is deleted, and %v of it is held", c.Revision, c.Key(), held)
		}
	}
	if err != nil {
		h.trace.fail("%v", err)
	}
}

// holdOf a row; the house knows no row with two.
func holdOf(row *fsm.Row) *fsm.Held {
	if row == nil || row.Ledger == nil || len(row.Ledger.Holds) == 0 {
		return nil
	}
	return &row.Ledger.Holds[0]
}

// within says whether a takes no more than b of anything.
func within(a, b allocation.Amounts) bool { return len(a.Sub(b).Max(nil)) == 0 }

func amountsOf(a allocation.Amounts) model.Amounts {
	out := make(model.Amounts, len(a))
	for _, one := range a {
		out[one.Resource] = one.Value
	}
	return out
}

func equal(a, b model.Amounts) bool {
	for name, value := range a {
		if b[name] != value {
			return false
		}
	}
	for name, value := range b {
		if a[name] != value {
			return false
		}
	}
	return true
}
