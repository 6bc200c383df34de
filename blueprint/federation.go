package blueprint

import (
	"bytes"
	"maps"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// federation is the clusters as the state shows them, and what this Step has taken from them.
type federation struct {
	sites []*site // sorted by cluster ID
	taken map[*site]struct{}
}

// site is one cluster.
type site struct {
	id      string
	row     *fsm.Row
	account allocation.Account // with what this Step proposed
	short   map[string]allocation.Amounts

	heard bool // its agent is, and the provider has not withdrawn the offer
	open  bool // takes new holds, and more in those that are there
	holds int  // with what this Step proposed

	// What is read of the body and the agent's conditions, once for each of them.
	labels  labels.Set
	prices  allocation.Prices
	consent bool
	why     string // there is no consent
}

func newFederation(state *fsm.State) *federation {
	f := &federation{taken: map[*site]struct{}{}}
	for row := range state.Scan(broker.AdvertisementsPrefix) {
		f.sites = append(f.sites, readSite(nil, row))
	}
	slices.SortFunc(f.sites, func(a, b *site) int { return strings.Compare(a.id, b.id) })
	return f
}

// find is where a cluster stands, or would stand, in sites.
func (f *federation) find(id string) (at int, known bool) {
	return slices.BinarySearchFunc(f.sites, id, func(s *site, id string) int { return strings.Compare(s.id, id) })
}

// site of an account key; nil where there is none.
func (f *federation) site(key string) *site {
	if at, known := f.find(clusterIDOf(key)); known {
		return f.sites[at]
	}
	return nil
}

// set brings one cluster up to its row; nil: it is gone.
func (f *federation) set(key string, row *fsm.Row) {
	at, known := f.find(clusterIDOf(key))
	switch {
	case row == nil && !known:
	case row == nil:
		f.sites = slices.Delete(f.sites, at, at+1)
	case !known:
		f.sites = slices.Insert(f.sites, at, readSite(nil, row))
	default:
		f.sites[at] = readSite(f.sites[at], row)
	}
}

// reset forgets what the last Step took.
func (f *federation) reset() {
	for s := range f.taken {
		s.account, s.holds = s.row.Account.Account, s.row.Account.HoldCount()
	}
	clear(f.taken)
}

func readSite(was *site, row *fsm.Row) *site {
	s := &site{id: clusterIDOf(row.Key), row: row}
	if was != nil && was.row.BodyRev == row.BodyRev && bytes.Equal(was.row.Facts, row.Facts) {
		s.labels, s.prices, s.consent, s.why = was.labels, was.prices, was.consent, was.why
	} else if ad := store.AdvertisementOf(row); ad != nil {
		s.read(ad)
	}
	if row.Account == nil {
		return s
	}
	s.account, s.holds = row.Account.Account, row.Account.HoldCount()
	s.heard = row.Ledger != nil && row.Ledger.Phase == store.PhaseActive
	s.open = s.heard && !row.Closed()
	s.short = store.ShortHolders(row.Account)
	return s
}

func (s *site) read(ad *broker.ClusterAdvertisement) {
	s.labels = labels.Set(maps.Clone(ad.Labels))
	if s.labels == nil {
		s.labels = labels.Set{}
	}
	if ad.Spec.Region != "" {
		s.labels[allocation.LabelRegion] = ad.Spec.Region
	}
	if ad.Spec.Provider != "" {
		s.labels[allocation.LabelProvider] = ad.Spec.Provider
	}
	if prices, _, err := allocation.ParsePrices(ad.Spec.Cost, ad.Annotations); err == nil {
		s.prices = prices
	}
	s.why = "its agent says nothing of blueprints"
	if c := meta.FindStatusCondition(ad.Status.Conditions, broker.ConditionBlueprints); c != nil {
		s.consent, s.why = c.Status == "True", c.Message
	}
}

// alike: the same but for figures.
func (s *site) alike(o *site) bool {
	return s.heard == o.heard && s.open == o.open && s.full() == o.full() && s.consent == o.consent && s.row.BodyRev == o.row.BodyRev
}

// roomier: there is more of something than there was.
func (s *site) roomier(was *site) bool {
	return slices.ContainsFunc(s.account.Allocatable, func(a allocation.Amount) bool {
		is, before := &s.account, &was.account
		return is.Available(a.Resource)-is.Short(a.Resource) > before.Available(a.Resource)-before.Short(a.Resource)
	})
}

// full: Apply refuses any new hold, and lets those that are there grow.
func (s *site) full() bool { return s.holds >= fsm.MaxHoldsPerAccount }

// closed says why the cluster takes nothing new, "" where it does.
func (s *site) closed() string {
	switch {
	case !s.heard:
		return "not active"
	case !s.open:
		return "cordoned by its provider"
	case s.full():
		return "has as many holds as a cluster may have"
	case !s.consent:
		return "runs no blueprints: " + s.why
	}
	return ""
}

// resize changes a hold as Apply would, with what the pods inside use. It says whether Apply would.
func (f *federation) resize(s *site, from, to, used allocation.Amounts) bool {
	before, after := from.Max(used), to.Max(used)
	first := len(from) == 0 && len(to) > 0
	if first && s.full() {
		return false
	}
	if added := after.Sub(before).Max(nil); len(added) > 0 {
		if _, fits := allocation.Fits(&s.account, added); !fits || !s.open {
			return false
		}
	}
	if first {
		s.holds++
	}
	f.taken[s] = struct{}{}
	s.account.HeldOrUsed = s.account.HeldOrUsed.Add(after).Sub(before)
	return true
}

// most is how many instances a hold could be resized to, by the same rule as resize.
func (s *site) most(one, from, used allocation.Amounts) int {
	most, has := int64(math.MaxInt32), from.Max(used)
	for _, a := range one {
		room := has.Get(a.Resource)
		if s.open {
			room += min(s.account.Available(a.Resource), math.MaxInt64-room)
		}
		if a.Value > 0 {
			most = min(most, room/a.Value)
		}
	}
	return int(most)
}

func clusterIDOf(key string) string {
	id, _ := broker.ClusterIDOf(strings.TrimPrefix(key, broker.AdvertisementsPrefix))
	return id
}
