package reservation

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/equality"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

var someClusters = []string{"berlin", "paris", "tokyo"}

// life is a random run of an exchange: everything that users, agents, providers and the clock do.
type life struct {
	*exchange
	planners []*planner
	intents  []*cluster.Intent
	grants   int
}

func newLife(t *rapid.T, planners int) *life {
	l := &life{exchange: newExchange(t)}
	for i, id := range someClusters {
		l.cluster(id, "cpu=8,memory=32Gi", fmt.Sprintf("0.%d", i+1))
	}
	for range planners {
		// So little at a time that batches of a few items take several commands.
		l.planners = append(l.planners, l.planner(Config{chunkItems: 2, dissolved: 2}))
	}
	l.onEntry = func(before, after *fsm.State, txns []fsm.Txn) {
		l.consistent()
		l.noneOverdrawn(before, after)
		if planners == 1 {
			l.noneOvertaken(before, after)
		}
	}
	return l
}

// noneOverdrawn: a grant never leaves an account short.
func (l *life) noneOverdrawn(before, after *fsm.State) {
	for row := range after.Scan(broker.ReservationsPrefix) {
		was := before.Row(row.Key)
		if phaseOf(row) != store.PhaseReserved || was != nil && phaseOf(was) == store.PhaseReserved {
			continue
		}
		l.grants++
		if len(store.ReservationOf(row).Status.Pieces) > 0 {
			continue // its pieces hold
		}
		held := row.Ledger.Holds[0]
		account := after.Row(held.Account).Account
		for _, a := range held.Amounts {
			require.Zero(l.t, account.Short(a.Resource), "%s overdraws %s", row.Key, held.Account)
		}
	}
}

// noneOvertaken: what a later, lower-priority create was given would not have fitted a waiter.
// It holds for a planner that has seen all of the state it plans on.
func (l *life) noneOvertaken(before, after *fsm.State) {
	var d allocation.Decision
	for row := range after.Scan(broker.ReservationsPrefix) {
		if phaseOf(row) != store.PhaseReserved || before.Row(row.Key) != nil {
			continue
		}
		granted, err := newRequest(row.Key, store.ReservationOf(row))
		require.NoError(l.t, err)
		if granted.created = row.Created; len(granted.object.Status.Pieces) > 0 {
			continue // its pieces were given something
		}
		if whole := granted.object.Status.PartOf; whole != nil && !whole.Bound {
			// The items of a batch are as old as the batch.
			granted.created = after.Row(broker.BatchKey("rome", whole.Name)).Created
		}
		v := newView(after)
		v.market.Give(row.Ledger.Target, granted.ask.Amounts)
		for _, w := range waitersBefore(after, granted) {
			if before.Row(w.key) == nil || phaseOf(before.Row(w.key)) != store.PhasePending {
				continue
			}
			v.market.Decide(&w.ask, &d)
			require.False(l.t, d.Found, "%s was given what %s waits for", row.Key, w.key)
		}
	}
}

func (l *life) spec(t *rapid.T) func(*broker.ReservationSpec) {
	return func(s *broker.ReservationSpec) {
		s.RequestedResources = list(rapid.SampledFrom([]string{"cpu=1", "cpu=2", "cpu=5,memory=1Gi", "cpu=8", "cpu=9", "memory=30Gi"}).Draw(t, "resources"))
		s.Priority = rapid.Int32Range(-2, 2).Draw(t, "priority")
		s.Duration = rapid.SampledFrom([]string{"", "10s", "1m", "5m"}).Draw(t, "duration")
		s.WaitFor = rapid.SampledFrom([]string{"", "30s", "10m"}).Draw(t, "waitFor")
		s.TargetClusterID = rapid.SampledFrom([]string{"", "", "", "paris"}).Draw(t, "target")
		s.MaxCostPerHour = rapid.SampledFrom([]string{"", "", "0.5"}).Draw(t, "limit")
		ttl := rapid.SampledFrom([]int32{0, 30, 600}).Draw(t, "ttl")
		s.TTLSecondsAfterFinished = &ttl
	}
}

func (l *life) name(t *rapid.T) string {
	return fmt.Sprintf("r%d", rapid.IntRange(0, 11).Draw(t, "name"))
}

func (l *life) submit(t *rapid.T, in *cluster.Intent) {
	l.intents = append(l.intents, in)
	l.planners[rapid.IntRange(0, len(l.planners)-1).Draw(t, "at")].submit(in)
}

func (l *life) actions(t *rapid.T) map[string]func(*rapid.T) {
	existing := func(t *rapid.T) string {
		name := l.name(t)
		if l.row(name) == nil {
			t.Skip("not there")
		}
		return name
	}
	all := map[string]func(*rapid.T){
		"create": func(t *rapid.T) {
			l.submit(t, l.creation(reservation(l.name(t), "cpu=1", l.spec(t))))
		},
		"create another": func(t *rapid.T) {
			l.submit(t, l.creation(reservation(l.name(t), "cpu=1", l.spec(t))))
		},
		"edit": func(t *rapid.T) {
			change := l.spec(t)
			l.submit(t, l.edit(existing(t), func(r *broker.Reservation) { change(&r.Spec) }))
		},
		"extend": func(t *rapid.T) {
			to := rapid.SampledFrom([]string{"", "2m", "10m"}).Draw(t, "duration")
			l.submit(t, l.edit(existing(t), func(r *broker.Reservation) { r.Spec.Duration = to }))
		},
		"annotate": func(t *rapid.T) {
			l.change(existing(t), func(r *broker.Reservation) { r.Annotations = map[string]string{"a": fmt.Sprint(l.ids)} })
		},
		"delete": func(t *rapid.T) {
			name := existing(t)
			if len(l.get(name).Status.Pieces) > 0 {
				t.Skip("the leader deletes it with its pieces")
			}
			l.delete(name)
		},
		"report": func(t *rapid.T) {
			l.report(rapid.SampledFrom(someClusters).Draw(t, "cluster"), "cpu=8,memory=32Gi",
				rapid.SampledFrom([]string{"", "cpu=3", "cpu=7,memory=20Gi"}).Draw(t, "allocated"))
		},
		"lend": func(t *rapid.T) {
			id := rapid.SampledFrom(someClusters).Draw(t, "cluster")
			spec := store.AdvertisementOf(l.state.Row(broker.AdvertisementKey(id))).DeepCopy().Spec
			how := rapid.IntRange(0, 5).Draw(t, "how")
			spec.Lending.Cordoned, spec.Lending.Withdrawn = how == 1, how == 2
			l.advertise(id, spec)
		},
		"time": func(t *rapid.T) {
			l.now += rapid.SampledFrom([]fsm.Millis{1, second, 10 * second, minute, 10 * minute}).Draw(t, "passes")
		},
		"rest": func(*rapid.T) { l.rest() },
	}
	maps.Copy(all, l.groupActions())
	return all
}

// rest lets every planner work until none has anything to do.
func (l *life) rest() {
	for busy := true; busy; {
		busy = false
		for _, p := range l.planners {
			if !p.idle() {
				p.run()
				busy = true
			}
		}
	}
	l.settled()
	l.batchesAreCurrent()
}

func (l *life) end(t *rapid.T) {
	l.rest()
	for _, in := range l.intents {
		require.Len(t, l.answers[in], 1, "every intent is answered, once")
	}
	l.nothingTwice()
}

// written says whether what the intent asks for came into the state.
func (l *life) written(in *cluster.Intent) bool {
	w := &in.Txn.Writes[0]
	return slices.ContainsFunc(l.changes, func(c fsm.Change) bool {
		switch {
		case c.Key() != w.Key:
			return false
		case w.Delete:
			return c.After == nil
		case c.After == nil:
			return false
		case isBatch(w.Key): // by this intent, or by an earlier one with the same spec
			asked, err := store.DecodeBatch(w.Body)
			return err == nil && equality.Semantic.DeepEqual(asked.Spec, store.BatchOf(c.After).Spec)
		case len(store.ReservationOf(c.After).Status.Pieces) > 0: // the leader wrote them into it
			asked, err := store.DecodeReservation(w.Body)
			return err == nil && equality.Semantic.DeepEqual(asked.Spec, store.ReservationOf(c.After).Spec)
		}
		return bytes.Equal(c.After.Body, w.Body)
	})
}

func TestLifeWithOneLeader(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := newLife(t, 1)
		actions := l.actions(t)
		actions["step"] = func(*rapid.T) {
			if !l.planners[0].idle() {
				l.planners[0].enter(l.planners[0].plan())
			}
		}
		t.Repeat(actions)
		l.end(t)
	})
}

// A term may end at any step: between a plan and its entry, between an entry and its answer.
// The nodes ask again with the same ids, and nothing is lost or doubled.
func TestLifeWithTakeovers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := newLife(t, 1)
		p := l.planners[0]
		actions := l.actions(t)
		actions["step"] = func(*rapid.T) {
			if !p.idle() {
				p.enter(p.plan())
			}
		}
		actions["take over"] = func(*rapid.T) { p.begin() }
		actions["take over after a plan"] = func(*rapid.T) {
			p.plan()
			p.begin()
		}
		actions["take over after an entry"] = func(*rapid.T) {
			p.enter(p.plan())
			p.begin()
		}
		t.Repeat(actions)
		l.end(t)
		for _, in := range l.intents {
			if l.answers[in][0].Refusal == nil {
				require.True(t, l.written(in), "what was acknowledged was written")
			}
		}
	})
}

// Two planners on one state, each blind to what the other is about to enter: Apply refuses what
// can't be, and what is held stays the sum of the holds.
func TestLifeWithTwoPlanners(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := newLife(t, 2)
		actions := l.actions(t)
		actions["both plan, then enter"] = func(t *rapid.T) {
			a, b := l.planners[0], l.planners[1]
			first, second := a.plan(), b.plan()
			if rapid.Bool().Draw(t, "b first") {
				b.enter(second)
				a.enter(first)
			} else {
				a.enter(first)
				b.enter(second)
			}
		}
		t.Repeat(actions)
		l.end(t)
	})
}

// What a dry-run says is what a create then gets.
func TestADryRunSaysWhatACreateGets(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := newLife(t, 1)
		t.Repeat(l.actions(t))
		l.rest()
		r := reservation("asked", "cpu=1", l.spec(t))
		dry := Decide(l.state, r, l.now)
		in := l.creation(r)
		l.planners[0].submit(in)
		l.planners[0].enter(l.planners[0].plan())
		got := l.get("asked").Status
		require.Equal(t, dry.Phase, got.Phase)
		require.Equal(t, dry.TargetClusterID, got.TargetClusterID)
		require.Equal(t, dry.Message, got.Message)
		require.Equal(t, dry.ExpiresAt, got.ExpiresAt)
		require.Equal(t, dry.PricePerHour, got.PricePerHour)
		require.Equal(t, dry.Decision.Candidates, got.Decision.Candidates)
	})
}
