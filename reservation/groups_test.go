package reservation

import (
	"fmt"
	"slices"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// batch is a ReservationBatch of these items, named a, b, c...
func batch(name string, atomic bool, items ...broker.ReservationSpec) *broker.ReservationBatch {
	b := &broker.ReservationBatch{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "rome", UID: types.UID("uid-" + name), Generation: 1},
		Spec:       broker.ReservationBatchSpec{Atomic: atomic},
	}
	for i, spec := range items {
		item := fmt.Sprintf("i%d", i)
		if i < 26 {
			item = string(rune('a' + i))
		}
		b.Spec.Items = append(b.Spec.Items, broker.BatchItem{Name: item, Spec: spec})
	}
	return b
}

func item(resources string, change ...func(*broker.ReservationSpec)) broker.ReservationSpec {
	return reservation("", resources, change...).Spec
}

// split lets a request be met in pieces.
func split(maxPieces int32, minPiece string) func(*broker.ReservationSpec) {
	return func(s *broker.ReservationSpec) {
		s.Split = &broker.Split{MaxPieces: maxPieces, MinPiece: list(minPiece)}
	}
}

// batchCreation is the intent that store makes of a create.
func (x *exchange) batchCreation(b *broker.ReservationBatch) *cluster.Intent {
	body, err := store.BatchBody(b)
	require.NoError(x.t, err)
	key := broker.BatchKey(b.Namespace, b.Name)
	return &cluster.Intent{Txn: &fsm.Txn{
		ID: x.id(), Guards: []fsm.Guard{fsm.GuardAbsent(key)},
		Writes: []fsm.Write{{Key: key, Body: body, SpecChanged: true}, {Key: "namespaces/" + b.Namespace, IfAbsent: true, Body: []byte("{}")}},
	}}
}

func (x *exchange) batchEdit(name string, change func(*broker.ReservationBatch)) *cluster.Intent {
	row := x.batchRow(name)
	b := store.BatchOf(row).DeepCopy()
	b.Generation++
	change(b)
	body, err := store.BatchBody(b)
	require.NoError(x.t, err)
	return &cluster.Intent{Txn: &fsm.Txn{
		ID: x.id(), Guards: []fsm.Guard{fsm.GuardBody(row), fsm.GuardSpec(row), fsm.GuardLedger(row)},
		Writes: []fsm.Write{{Key: row.Key, Body: body, SpecChanged: true}},
	}}
}

// deletion is the intent that store makes of the deletion of a row with parts.
func (x *exchange) deletion(row *fsm.Row) *cluster.Intent {
	guards := []fsm.Guard{fsm.GuardBody(row)}
	if isReservation(row.Key) {
		guards = append(guards, fsm.GuardLedger(row))
	}
	return &cluster.Intent{Txn: &fsm.Txn{ID: x.id(), Guards: guards, Writes: []fsm.Write{{Key: row.Key, Delete: true}}}}
}

func (x *exchange) batchRow(name string) *fsm.Row { return x.state.Row(broker.BatchKey("rome", name)) }

func (x *exchange) batchStatus(name string) broker.ReservationBatchStatus {
	b := store.BatchOf(x.batchRow(name))
	require.NotNil(x.t, b, name)
	return b.Status
}

// groupsAgree: at no revision does a part differ from the whole.
func (x *exchange) groupsAgree() {
	for row := range x.state.Scan(broker.BatchesPrefix) {
		if b := store.BatchOf(row); b.Spec.Atomic {
			x.partsAgree(row, phaseOf(row) == store.PhaseReserved)
			require.Contains(x.t, []int32{0, b.Status.Counts.Items}, b.Status.Counts.Reserved, "%s: %s", row.Key, b.Status.Message)
		}
	}
	for row := range x.state.Scan(broker.ReservationsPrefix) {
		r := store.ReservationOf(row)
		if len(r.Status.Pieces) > 0 {
			x.partsAgree(row, phaseOf(row) == store.PhaseReserved)
			x.piecesAddUp(r)
		}
		if whole := r.Status.PartOf; whole != nil && whole.Bound && phaseOf(row) == store.PhaseReserved {
			head := x.state.Row(broker.BatchKey(r.Namespace, whole.Name))
			if whole.Kind == broker.KindReservation {
				head = x.row(whole.Name)
			}
			require.NotNil(x.t, head, "%s outlived the whole", row.Key)
			require.Equal(x.t, whole.UID, headObject(head).GetUID(), row.Key)
			require.Equal(x.t, store.PhaseReserved, phaseOf(head), row.Key)
		}
	}
}

// partsAgree: all parts are there, hold, and end when the whole does; or none holds.
func (x *exchange) partsAgree(head *fsm.Row, live bool) {
	for _, key := range partKeys(head) {
		part := x.state.Row(key)
		if !isPartOf(part, headObject(head).GetUID()) {
			require.False(x.t, live, "%s is Reserved and %s is not there", head.Key, key)
			continue
		}
		require.Equal(x.t, live, phaseOf(part) == store.PhaseReserved, "%s and %s", head.Key, key)
		if live {
			require.Equal(x.t, head.Ledger.ExpiresAt, part.Ledger.ExpiresAt, key)
			require.Len(x.t, part.Ledger.Holds, 1, key)
		}
	}
}

func (x *exchange) piecesAddUp(r *broker.Reservation) {
	var sum allocation.Amounts
	targets := map[string]bool{}
	for i := range r.Status.Pieces {
		piece := &r.Status.Pieces[i]
		amounts, err := allocation.AmountsOf(piece.RequestedResources, false)
		require.NoError(x.t, err)
		sum = sum.Add(amounts)
		require.False(x.t, targets[piece.TargetClusterID], "two pieces on %s", piece.TargetClusterID)
		targets[piece.TargetClusterID] = true
	}
	ask, err := askOf(r)
	require.NoError(x.t, err)
	require.True(x.t, ask.Amounts.Equal(sum), "%s: pieces %v", r.Name, r.Status.Pieces)
	require.LessOrEqual(x.t, len(r.Status.Pieces), int(r.Spec.Split.MaxPieces))
}

// batchesAreCurrent: what a batch says of its items is what they are, or a leader knows that it has
// to look.
func (l *life) batchesAreCurrent() {
	for row := range l.state.Scan(broker.BatchesPrefix) {
		if slices.ContainsFunc(l.planners, func(p *planner) bool { return p.term.(*term).stale[row.Key] > l.now }) {
			continue
		}
		b := store.BatchOf(row)
		require.Len(l.t, b.Status.Results, len(b.Spec.Items), "%s is undecided", row.Key)
		for i, result := range b.Status.Results {
			item := l.state.Row(itemKey(b, i))
			switch {
			case isPartOf(item, headObject(row).GetUID()):
				require.Equal(l.t, store.PhaseText(phaseOf(item)), result.Phase, item.Key)
				require.Equal(l.t, phaseOf(item) == store.PhaseReserved, result.TargetClusterID != "", item.Key)
			default:
				require.Contains(l.t, []broker.ReservationPhase{broker.ReservationReleased, broker.ReservationFailed}, result.Phase, result.Name)
			}
		}
	}
}

// nothingTwice: no item of a batch was ever made twice.
func (x *exchange) nothingTwice() {
	made := map[string]bool{}
	for _, c := range x.changes {
		if c.Before != nil || !isReservation(c.Key()) {
			continue
		}
		if whole := store.ReservationOf(c.After).Status.PartOf; whole != nil {
			once := string(whole.UID) + " " + c.Key()
			require.False(x.t, made[once], "%s was made twice", c.Key())
			made[once] = true
		}
	}
}

// groupActions are what users do with batches and split reservations.
func (l *life) groupActions() map[string]func(*rapid.T) {
	name := func(t *rapid.T) string { return fmt.Sprintf("b%d", rapid.IntRange(0, 3).Draw(t, "batch")) }
	existing := func(t *rapid.T) string {
		n := name(t)
		if l.batchRow(n) == nil {
			t.Skip("not there")
		}
		return n
	}
	parts := func(t *rapid.T) *fsm.Row {
		var rows []*fsm.Row
		for row := range l.state.Scan(broker.ReservationsPrefix) {
			if store.ReservationOf(row).Status.PartOf != nil {
				rows = append(rows, row)
			}
		}
		if len(rows) == 0 {
			t.Skip("none there")
		}
		return rows[rapid.IntRange(0, len(rows)-1).Draw(t, "part")]
	}
	return map[string]func(*rapid.T){
		"create a batch":         func(t *rapid.T) { l.submit(t, l.batchCreation(l.someBatch(t, name(t), false))) },
		"create an atomic batch": func(t *rapid.T) { l.submit(t, l.batchCreation(l.someBatch(t, name(t), true))) },
		"create a batch again": func(t *rapid.T) {
			again := store.BatchOf(l.batchRow(existing(t))).DeepCopy()
			again.UID = types.UID(fmt.Sprintf("uid-again-%d", l.ids))
			l.submit(t, l.batchCreation(again))
		},
		"extend a batch": func(t *rapid.T) {
			to := rapid.SampledFrom([]string{"", "2m", "10m"}).Draw(t, "duration")
			l.submit(t, l.batchEdit(existing(t), func(b *broker.ReservationBatch) { b.Spec.Duration = to }))
		},
		"delete a batch": func(t *rapid.T) { l.submit(t, l.deletion(l.batchRow(existing(t)))) },
		"create a split": func(t *rapid.T) {
			r := reservation(l.name(t), "cpu=1", l.spec(t))
			r.UID = types.UID(fmt.Sprintf("uid-%d", l.ids))
			r.Spec.RequestedResources = list(rapid.SampledFrom([]string{"cpu=12", "cpu=20,memory=40Gi", "cpu=3,memory=90Gi", "cpu=2"}).Draw(t, "whole"))
			r.Spec.WaitFor, r.Spec.TargetClusterID = "", ""
			split(rapid.Int32Range(2, 3).Draw(t, "pieces"), rapid.SampledFrom([]string{"cpu=1", "cpu=2"}).Draw(t, "least"))(&r.Spec)
			l.submit(t, l.creation(r))
		},
		"delete a split": func(t *rapid.T) {
			row := l.row(l.name(t))
			if row == nil || len(store.ReservationOf(row).Status.Pieces) == 0 {
				t.Skip("not there")
			}
			l.submit(t, l.deletion(row))
		},
		"delete an item": func(t *rapid.T) {
			row := parts(t)
			if r := store.ReservationOf(row); !r.Status.PartOf.Bound || phaseOf(row) > store.PhaseReserved {
				l.delete(r.Name)
			}
		},
		"hold a part up": func(t *rapid.T) {
			l.change(store.ReservationOf(parts(t)).Name, func(r *broker.Reservation) { r.Finalizers = []string{"a/b"} })
		},
		"let a part go": func(t *rapid.T) {
			l.change(store.ReservationOf(parts(t)).Name, func(r *broker.Reservation) { r.Finalizers = nil })
		},
	}
}

func (l *life) someBatch(t *rapid.T, name string, atomic bool) *broker.ReservationBatch {
	var items []broker.ReservationSpec
	for range rapid.IntRange(1, 5).Draw(t, "items") {
		spec := item("cpu=1", l.spec(t))
		if atomic {
			spec.Duration, spec.Priority, spec.WaitFor, spec.TTLSecondsAfterFinished = "", 0, "", nil
		}
		items = append(items, spec)
	}
	b := batch(name, atomic, items...)
	b.UID = types.UID(fmt.Sprintf("uid-%s-%d", name, l.ids))
	ttl := rapid.SampledFrom([]int32{0, 30, 600}).Draw(t, "batch ttl")
	b.Spec.TTLSecondsAfterFinished = &ttl
	if atomic {
		b.Spec.Duration = rapid.SampledFrom([]string{"", "10s", "1m"}).Draw(t, "batch duration")
		b.Spec.Priority = rapid.Int32Range(-2, 2).Draw(t, "batch priority")
	}
	return b
}

// sharesOf are "3@berlin" of a split reservation's pieces, by cpu.
func (x *exchange) sharesOf(name string) (shares []string) {
	for _, p := range x.get(name).Status.Pieces {
		q := p.RequestedResources["cpu"]
		shares = append(shares, q.String()+"@"+p.TargetClusterID)
	}
	return slices.Clip(shares)
}
