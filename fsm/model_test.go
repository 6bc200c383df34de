package fsm

import (
	"fmt"
	"maps"

	"github.com/bourse-dev/bourse/allocation"
)

// model is the book of who holds what, written apart from the state machine and simply: maps
// of numbers, copied whole for every command.
type model struct {
	books  map[string]*book
	rows   map[string]*modelRow // holders and accounts
	stored map[string]*Row      // as the changes so far said
}

type book struct {
	facts, allocated, keepBack map[string]int64
	closed                     bool
	holds                      map[string]*modelHold
}

type modelHold struct{ amounts, used map[string]int64 }

type modelRow struct{ ended, closed bool }

func newModel() *model {
	return &model{map[string]*book{}, map[string]*modelRow{}, map[string]*Row{}}
}

func (m *model) copy() *model {
	c := newModel()
	c.stored = m.stored
	for k, r := range m.rows {
		row := *r
		c.rows[k] = &row
	}
	for k, b := range m.books {
		next := *b
		next.holds = map[string]*modelHold{}
		for holder, h := range b.holds {
			hold := *h
			next.holds[holder] = &hold
		}
		c.books[k] = &next
	}
	return c
}

func plain(a allocation.Amounts) map[string]int64 {
	out := map[string]int64{}
	for _, x := range a {
		out[x.Resource] = x.Value
	}
	return out
}

// free is the one formula of the design, for one resource.
func (b *book) free(resource string) int64 {
	var used, promised int64
	for _, h := range b.holds {
		used += h.used[resource]
		promised += max(h.amounts[resource], h.used[resource])
	}
	return b.facts[resource] - b.keepBack[resource] - max(0, b.allocated[resource]-used) - promised
}

// stores follows what was written.
func (m *model) stores(changes []Change) {
	for _, c := range changes {
		m.stored[c.Key()] = c.After
	}
}

// guards says whether all hold at the time.
func (m *model) guards(guards []Guard, now Millis) bool {
	for _, g := range guards {
		if !m.guard(&g, now) {
			return false
		}
	}
	return true
}

func (m *model) guard(g *Guard, now Millis) bool {
	row := m.stored[g.Key]
	absent := g.Part == PartRow && g.Revision == 0
	if row == nil || absent {
		return row == nil && absent
	}
	switch g.Part {
	case PartLease:
		l := row.Ledger
		return l != nil && l.ExpiresAt != 0 && l.Fence == g.Revision && l.ExpiresAt == g.ExpiresAt && l.ExpiresAt <= now
	case PartBody:
		return row.BodyRev == g.Revision
	case PartSpec:
		return row.SpecRev == g.Revision
	case PartFacts:
		return row.FactsRev == g.Revision
	case PartLedger:
		return row.LedgerRev == g.Revision
	}
	return max(row.BodyRev, row.FactsRev, row.LedgerRev) == g.Revision
}

// txn says what a Txn whose guards hold does to the book: the next book, or nil where it must
// be refused.
func (m *model) txn(t *Txn) *model {
	if !sane(t) {
		return nil
	}
	m = m.copy()
	gone := map[string]bool{}
	for _, v := range t.Moves {
		if v.Op == MoveRelease && !m.drop(v.Account, v.Holder) {
			return nil
		}
	}
	for _, w := range t.Writes {
		switch row := m.rows[w.Key]; {
		case row != nil && w.IfAbsent:
			continue
		case w.Delete && row == nil:
			return nil
		case w.Delete:
			gone[w.Key] = true
			continue
		case row == nil:
			m.rows[w.Key] = &modelRow{}
		}
		if w.Ledger != nil {
			m.rows[w.Key].ended, m.rows[w.Key].closed = w.Ledger.Ended, w.Ledger.Closed
		}
		if w.Terms != nil {
			if m.books[w.Key] == nil {
				m.books[w.Key] = &book{holds: map[string]*modelHold{}}
			}
			m.books[w.Key].keepBack, m.books[w.Key].closed = plain(w.Terms.KeepBack), w.Terms.Closed
		}
	}
	for _, v := range t.Moves {
		if v.Op != MoveTransfer {
			continue
		}
		b := m.books[v.Account]
		if b == nil || gone[v.Account] || b.holds[v.Holder] == nil || !m.canHold(v.To, v.Account, gone) {
			return nil
		}
		b.holds[v.To] = b.holds[v.Holder]
		delete(b.holds, v.Holder)
	}
	for key, row := range m.rows {
		for _, b := range m.books {
			if row.ended || gone[key] {
				delete(b.holds, key)
			}
		}
	}
	for _, v := range t.Moves {
		if v.Op == MoveResize && !m.resize(&v, gone) {
			return nil
		}
	}
	for _, v := range t.Moves {
		if v.Op == MoveHold && !m.take(&v, gone) {
			return nil
		}
	}
	for key := range gone {
		if m.books[key] != nil && len(m.books[key].holds) > 0 {
			return nil
		}
		delete(m.books, key)
		delete(m.rows, key)
	}
	return m
}

func (m *model) drop(account, holder string) bool {
	b := m.books[account]
	if b == nil || b.holds[holder] == nil {
		return false
	}
	delete(b.holds, holder)
	return true
}

func (m *model) canHold(holder, account string, gone map[string]bool) bool {
	row := m.rows[holder]
	return row != nil && !gone[holder] && !row.ended && m.books[account].holds[holder] == nil
}

func (m *model) take(v *Move, gone map[string]bool) bool {
	b := m.books[v.Account]
	if b == nil || gone[v.Account] || b.closed || m.rows[v.Account].closed || !m.canHold(v.Holder, v.Account, gone) {
		return false
	}
	for _, a := range v.Amounts {
		if a.Value > max(0, b.free(a.Resource)) {
			return false
		}
	}
	b.holds[v.Holder] = &modelHold{amounts: plain(v.Amounts), used: map[string]int64{}}
	return true
}

// resize: a hold may take less at any time, more where the account is open and has it.
func (m *model) resize(v *Move, gone map[string]bool) bool {
	b := m.books[v.Account]
	if b == nil || gone[v.Account] || b.holds[v.Holder] == nil {
		return false
	}
	old := b.holds[v.Holder]
	b.holds[v.Holder] = &modelHold{amounts: plain(v.Amounts), used: old.used}
	for _, a := range v.Amounts {
		grows := a.Value > max(old.amounts[a.Resource], old.used[a.Resource])
		if grows && (b.closed || m.rows[v.Account].closed || b.free(a.Resource) < 0) {
			return false
		}
	}
	return true
}

// sane says whether the Txn makes sense at all.
func sane(t *Txn) bool {
	times := map[string]int{}
	for _, w := range t.Writes {
		times[w.Key]++
	}
	for _, w := range t.Writes {
		if w.Delete && times[w.Key] > 1 || !w.Delete && w.Body == nil && w.Facts == nil && w.Ledger == nil && w.Terms == nil {
			return false
		}
	}
	for _, v := range t.Moves {
		if (v.Op == MoveHold || v.Op == MoveResize) && len(v.Amounts) == 0 || v.Op == MoveTransfer && v.To == v.Holder {
			return false
		}
		for _, a := range v.Amounts {
			if a.Value <= 0 {
				return false
			}
		}
	}
	return true
}

// report records facts that the state has accepted.
func (m *model) report(r *Report, fences map[string]Revision) {
	if r.Open {
		return
	}
	b := m.books[r.Account]
	b.facts, b.allocated = plain(r.Facts.Allocatable), plain(r.Facts.Allocated)
	for _, h := range b.holds {
		h.used = map[string]int64{}
	}
	for _, u := range r.Use {
		if h := b.holds[u.Holder]; h != nil && fences[u.Holder] == u.Fence {
			h.used = plain(u.Used)
		}
	}
}

// differs compares the book with the state's accounts.
func (m *model) differs(s *State) string {
	found := 0
	for row := range s.Scan("") {
		if m.rows[row.Key] == nil {
			return row.Key + " is not in the model"
		}
		if row.Account == nil {
			continue
		}
		found++
		b := m.books[row.Key]
		if b == nil || len(b.holds) != row.Account.HoldCount() {
			return row.Key + ": another number of holds"
		}
		for h := range row.Account.Holds() {
			want := b.holds[h.Holder]
			if want == nil || !maps.Equal(want.amounts, plain(h.Amounts)) || !maps.Equal(want.used, plain(h.Used)) {
				return row.Key + ": another hold of " + h.Holder
			}
		}
		for _, resource := range []string{allocation.CPU, allocation.Memory, "nvidia.com/gpu"} {
			if got, want := row.Account.Available(resource), max(0, b.free(resource)); got != want {
				return fmt.Sprintf("%s: %d %s available, the model says %d", row.Key, got, resource, want)
			}
		}
	}
	if found != len(m.books) || s.Len("") != len(m.rows) {
		return "another number of rows"
	}
	return ""
}
