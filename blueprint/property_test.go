package blueprint

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

var someClusters = []string{"berlin", "lyon", "paris", "rome", "tokyo"}

// federate makes a random federation.
func federate(t *rapid.T, x *exchange) {
	for i, id := range someClusters[:rapid.IntRange(1, len(someClusters)).Draw(t, "clusters")] {
		price := rapid.SampledFrom([]string{"", "0.1", "0.2", "0.2", "0.5"}).Draw(t, "price")
		size := rapid.SampledFrom([]string{"cpu=8,memory=32Gi", "cpu=4,memory=64Gi", "cpu=16,memory=16Gi", "cpu=1"}).Draw(t, "size")
		a := x.cluster(id, size, price)
		a.labels = map[string]string{"tier": []string{"gold", "silver"}[i%2]}
		a.own = amounts(rapid.SampledFrom([]string{"", "", "cpu=1", "cpu=3,memory=20Gi"}).Draw(t, "own"))
		a.advertise()
		a.report()
	}
	x.onEntry = x.consistent
}

// randomSpec draws a blueprint that validation accepts.
func randomSpec(t *rapid.T, name string) *broker.Blueprint {
	b := blueprint(name)
	b.Spec.Strategy = rapid.SampledFrom([]broker.BlueprintStrategy{
		"", broker.StrategySpread, broker.StrategyPack, broker.StrategyCheapest, broker.StrategyBalanced,
	}).Draw(t, "strategy")
	// Else a version that changes may wait for room for an instance beside.
	one := intstr.FromInt32(1)
	b.Spec.Rollout.MaxUnavailable = &one
	n := rapid.IntRange(1, 3).Draw(t, "slices")
	for i := range n {
		s := broker.BlueprintSlice{Name: fmt.Sprintf("s%d", i)}
		s.Artifact = fmt.Sprintf("registry.example.com/s%d:%d", i, rapid.IntRange(1, 3).Draw(t, "version"))
		s.Resources = list(rapid.SampledFrom([]string{"cpu=1", "cpu=500m,memory=1Gi", "cpu=2,memory=4Gi", "cpu=5", "memory=9Gi"}).Draw(t, "resources"))
		least := rapid.Int32Range(1, 7).Draw(t, "instances")
		if rapid.IntRange(0, 4).Draw(t, "elastic") == 0 {
			most := least + rapid.Int32Range(0, 3).Draw(t, "more")
			s.MinInstances, s.MaxInstances = &least, &most
		} else {
			s.Instances = &least
		}
		if tier := rapid.SampledFrom([]string{"", "", "", "gold", "silver", "none"}).Draw(t, "tier"); tier != "" {
			s.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": tier}}
		}
		switch how := rapid.IntRange(0, 7).Draw(t, "neighbours"); {
		case how == 0:
			s.AntiAffinity = []string{s.Name}
		case how == 1 && i > 0:
			s.AntiAffinity = []string{"s0"}
		case how == 2 && i > 0:
			s.Affinity = []string{"s0"}
		}
		s.Priority = rapid.Int32Range(-1, 1).Draw(t, "priority")
		b.Spec.Slices = append(b.Spec.Slices, s)
	}
	// One alone: of two, the one that packs and the one that spreads would chase each other for ever.
	if name == "a" && rapid.IntRange(0, 2).Draw(t, "aggressive") == 0 {
		moves := rapid.Int32Range(1, 4).Draw(t, "moves")
		b.Spec.Reconciliation, b.Spec.MaxMoves = broker.ReconcileAggressive, &moves
	}
	return b
}

// consistent checks what holds between any two entries.
func (x *exchange) consistent() {
	x.t.Helper()
	for _, s := range x.rows() {
		require.Equal(x.t, s.record.Cluster, s.object.Spec.ClusterID, s.row.Key)
		require.EqualValues(x.t, s.record.Instances, s.object.Spec.Instances, s.row.Key)
		if s.record.Instances > 0 {
			ask, err := allocation.AmountsOf(s.object.Spec.Resources, true)
			require.NoError(x.t, err)
			require.Equal(x.t, ask.Times(s.record.Instances+s.record.Surge), s.held(), "%s holds what its instances take", s.row.Key)
		}
	}
}

// rested checks what holds once room and agents have come to rest.
func (x *exchange) rested() {
	x.t.Helper()
	x.consistent()
	for row := range x.state.Scan(broker.BlueprintsPrefix) {
		r := x.reconcile(store.BlueprintOf(row).Name)
		require.Empty(x.t, r.changes, "a steady reconciliation proposes nothing")
		for _, task := range r.tasks {
			x.wellPlaced(r, task)
		}
	}
	for _, s := range x.rows() {
		owner := store.BlueprintOf(x.state.Row(blueprintKeyOf(s.owner())))
		gone := owner == nil || string(owner.UID) != s.record.UID
		if a := x.agents[s.record.Cluster]; a.up && gone {
			require.Fail(x.t, "a slice without a blueprint is left", s.row.Key)
		}
	}
}

// reconcile is one look at a blueprint.
func (x *exchange) reconcile(name string) *reconciliation {
	x.t.Helper()
	b := x.get(name)
	var shares []*share
	for _, s := range x.rows() {
		if s.record.UID == string(b.UID) {
			shares = append(shares, s)
		}
	}
	return reconcile(x.room.(*room).cfg.Policy, newFederation(x.state), b, shares, x.now)
}

func (x *exchange) wellPlaced(r *reconciliation, task *task) {
	x.t.Helper()
	placed := 0
	for at, s := range task.shares {
		n := task.have[at]
		if placed += n; n == 0 {
			continue
		}
		site := r.fed.sites[at]
		require.True(x.t, site.heard && site.consent, s.row.Key)
		require.True(x.t, task.selector.Matches(site.labels), s.row.Key)
		require.False(x.t, task.ownApart && n > 1, "%s: at most one", s.row.Key)
		for _, o := range task.with {
			require.Positive(x.t, o.have[at], "affinity of %s", s.row.Key)
		}
		for _, o := range task.apart {
			require.Zero(x.t, o.have[at], "antiAffinity of %s", s.row.Key)
		}
	}
	require.LessOrEqual(x.t, placed, task.most)
	if r.blocked != "" {
		require.Contains(x.t, r.blueprint.Status.Message, r.blocked)
		return // what would be free once a version has changed is not
	}
	if placed < task.most {
		for at, site := range r.fed.sites {
			if site.closed() == "" && r.missing(task, at) == "" {
				require.Fail(x.t, "an instance waits that fits", "%s on %s", task.spec.Name, site.id)
			}
		}
	}
	line := r.blueprint.Status.Slices[slices.Index(r.tasks, task)]
	require.EqualValues(x.t, placed, line.Placed)
	if placed < task.least {
		require.Equal(x.t, broker.BlueprintDegraded, r.blueprint.Status.Phase)
		require.Contains(x.t, line.Message, "no place: ")
	}
}

func (x *exchange) actions(t *rapid.T) map[string]func(*rapid.T) {
	some := func(t *rapid.T) *agent {
		return x.agents[rapid.SampledFrom(slices.Sorted(maps.Keys(x.agents))).Draw(t, "cluster")]
	}
	name := func(t *rapid.T) string { return rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "blueprint") }
	slice := func(t *rapid.T) *share {
		rows := x.rows()
		if len(rows) == 0 {
			t.Skip("no slices")
		}
		return rows[rapid.IntRange(0, len(rows)-1).Draw(t, "slice")]
	}
	return map[string]func(*rapid.T){
		"apply": func(t *rapid.T) { x.create(randomSpec(t, name(t))) },
		"delete": func(t *rapid.T) {
			if key := x.key(name(t)); x.state.Row(key) != nil {
				x.delete(key)
			}
		},
		"agent": func(t *rapid.T) {
			a := some(t)
			a.up = rapid.Bool().Draw(t, "up")
			a.advertise()
		},
		"provider": func(t *rapid.T) {
			a := some(t)
			a.spec.Lending.Cordoned = rapid.IntRange(0, 3).Draw(t, "cordoned") == 0
			a.spec.Lending.Withdrawn = rapid.IntRange(0, 7).Draw(t, "withdrawn") == 0
			a.consents = rapid.IntRange(0, 7).Draw(t, "consents") > 0
			a.advertise()
		},
		"own pods": func(t *rapid.T) {
			a := some(t)
			a.own = amounts(rapid.SampledFrom([]string{"", "cpu=2", "cpu=6", "memory=30Gi"}).Draw(t, "own"))
			a.report()
		},
		"slice deleted by hand": func(t *rapid.T) { x.delete(slice(t).row.Key) },
		"slice changed by hand": func(t *rapid.T) { x.vandalize(slice(t), rapid.IntRange(0, 3).Draw(t, "how")) },
		"time": func(t *rapid.T) {
			x.now += rapid.SampledFrom([]fsm.Millis{1, second, minute, 10 * minute}).Draw(t, "passes")
		},
		"step": func(*rapid.T) {
			if !x.idle() {
				x.enter(x.plan())
			}
		},
		"act":  func(t *rapid.T) { a := some(t); a.act(x.bySpec()[a.id]) },
		"run":  func(*rapid.T) { x.run() },
		"rest": func(*rapid.T) { x.resync(); x.rested() },
	}
}

// resync lets time go by until nobody has anything to do: Aggressive blueprints look at what others
// left them only then.
func (x *exchange) resync() {
	x.t.Helper()
	x.rest()
	for rounds := 0; ; rounds++ {
		require.Less(x.t, rounds, 50, "the exchange never comes to rest")
		before := x.state.Revision()
		x.now += millis(DefaultResync)
		x.rest()
		if x.state.Revision() == before {
			return
		}
	}
}

// vandalize changes a slice as an admin might.
func (x *exchange) vandalize(s *share, how int) {
	object := s.object.DeepCopy()
	object.Generation++
	switch how {
	case 0:
		object.Spec.Instances += 2
	case 1:
		object.Spec.Instances = 0
	case 2:
		object.Spec.Command = broker.SliceUnload
	case 3:
		object.Annotations, object.Generation = map[string]string{"by": "hand"}, s.object.Generation
	}
	body, err := store.SliceBody(object)
	require.NoError(x.t, err)
	onEntry := x.onEntry
	x.onEntry = nil
	x.write(fsm.Txn{Writes: []fsm.Write{{Key: s.row.Key, Body: body, SpecChanged: how < 3}}})
	x.run() // put right at once
	x.onEntry = onEntry
}

// noneOverdrawn: what the room takes never leaves an account shorter than it was.
func (x *exchange) noneOverdrawn(before, after *fsm.State) {
	for row := range after.Scan(broker.AdvertisementsPrefix) {
		for _, a := range row.Account.HeldOrUsed {
			require.LessOrEqual(x.t, row.Account.Short(a.Resource), before.Row(row.Key).Account.Short(a.Resource), row.Key)
		}
	}
}

func TestLife(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x := newExchange(t)
		federate(t, x)
		t.Repeat(x.actions(t))
		x.resync()
		x.rested()
		x.begin() // what a message says of the clusters' figures is brought up to date
		x.rest()
		before := x.commands
		x.begin()
		x.rest()
		x.now += minute * 6
		x.run()
		require.Equal(t, before, x.commands, "a new leader, and a resync, find nothing to do")
	})
}

// A term may end at any step: between a plan and its entry, between an entry and its outcome. Whoever
// leads comes to the same slices as one who leads all the time.
func TestWhoeverLeadsPlacesTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		one, many := newExchange(t), newExchange(t)
		federateBoth(t, one, many)
		alone := rapid.Bool().Draw(t, "alone")
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			b := randomSpec(t, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "blueprint"))
			if alone {
				b.Name = "a"
			} else { // what others move, or hold beside the old while versions change, is there at their own pace
				b.Spec.Reconciliation, b.Spec.MaxMoves = broker.ReconcileConservative, nil
				for i := range b.Spec.Slices {
					slice := &b.Spec.Slices[i]
					slice.Artifact, slice.Resources = "registry.example.com/"+slice.Name+":1", list("cpu=1,memory=4Gi")
				}
			}
			down := rapid.SampledFrom(slices.Sorted(maps.Keys(one.agents))).Draw(t, "cluster")
			up := rapid.Bool().Draw(t, "up")
			for _, x := range []*exchange{one, many} {
				x.create(b.DeepCopy())
				x.agents[down].up = up
				x.agents[down].advertise()
			}
			one.rest()
			for before := fsm.Revision(0); before != many.state.Revision() || !many.idle() || many.busy; {
				before = many.state.Revision()
				for !many.idle() {
					switch rapid.IntRange(0, 5).Draw(t, "leader") {
					case 0:
						many.begin()
					case 1:
						many.plan()
						many.begin()
					case 2:
						many.enter(many.plan())
						many.begin()
					}
					many.enter(many.plan())
				}
				many.act()
			}
			for _, name := range []string{"a", "b", "c"} {
				require.Equal(t, one.placed(name), many.placed(name))
			}
		}
	})
}

func federateBoth(t *rapid.T, one, many *exchange) {
	federate(t, one)
	for _, id := range slices.Sorted(maps.Keys(one.agents)) {
		a := one.agents[id]
		b := many.cluster(id, "", "")
		b.spec, b.labels, b.allocatable, b.own = a.spec, a.labels, a.allocatable, a.own
		b.advertise()
		b.report()
	}
}
