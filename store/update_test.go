package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/store/storetest"
)

func annotate(value string) func(*broker.Reservation) {
	return func(r *broker.Reservation) { metav1.SetMetaDataAnnotation(&r.ObjectMeta, "note", value) }
}

// interleaved runs between once, after the first run of the closure and before its write.
func interleaved(between func(), change func(*broker.Reservation)) (fn func(*broker.Reservation), runs *int) {
	runs = new(int)
	return func(r *broker.Reservation) {
		*runs++
		change(r)
		if *runs == 1 {
			between()
		}
	}, runs
}

func TestAnAnnotationNeverConflictsWithAGrant(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.create("ml")
	change, runs := interleaved(func() {
		x.apply(fsm.Txn{Writes: []fsm.Write{{Key: rsvKey, Ledger: &fsm.Ledger{Phase: store.PhaseReserved}}}})
	}, annotate("a"))
	updated, err := x.update(t.Context(), "ml", change)
	require.NoError(t, err)
	require.Equal(t, 1, *runs)
	require.Equal(t, broker.ReservationReserved, updated.Status.Phase)
	require.Equal(t, "a", updated.Annotations["note"])
}

func TestAChangedSpecIsJudgedAgainAfterAGrant(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.create("ml")
	immutable := errors.New("immutable once Reserved")
	runs := 0
	err := x.reservations.GuaranteedUpdate(t.Context(), "/reservations/rome/ml", &broker.Reservation{}, false, nil,
		storage.SimpleUpdate(func(object runtime.Object) (runtime.Object, error) {
			r := object.(*broker.Reservation)
			if runs++; r.Status.Phase != broker.ReservationPending {
				return nil, immutable
			}
			r.Spec.Priority = 7
			x.apply(fsm.Txn{Writes: []fsm.Write{{Key: rsvKey, Ledger: &fsm.Ledger{Phase: store.PhaseReserved}}}})
			return r, nil
		}), nil)
	require.ErrorIs(t, err, immutable)
	require.Equal(t, 2, runs)
}

func TestTwoAnnotationsBothStay(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.create("ml")
	change, runs := interleaved(func() {
		_, err := x.update(t.Context(), "ml", func(r *broker.Reservation) {
			metav1.SetMetaDataAnnotation(&r.ObjectMeta, "other", "b")
		})
		require.NoError(t, err)
	}, annotate("a"))
	updated, err := x.update(t.Context(), "ml", change)
	require.NoError(t, err)
	require.Equal(t, 2, *runs)
	require.Equal(t, map[string]string{"note": "a", "other": "b"}, updated.Annotations)
}

func TestAnUpdateThatChangesNothingWritesNothing(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	created := x.create("ml")
	entries := x.leader.Entries()
	updated, err := x.update(t.Context(), "ml", func(*broker.Reservation) {})
	require.NoError(t, err)
	require.Equal(t, created.ResourceVersion, updated.ResourceVersion)
	require.Equal(t, entries, x.leader.Entries())
}

func TestCreateOnUpdateIsTheSameIntentAsCreate(t *testing.T) {
	t.Parallel()
	seen := &recorder{}
	x := newExchange(t)
	seen.Leader = x.leader
	x = exchangeOn(t, x.db, x.leader, seen)
	x.create("a")
	out := &broker.Reservation{}
	err := x.reservations.GuaranteedUpdate(t.Context(), "/reservations/rome/b", out, true, nil,
		editing(func(r *broker.Reservation) { *r = *reservation("b") }), nil)
	require.NoError(t, err)
	require.Equal(t, broker.ReservationPending, out.Status.Phase)
	require.Len(t, seen.txns, 2)
	for i, key := range []string{"reservations/rome/a", "reservations/rome/b"} {
		txn := seen.txns[i]
		require.Equal(t, []fsm.Guard{{Key: key, Part: fsm.PartRow}}, txn.Guards)
		require.Len(t, txn.Writes, 2)
		require.Equal(t, "namespaces/rome", txn.Writes[0].Key)
		require.True(t, txn.Writes[0].IfAbsent)
		require.Equal(t, key, txn.Writes[1].Key)
		require.NotZero(t, txn.ID.Random)
		require.Nil(t, txn.Writes[1].Ledger)
	}
	require.NotEqual(t, seen.txns[0].ID, seen.txns[1].ID)

	err = x.reservations.Create(t.Context(), "/reservations/rome/b", reservation("b"), nil, 0)
	require.True(t, storage.IsExist(err), "%v", err)
}

type recorder struct {
	*storetest.Leader
	mu   sync.Mutex
	txns []fsm.Txn
}

func (r *recorder) Write(ctx context.Context, txn fsm.Txn) (fsm.Result, error) {
	r.mu.Lock()
	r.txns = append(r.txns, txn)
	r.mu.Unlock()
	return r.Leader.Write(ctx, txn)
}

// lagging is a follower whose state is an annotation and an object behind the leader's, until
// somebody asks for a read index.
func lagging(t *testing.T) *exchange {
	t.Helper()
	there := newExchange(t)
	there.create("ml")
	db, follower := storetest.NewFollower(there.leader, 0)
	t.Cleanup(follower.Close)
	resume := follower.Pause()
	_, err := there.update(t.Context(), "ml", annotate("new"))
	require.NoError(t, err)
	there.create("young")
	return exchangeOn(t, db, there.leader, &catchingUp{follower, resume})
}

// catchingUp catches up with the leader only when it must.
type catchingUp struct {
	*storetest.Follower
	resume func()
}

func (c *catchingUp) ReadIndex(ctx context.Context) (fsm.Revision, error) {
	c.resume()
	return c.Follower.ReadIndex(ctx)
}

func TestALaggingNodeGivesNoStaleRefusal(t *testing.T) {
	t.Parallel()
	x := lagging(t)
	notYet := errors.New("not annotated")
	runs := 0
	err := x.reservations.GuaranteedUpdate(t.Context(), "/reservations/rome/ml", &broker.Reservation{}, false, nil,
		storage.SimpleUpdate(func(object runtime.Object) (runtime.Object, error) {
			runs++
			if object.(*broker.Reservation).Annotations["note"] != "new" {
				return nil, notYet
			}
			return object, nil
		}), nil)
	require.NoError(t, err)
	require.Equal(t, 2, runs)
}

func TestALaggingNodeGivesNoStaleYes(t *testing.T) {
	t.Parallel()
	x := lagging(t)
	runs := 0
	updated, err := x.update(t.Context(), "ml", func(r *broker.Reservation) {
		runs++
		delete(r.Annotations, "note") // nothing to do on the old state
	})
	require.NoError(t, err)
	require.Equal(t, 2, runs)
	require.Empty(t, updated.Annotations)
	require.Empty(t, store.ReservationOf(x.db.State().Row(rsvKey)).Annotations)
}

func TestALaggingNodeFindsWhatItHasNotSeenYet(t *testing.T) {
	t.Parallel()
	x := lagging(t)
	require.Nil(t, x.db.State().Row("reservations/rome/young"))
	_, err := x.update(t.Context(), "young", annotate("a"))
	require.NoError(t, err)

	x = lagging(t)
	err = x.reservations.Delete(t.Context(), "/reservations/rome/young", &broker.Reservation{}, nil,
		storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
	require.NoError(t, err)
}

func TestReadsWithoutARevisionAreLinearizableAndOthersLocal(t *testing.T) {
	t.Parallel()
	x := lagging(t)
	var old, current broker.Reservation
	require.NoError(t, x.reservations.Get(t.Context(), "/reservations/rome/ml", storage.GetOptions{ResourceVersion: "0"}, &old))
	require.Empty(t, old.Annotations)
	require.NoError(t, x.reservations.Get(t.Context(), "/reservations/rome/ml", storage.GetOptions{}, &current))
	require.Equal(t, "new", current.Annotations["note"])
}

func TestWithoutALeader(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	created := x.create("ml")
	key := "/reservations/rome/ml"
	var r broker.Reservation

	x.leader.Fail(store.ErrNoLeader)
	for name, err := range map[string]error{
		"create":      x.reservations.Create(t.Context(), "/reservations/rome/b", reservation("b"), nil, 0),
		"linearizing": x.reservations.Get(t.Context(), key, storage.GetOptions{}, &r),
		"nothing new": x.reservations.GuaranteedUpdate(t.Context(), key, &r, false, nil, editing(func(*broker.Reservation) {}), nil),
	} {
		require.True(t, apierrors.IsServiceUnavailable(err), "%s: %v", name, err)
		seconds, retry := apierrors.SuggestsClientDelay(err)
		require.True(t, retry && seconds > 0, name)
		require.ErrorIs(t, err, store.ErrNoLeader, name)
	}
	require.NoError(t, x.reservations.Get(t.Context(), key, storage.GetOptions{ResourceVersion: "0"}, &r))
	require.NoError(t, x.reservations.Get(t.Context(), key, storage.GetOptions{ResourceVersion: created.ResourceVersion}, &r))
	w, err := x.reservations.Watch(t.Context(), key, storage.ListOptions{ResourceVersion: created.ResourceVersion, Predicate: storage.Everything})
	require.NoError(t, err)
	w.Stop()

	x.leader.Fail(store.ErrUnknownOutcome)
	err = x.reservations.Create(t.Context(), "/reservations/rome/b", reservation("b"), nil, 0)
	require.True(t, apierrors.IsTimeout(err), "%v", err)
	_, retry := apierrors.SuggestsClientDelay(err)
	require.False(t, retry, "clients would send it again by themselves")
}

func TestAnAdvertisementInUseIsNotDeleted(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.offer()
	x.create("ml")
	x.grant(&fsm.Ledger{Phase: store.PhaseReserved, Target: "paris"})
	remove := func(s *store.Storage, key string, out runtime.Object) error {
		return s.Delete(t.Context(), key, out, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
	}
	err := remove(x.advertisements, "/clusteradvertisements/paris-adv", &broker.ClusterAdvertisement{})
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.ErrorContains(t, err, "live reservations")

	last := &broker.Reservation{}
	require.NoError(t, remove(x.reservations, "/reservations/rome/ml", last))
	require.Equal(t, broker.ReservationReserved, last.Status.Phase)
	require.Empty(t, x.db.State().Row(parisKey).Account.Held, "its hold ended with it")
	require.NoError(t, remove(x.advertisements, "/clusteradvertisements/paris-adv", &broker.ClusterAdvertisement{}))
}

func TestAPreconditionOnTheRevisionHoldsUntilTheWrite(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	created := x.create("ml")
	grant := func() {
		x.apply(fsm.Txn{Writes: []fsm.Write{{Key: rsvKey, Ledger: &fsm.Ledger{Phase: store.PhaseReserved}}}})
	}
	granted := false
	err := x.reservations.Delete(t.Context(), "/reservations/rome/ml", &broker.Reservation{},
		&storage.Preconditions{ResourceVersion: &created.ResourceVersion},
		func(context.Context, runtime.Object) error {
			if !granted {
				grant()
			}
			granted = true
			return nil
		}, nil, storage.DeleteOptions{})
	require.True(t, storage.IsInvalidObj(err), "%v", err)
	require.NotNil(t, x.db.State().Row(rsvKey))
}

func TestAnUnreadableObjectCanBeDeletedOnRequest(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.create("ml")
	remove := func(unreadable bool) error {
		return x.reservations.Delete(t.Context(), "/reservations/rome/ml", &broker.Reservation{}, nil,
			storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{ExpectTransformOrDecodeError: unreadable})
	}
	require.True(t, storage.IsInvalidObj(remove(true)), "it can be read")
	x.apply(fsm.Txn{Writes: []fsm.Write{{Key: rsvKey, Body: []byte("{")}}})
	require.Nil(t, store.ReservationOf(x.db.State().Row(rsvKey)))
	require.True(t, storage.IsCorruptObject(remove(false)))
	require.NoError(t, remove(true))
	require.Nil(t, x.db.State().Row(rsvKey))
}

func TestWhatAWriteReturnsIsItsOwnResult(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.create("ml")
	late := &overtaken{Leader: x.leader, after: func() {
		x.apply(fsm.Txn{Writes: []fsm.Write{{Key: rsvKey, Delete: true}}})
	}}
	x = exchangeOn(t, x.db, x.leader, late)
	updated, err := x.update(t.Context(), "ml", annotate("a"))
	require.NoError(t, err, "deleted before the answer, but after the update")
	require.Equal(t, "a", updated.Annotations["note"])
	require.True(t, meta.IsStatusConditionFalse(updated.Status.Conditions, "Ready"))
}

// overtaken lets something else happen between a write and its answer.
type overtaken struct {
	*storetest.Leader
	after func()
}

func (o *overtaken) Write(ctx context.Context, txn fsm.Txn) (fsm.Result, error) {
	result, err := o.Leader.Write(ctx, txn)
	o.after()
	return result, err
}

func TestAWriteThatASnapshotOvertookIsNotAnsweredWithAnothers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		another func(x *exchange)
		lost    bool
	}{
		"nothing": {func(*exchange) {}, false},
		"annotation": {func(x *exchange) {
			_, err := x.update(x.t.Context(), "ml", annotate("b"))
			require.NoError(x.t, err)
		}, true},
		"deletion": {func(x *exchange) { x.apply(fsm.Txn{Writes: []fsm.Write{{Key: rsvKey, Delete: true}}}) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			others := newExchange(t)
			x := exchangeOn(t, others.db, others.leader, &overtaken{Leader: others.leader, after: func() {
				c.another(others)
				others.db.Restore(others.db.State())
			}})
			out := &broker.Reservation{}
			err := x.reservations.Create(t.Context(), "/reservations/rome/ml", reservation("ml"), out, 0)
			if !c.lost {
				require.NoError(t, err)
				require.Equal(t, "ml", out.Name)
				return
			}
			require.ErrorIs(t, err, store.ErrUnknownOutcome)
			require.True(t, apierrors.IsTimeout(err))
		})
	}
}
