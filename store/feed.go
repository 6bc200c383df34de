package store

import (
	"slices"
	"sync/atomic"

	"github.com/bourse-dev/bourse/fsm"
)

// feed is the bounded history of changes and the index of those who follow it. Guarded by DB.mu.
type feed struct {
	maxChanges, maxBytes int

	items  []*change // oldest first
	first  uint64    // sequence number of items[0]
	oldest fsm.Revision
	bytes  int

	followers map[string]map[*Follower]struct{} // by prefix
	count     int
}

// change is one change in the history.
type change struct {
	fsm.Change
	weight int
	after  atomic.Pointer[rowObjects] // nil until somebody asks
	gone   goneObjects
}

func newFeed(revision fsm.Revision, maxChanges, maxBytes int) feed {
	return feed{
		maxChanges: maxChanges, maxBytes: maxBytes, oldest: revision,
		followers: make(map[string]map[*Follower]struct{}),
	}
}

// append records changes and says how many followers it woke.
func (f *feed) append(changes []fsm.Change) (woken int) {
	for i := range changes {
		c := &change{Change: changes[i], weight: weigh(&changes[i])}
		f.items = append(f.items, c)
		f.bytes += c.weight
		woken += f.wake(c.Key(), f.first+uint64(len(f.items)-1))
	}
	drop := 0
	for left, bytes := len(f.items), f.bytes; left > f.maxChanges || bytes > f.maxBytes && left > 0; left-- {
		bytes -= f.items[drop].weight
		drop++
	}
	f.drop(drop)
	return woken
}

// drop forgets the n oldest changes.
func (f *feed) drop(n int) {
	for _, c := range f.items[:n] {
		f.bytes -= c.weight
		f.oldest = c.Revision
	}
	clear(f.items[:n])
	f.items = f.items[n:]
	f.first += uint64(n)
}

// reset forgets everything and ends every follower.
func (f *feed) reset(revision fsm.Revision) {
	f.drop(len(f.items))
	f.oldest = revision
	for _, set := range f.followers {
		for follower := range set {
			follower.ended = true
			follower.nudge()
		}
	}
}

// wake marks the followers that a change of key concerns: those of the key itself, of each prefix
// of it that ends in a slash, and of everything.
func (f *feed) wake(key string, sequence uint64) (woken int) {
	woken = f.wakeSet("", sequence) + f.wakeSet(key, sequence)
	for i := range len(key) - 1 {
		if key[i] == '/' {
			woken += f.wakeSet(key[:i+1], sequence)
		}
	}
	return woken
}

func (f *feed) wakeSet(prefix string, sequence uint64) (woken int) {
	for follower := range f.followers[prefix] {
		if !follower.behind {
			follower.behind, follower.next = true, sequence
			follower.nudge()
			woken++
		}
	}
	return woken
}

func (f *feed) add(follower *Follower) {
	set := f.followers[follower.prefix]
	if set == nil {
		set = make(map[*Follower]struct{})
		f.followers[follower.prefix] = set
	}
	set[follower] = struct{}{}
	f.count++
}

func (f *feed) remove(follower *Follower) {
	set := f.followers[follower.prefix]
	if _, ok := set[follower]; !ok {
		return
	}
	delete(set, follower)
	f.count--
	if len(set) == 0 {
		delete(f.followers, follower.prefix)
	}
}

// after is the index in items of the first change beyond revision.
func (f *feed) after(revision fsm.Revision) int {
	i, _ := slices.BinarySearchFunc(f.items, revision+1, func(c *change, r fsm.Revision) int {
		switch {
		case c.Revision < r:
			return -1
		case c.Revision > r:
			return 1
		}
		return 0
	})
	return i
}

// weigh reckons what a change keeps in memory. The row before was weighed when it was written.
func weigh(c *fsm.Change) int {
	row := c.After
	if row == nil {
		row = c.Before
	}
	weight := changeOverhead + bodyWeight*len(row.Body) + len(row.Facts)
	if row.Ledger != nil {
		weight += bodyWeight * len(row.Ledger.Decision)
	}
	return weight
}
