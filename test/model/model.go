// Package model is what must be true of any history of the exchange, written apart from its code:
// capacity is promised once, fences rise, only what is held ends. It imports nothing of the
// product, so that no bug can be in both.
package model

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ErrViolation is wrapped by every error of a Book: the history breaks a rule.
var ErrViolation = errors.New("violation")

// Amounts are resource names with their smallest units: milli for cpu, bytes, counts.
type Amounts map[string]int64

// Hold is what one holder has been promised of one cluster.
type Hold struct {
	Holder, Cluster string
	Amounts         Amounts
	Used            Amounts // of what the cluster says is allocated, by the holder's own pods
	Fence           uint64
	ExpiresAt       int64 // 0: never
}

// Book follows a history in the order of its revisions. Methods that break a rule say so and
// leave the book as it was.
type Book struct {
	revision uint64
	accounts map[string]account
	holds    map[string]Hold   // by holder
	fences   map[string]uint64 // newest of each holder and each cluster, ended ones included
}

type account struct {
	allocatable, allocated, keepBack Amounts
	closed                           bool
}

// New is the book of an empty exchange.
func New() *Book {
	return &Book{accounts: map[string]account{}, holds: map[string]Hold{}, fences: map[string]uint64{}}
}

// Advertise tells what a cluster has. Facts always win: they may leave holds uncovered.
func (b *Book) Advertise(rev uint64, cluster string, allocatable, allocated, keepBack Amounts, closed bool) error {
	if err := b.at(rev); err != nil {
		return err
	}
	b.accounts[cluster] = account{maps.Clone(allocatable), maps.Clone(allocated), maps.Clone(keepBack), closed}
	return nil
}

// Grant promises. It must fit, the holder must hold nothing yet, and the fence must be above every
// earlier one of the holder and of the cluster.
func (b *Book) Grant(rev uint64, h Hold) error {
	if err := b.at(rev); err != nil {
		return err
	}
	if old, ok := b.holds[h.Holder]; ok {
		return violation(rev, "%s is granted %s, and holds on %s already", h.Holder, h.Cluster, old.Cluster)
	}
	account, ok := b.accounts[h.Cluster]
	if !ok || account.closed {
		return violation(rev, "%s is granted %s, which takes no hold", h.Holder, h.Cluster)
	}
	if h.Fence == 0 || h.Fence > rev {
		return violation(rev, "%s is granted %s with fence %d", h.Holder, h.Cluster, h.Fence)
	}
	for _, who := range []string{"holder " + h.Holder, "cluster " + h.Cluster} {
		if h.Fence <= b.fences[who] {
			return violation(rev, "fence %d of %s is not above %d, an earlier one", h.Fence, who, b.fences[who])
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(h.Amounts)) {
		free := b.free(h.Cluster, resource)
		if asked := h.Amounts[resource]; asked < 0 || asked > free {
			return violation(rev, "%s is granted %d %s of %s, where %d are free", h.Holder, asked, resource, h.Cluster, free)
		}
	}
	h.Amounts = maps.Clone(h.Amounts)
	b.holds[h.Holder] = h
	b.fences["holder "+h.Holder] = h.Fence
	b.fences["cluster "+h.Cluster] = h.Fence
	return nil
}

// Resize changes how much a hold takes. What it takes more must fit; less is always fine.
func (b *Book) Resize(rev uint64, holder string, amounts Amounts) error {
	if err := b.at(rev); err != nil {
		return err
	}
	h, ok := b.holds[holder]
	if !ok {
		return violation(rev, "%s is resized and holds nothing", holder)
	}
	account := b.accounts[h.Cluster]
	for _, resource := range slices.Sorted(maps.Keys(amounts)) {
		more := max(amounts[resource], h.Used[resource]) - max(h.Amounts[resource], h.Used[resource])
		free := b.free(h.Cluster, resource)
		if amounts[resource] < 0 || more > 0 && (account.closed || more > free) {
			return violation(rev, "%s grows by %d %s of %s, where %d are free", holder, more, resource, h.Cluster, free)
		}
	}
	h.Amounts = maps.Clone(amounts)
	b.holds[holder] = h
	return nil
}

// Extend changes when a hold expires; 0: never.
func (b *Book) Extend(rev uint64, holder string, expiresAt int64) error {
	if err := b.at(rev); err != nil {
		return err
	}
	h, ok := b.holds[holder]
	if !ok {
		return violation(rev, "%s is extended and holds nothing", holder)
	}
	h.ExpiresAt = expiresAt
	b.holds[holder] = h
	return nil
}

// End is a hold's end, by whatever cause: released, deleted, expired, failed.
func (b *Book) End(rev uint64, holder string) error {
	if err := b.at(rev); err != nil {
		return err
	}
	if _, ok := b.holds[holder]; !ok {
		return violation(rev, "the hold of %s ends and it has none", holder)
	}
	delete(b.holds, holder)
	return nil
}

// Use tells what a hold's own pods take; they are part of what the cluster says is allocated.
func (b *Book) Use(rev uint64, holder string, used Amounts) error {
	if err := b.at(rev); err != nil {
		return err
	}
	h, ok := b.holds[holder]
	if !ok {
		return violation(rev, "%s uses what it does not hold", holder)
	}
	h.Used = maps.Clone(used)
	b.holds[holder] = h
	return nil
}

// free is what is neither kept back, nor taken by the cluster's own pods, nor promised, nor taken beyond
// what is promised; negative where there is less than that.
func (b *Book) free(cluster, resource string) int64 {
	var used, promised int64
	for _, h := range b.holds {
		if h.Cluster == cluster {
			used += h.Used[resource]
			promised += max(h.Amounts[resource], h.Used[resource])
		}
	}
	a := b.accounts[cluster]
	return a.allocatable[resource] - a.keepBack[resource] - max(0, a.allocated[resource]-used) - promised
}

// Available is what a new hold may take of a cluster; nothing of one that takes none.
func (b *Book) Available(cluster string) Amounts {
	available := Amounts{}
	account := b.accounts[cluster]
	for resource := range account.allocatable {
		available[resource] = 0
		if !account.closed {
			available[resource] = max(0, b.free(cluster, resource))
		}
	}
	return available
}

// Held is the sum of a cluster's holds.
func (b *Book) Held(cluster string) Amounts {
	sum := Amounts{}
	for _, h := range b.holds {
		if h.Cluster == cluster {
			for resource, n := range h.Amounts {
				sum[resource] += n
			}
		}
	}
	return sum
}

// Whole says that these parts are held as one thing: each of them holds, until that time. It gives the
// sum of what they hold. The whole itself holds nothing.
func (b *Book) Whole(rev uint64, whole string, parts []string, expiresAt int64) (Amounts, error) {
	if h, ok := b.holds[whole]; ok {
		return nil, violation(rev, "%s holds on %s, beside its parts", whole, h.Cluster)
	}
	sum := Amounts{}
	for _, part := range parts {
		h, ok := b.holds[part]
		switch {
		case !ok:
			return nil, violation(rev, "%s is held and its part %s is not: %d parts", whole, part, len(parts))
		case h.ExpiresAt != expiresAt:
			return nil, violation(rev, "%s ends at %d, its part %s at %d", whole, expiresAt, part, h.ExpiresAt)
		}
		for resource, n := range h.Amounts {
			sum[resource] += n
		}
	}
	return sum, nil
}

// Nothing says that the whole is not held: none of its parts holds anything.
func (b *Book) Nothing(rev uint64, whole string, parts []string) error {
	for _, part := range parts {
		if h, ok := b.holds[part]; ok {
			return violation(rev, "%s is not held, and its part %s holds on %s: %d parts", whole, part, h.Cluster, len(parts))
		}
	}
	return nil
}

// Hold of the holder, if it has one.
func (b *Book) Hold(holder string) (Hold, bool) {
	h, ok := b.holds[holder]
	return h, ok
}

// Holds are all live holds, by holder.
func (b *Book) Holds() []Hold {
	return slices.SortedFunc(maps.Values(b.holds), func(x, y Hold) int { return strings.Compare(x.Holder, y.Holder) })
}

// at refuses a history that goes back. One Txn may hold several events of one revision.
func (b *Book) at(rev uint64) error {
	if rev < b.revision {
		return violation(rev, "comes after revision %d", b.revision)
	}
	b.revision = rev
	return nil
}

func violation(rev uint64, format string, args ...any) error {
	return fmt.Errorf("%w at revision %d: %s", ErrViolation, rev, fmt.Sprintf(format, args...))
}
