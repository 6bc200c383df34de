package fsm

import (
	"iter"

	iradix "github.com/hashicorp/go-immutable-radix/v2"

	"github.com/bourse-dev/bourse/allocation"
)

// holdTree keeps an account's holds by holder; immutable. The zero value is empty.
type holdTree struct{ tree *iradix.Tree[*Hold] }

func (t holdTree) len() int {
	if t.tree == nil {
		return 0
	}
	return t.tree.Len()
}

func (t holdTree) get(holder string) *Hold {
	if t.tree == nil {
		return nil
	}
	h, _ := t.tree.Get([]byte(holder))
	return h
}

func (t holdTree) all() iter.Seq[*Hold] {
	return func(yield func(*Hold) bool) {
		if t.tree != nil {
			t.tree.Root().Walk(func(_ []byte, h *Hold) bool { return !yield(h) })
		}
	}
}

func (t holdTree) with(h *Hold) holdTree {
	if t.tree == nil {
		t.tree = iradix.New[*Hold]()
	}
	t.tree, _, _ = t.tree.Insert([]byte(h.Holder), h)
	return t
}

func (t holdTree) without(holder string) holdTree {
	t.tree, _, _ = t.tree.Delete([]byte(holder))
	if t.tree.Len() == 0 {
		return holdTree{}
	}
	return t
}

// Holds yields the account's live holds in order of their holders' keys.
func (a *Account) Holds() iter.Seq[Hold] {
	return func(yield func(Hold) bool) {
		for h := range a.holds.all() {
			if !yield(*h) {
				return
			}
		}
	}
}

// Hold returns what holder holds on the account.
func (a *Account) Hold(holder string) (Hold, bool) {
	if h := a.holds.get(holder); h != nil {
		return *h, true
	}
	return Hold{}, false
}

// HoldCount is the number of live holds.
func (a *Account) HoldCount() int { return a.holds.len() }

// valid says whether the vectors that came from outside are well formed. The sums are
// compared with the holds instead.
func (a *Account) valid() bool {
	return a.Allocatable.Valid() && a.Allocated.Valid() && a.KeepBack.Valid() && a.LargestFree.Valid()
}

// take and free keep the sums in step with the tree.

func (a *Account) take(h *Hold) {
	a.holds = a.holds.with(h)
	a.Held = a.Held.Add(h.Amounts)
	a.Used = a.Used.Add(h.Used)
	a.HeldOrUsed = a.HeldOrUsed.Add(h.Amounts.Max(h.Used))
}

func (a *Account) free(h *Hold) {
	a.holds = a.holds.without(h.Holder)
	a.Held = a.Held.Sub(h.Amounts)
	a.Used = a.Used.Sub(h.Used)
	a.HeldOrUsed = a.HeldOrUsed.Sub(h.Amounts.Max(h.Used))
}

// sums are an account's figures as its holds add up to.
type sums struct{ held, used, heldOrUsed tally }

func (a *Account) addUp(s *sums) {
	s.held.list, s.used.list, s.heldOrUsed.list = s.held.list[:0], s.used.list[:0], s.heldOrUsed.list[:0]
	for h := range a.holds.all() {
		s.held.add(h.Amounts)
		s.used.add(h.Used)
		s.heldOrUsed.addGreater(h.Amounts, h.Used)
	}
}

// disagreement names the figure of the account that is not the sum of its holds.
func (a *Account) disagreement(s *sums) string {
	a.addUp(s)
	switch {
	case !a.Held.Equal(s.held.list):
		return "held is not the sum of the live holds"
	case !a.Used.Equal(s.used.list):
		return "used is not the sum of the live holds' use"
	case !a.HeldOrUsed.Equal(s.heldOrUsed.list):
		return "heldOrUsed is not the sum over the live holds"
	}
	return ""
}

// tally adds vectors up in place. Values are positive and, by the bounds on holds and use,
// never overflow.
type tally struct{ list allocation.Amounts }

func (t *tally) add(amounts allocation.Amounts) {
	for _, a := range amounts {
		t.one(a)
	}
}

func (t *tally) addGreater(x, y allocation.Amounts) {
	for len(x) > 0 || len(y) > 0 {
		switch {
		case len(y) == 0 || len(x) > 0 && x[0].Resource < y[0].Resource:
			t.one(x[0])
			x = x[1:]
		case len(x) == 0 || y[0].Resource < x[0].Resource:
			t.one(y[0])
			y = y[1:]
		default:
			t.one(allocation.Amount{Resource: x[0].Resource, Value: max(x[0].Value, y[0].Value)})
			x, y = x[1:], y[1:]
		}
	}
}

func (t *tally) one(a allocation.Amount) {
	i := 0
	for i < len(t.list) && t.list[i].Resource < a.Resource {
		i++
	}
	if i < len(t.list) && t.list[i].Resource == a.Resource {
		t.list[i].Value += a.Value
		return
	}
	t.list = append(t.list, allocation.Amount{})
	copy(t.list[i+1:], t.list[i:])
	t.list[i] = a
}
