package store_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/store/storetest"
)

const (
	parisKey = "clusteradvertisements/paris-adv"
	rsvKey   = "reservations/rome/ml"
)

// exchange is one node with the product's kinds on it.
type exchange struct {
	t              *testing.T
	db             *store.DB
	leader         *storetest.Leader
	reservations   *store.Storage
	advertisements *store.Storage
}

func newExchange(t *testing.T) *exchange {
	t.Helper()
	db, leader := storetest.NewDB()
	return exchangeOn(t, db, leader, leader)
}

func exchangeOn(t *testing.T, db *store.DB, leader *storetest.Leader, writer store.Writer) *exchange {
	t.Helper()
	return &exchange{
		t: t, db: db, leader: leader,
		reservations:   store.NewStorage(db, writer, store.ReservationKind()),
		advertisements: store.NewStorage(db, writer, store.AdvertisementKind()),
	}
}

// apply is what a leader room proposes; it must be done.
func (x *exchange) apply(txn fsm.Txn) fsm.Revision {
	x.t.Helper()
	results, err := x.leader.Propose(fsm.Entry{Txns: []fsm.Txn{txn}})
	require.NoError(x.t, err)
	require.Nil(x.t, results[0].Refusal, "%v", results[0].Refusal)
	return results[0].Revision
}

// create makes the reservation rome/<name>.
func (x *exchange) create(name string) *broker.Reservation {
	x.t.Helper()
	out := &broker.Reservation{}
	require.NoError(x.t, x.reservations.Create(x.t.Context(), "/reservations/rome/"+name, reservation(name), out, 0))
	return out
}

// update changes the reservation rome/<name>.
func (x *exchange) update(ctx context.Context, name string, change func(*broker.Reservation)) (*broker.Reservation, error) {
	out := &broker.Reservation{}
	return out, x.reservations.GuaranteedUpdate(ctx, "/reservations/rome/"+name, out, false, nil, editing(change), nil)
}

func editing[T runtime.Object](change func(T)) storage.UpdateFunc {
	return storage.SimpleUpdate(func(object runtime.Object) (runtime.Object, error) {
		change(object.(T))
		return object, nil
	})
}

// offer makes the advertisement of paris, with 16 cores and 64Gi reported.
func (x *exchange) offer() {
	x.t.Helper()
	a := &broker.ClusterAdvertisement{
		ObjectMeta: metav1.ObjectMeta{Name: "paris-adv", Generation: 1},
		Spec: broker.ClusterAdvertisementSpec{
			ClusterID: "paris",
			Cost:      map[string]string{"cpu": "0.50"},
			Lending:   broker.Lending{KeepBack: corev1.ResourceList{"cpu": resource.MustParse("2")}},
		},
	}
	require.NoError(x.t, x.advertisements.Create(x.t.Context(), "/clusteradvertisements/paris-adv", a, nil, 0))
	session := fsm.Report{Account: parisKey, Session: [16]byte{1}, Open: true}
	opened, err := x.leader.Report(x.t.Context(), session)
	require.NoError(x.t, err)
	require.Nil(x.t, opened.Refusal, "%v", opened.Refusal)
	report := fsm.Report{Account: parisKey, Session: [16]byte{1}, Epoch: opened.Epoch, Sequence: 1, Facts: fsm.AccountFacts{
		Allocatable: amounts("cpu", 16_000, "memory", 64<<30, "nvidia.com/gpu", 2),
		Allocated:   amounts("cpu", 3_000),
		LargestFree: amounts("cpu", 4_000),
	}}
	result, err := x.leader.Report(x.t.Context(), report)
	require.NoError(x.t, err)
	require.Nil(x.t, result.Refusal, "%v", result.Refusal)
}

// grant is what the reservation room proposes for rome/ml.
func (x *exchange) grant(ledger *fsm.Ledger) fsm.Revision {
	x.t.Helper()
	return x.apply(fsm.Txn{
		Writes: []fsm.Write{{Key: rsvKey, Ledger: ledger}},
		Moves: []fsm.Move{{
			Op: fsm.MoveHold, Account: parisKey, Holder: rsvKey, Amounts: amounts("cpu", 4_000, "memory", 8<<30),
		}},
	})
}

func amounts(pairs ...any) allocation.Amounts {
	var list []allocation.Amount
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, allocation.Amount{Resource: pairs[i].(string), Value: int64(pairs[i+1].(int))})
	}
	return allocation.NewAmounts(list...)
}

func reservation(name string) *broker.Reservation {
	return &broker.Reservation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "rome", Name: name, Generation: 1, UID: "u-1"},
		Spec: broker.ReservationSpec{
			RequesterID: "rome",
			RequestedResources: corev1.ResourceList{
				"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"),
			},
			Duration: "2h",
		},
	}
}

// selecting is a predicate on status.targetClusterID and labels.
func selecting(field, label string) storage.SelectionPredicate {
	f, err := fields.ParseSelector(field)
	if err != nil {
		panic(err)
	}
	l, err := labels.Parse(label)
	if err != nil {
		panic(err)
	}
	return storage.SelectionPredicate{
		Field: f, Label: l,
		GetAttrs: func(object runtime.Object) (labels.Set, fields.Set, error) {
			r, ok := object.(*broker.Reservation)
			if !ok {
				return nil, nil, fmt.Errorf("%T", object)
			}
			return r.Labels, fields.Set{
				"spec.requesterID": r.Spec.RequesterID, "status.targetClusterID": r.Status.TargetClusterID,
			}, nil
		},
	}
}

func revisionOf(t *testing.T, object metav1.Object) fsm.Revision {
	t.Helper()
	revision, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	require.NoError(t, err)
	return fsm.Revision(revision)
}

// next event of a watch, its object unwrapped.
func next(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case e, open := <-w.ResultChan():
		require.True(t, open, "the watch ended")
		if cacheable, ok := e.Object.(runtime.CacheableObject); ok {
			e.Object = cacheable.GetObject()
		}
		return e
	case <-t.Context().Done():
		t.Fatal("no event")
	}
	return watch.Event{}
}

// nextReservation asserts the event's type.
func nextReservation(t *testing.T, w watch.Interface, want watch.EventType) *broker.Reservation {
	t.Helper()
	e := next(t, w)
	require.Equal(t, want, e.Type, "%+v", e.Object)
	return e.Object.(*broker.Reservation)
}
