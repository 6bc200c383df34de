package store_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/store/storetest"
)

// everything under the resource, from a revision.
func from(revision string) storage.ListOptions {
	return storage.ListOptions{ResourceVersion: revision, Recursive: true, Predicate: storage.Everything}
}

func (x *exchange) target(name, cluster string, phase uint8) fsm.Revision {
	x.t.Helper()
	return x.apply(fsm.Txn{Writes: []fsm.Write{{
		Key: "reservations/rome/" + name, Ledger: &fsm.Ledger{Phase: phase, Target: cluster},
	}}})
}

func TestEnteringAndLeavingAFieldSelector(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	created := x.create("ml")
	opts := from(created.ResourceVersion)
	opts.Predicate = selecting("status.targetClusterID=paris", "")
	w, err := x.reservations.Watch(t.Context(), "/reservations", opts)
	require.NoError(t, err)
	defer w.Stop()

	x.target("ml", "berlin", store.PhaseReserved) // not selected
	entered := x.target("ml", "paris", store.PhaseReserved)
	got := nextReservation(t, w, watch.Added)
	require.Equal(t, entered, revisionOf(t, got))

	left := x.target("ml", "berlin", store.PhaseReleased)
	got = nextReservation(t, w, watch.Deleted)
	require.Equal(t, left, revisionOf(t, got))
	require.Equal(t, "paris", got.Status.TargetClusterID, "as it last matched")
	require.Equal(t, broker.ReservationReserved, got.Status.Phase)

	x.target("ml", "paris", store.PhaseReserved)
	nextReservation(t, w, watch.Added)
	gone := x.apply(fsm.Txn{Writes: []fsm.Write{{Key: rsvKey, Delete: true}}})
	got = nextReservation(t, w, watch.Deleted)
	require.Equal(t, gone, revisionOf(t, got))
}

func TestEnteringAndLeavingALabelSelector(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	created := x.create("ml")
	opts := from(created.ResourceVersion)
	opts.Predicate = selecting("", "tier=gold")
	w, err := x.reservations.Watch(t.Context(), "/reservations/rome", opts)
	require.NoError(t, err)
	defer w.Stop()
	label := func(tier string) *broker.Reservation {
		updated, err := x.update(t.Context(), "ml", func(r *broker.Reservation) { r.Labels = map[string]string{"tier": tier} })
		require.NoError(t, err)
		return updated
	}
	gold := label("gold")
	require.Equal(t, gold, nextReservation(t, w, watch.Added))
	tin := label("tin")
	left := nextReservation(t, w, watch.Deleted)
	require.Equal(t, tin.ResourceVersion, left.ResourceVersion)
	require.Equal(t, "gold", left.Labels["tier"])
}

// TestManyWritersLoseAndRepeatNothing keeps, by watch alone, a copy of what many writers do at
// once, on the leader and on a follower, and compares it with every revision and with the end.
func TestManyWritersLoseAndRepeatNothing(t *testing.T) {
	t.Parallel()
	const writers, rounds, names = 8, 60, 12
	x := newExchange(t)
	db, follower := storetest.NewFollower(x.leader, time.Millisecond)
	t.Cleanup(follower.Close)
	nodes := []*exchange{x, exchangeOn(t, db, x.leader, follower)}
	start := x.create("start").ResourceVersion

	var watchers sync.WaitGroup
	copies := make([]*mirror, 6)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range copies {
		copies[i] = newMirror()
		watchers.Go(func() { copies[i].follow(ctx, nodes[i%2].reservations, start, i >= 4) })
	}
	var group errgroup.Group
	for i := range writers {
		node := nodes[i%2]
		group.Go(func() error { return churn(t.Context(), node, i, rounds, names) })
	}
	require.NoError(t, group.Wait())
	last := x.create("last")

	for i, c := range copies {
		select {
		case <-c.sawLast:
		case <-t.Context().Done():
			t.Fatalf("watcher %d never saw the last object", i)
		}
	}
	cancel()
	watchers.Wait()
	changes, err := x.db.Changes(revisionFrom(start))
	require.NoError(t, err)
	want := map[fsm.Revision]watch.EventType{}
	for i := range changes {
		switch c := &changes[i]; {
		case c.Key() == "namespaces/rome":
		case c.Before == nil:
			want[c.Revision] = watch.Added
		case c.After == nil:
			want[c.Revision] = watch.Deleted
		default:
			want[c.Revision] = watch.Modified
		}
	}
	require.Greater(t, len(want), writers*rounds/2, "the run did too little")
	for i, c := range copies {
		require.NoError(t, c.err, "watcher %d", i)
		require.Equal(t, want, c.events, "watcher %d", i)
		require.Equal(t, last.ResourceVersion, c.objects["last"])
	}
	require.Positive(t, copies[4].resumed+copies[5].resumed)
}

// churn creates, changes and deletes objects that all writers share.
func churn(ctx context.Context, node *exchange, writer, rounds, names int) error {
	for round := range rounds {
		name := fmt.Sprintf("r%d", (writer*7+round*5)%names)
		key := "/reservations/rome/" + name
		out := &broker.Reservation{}
		var err error
		switch round % 4 {
		case 0:
			err = node.reservations.Create(ctx, key, reservation(name), out, 0)
		case 3:
			err = node.reservations.Delete(ctx, key, out, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
		default:
			err = node.reservations.GuaranteedUpdate(ctx, key, out, true, nil, editing(func(r *broker.Reservation) {
				if r.Name == "" {
					*r = *reservation(name)
				}
				metav1.SetMetaDataAnnotation(&r.ObjectMeta, "by", fmt.Sprintf("%d/%d", writer, round))
			}), nil)
		}
		if err != nil && !storage.IsExist(err) && !storage.IsNotFound(err) {
			return fmt.Errorf("writer %d round %d: %w", writer, round, err)
		}
	}
	return nil
}

// mirror is what one client makes of a watch.
type mirror struct {
	events  map[fsm.Revision]watch.EventType
	objects map[string]string // name to resourceVersion
	resumed int
	sawLast chan struct{}
	err     error
}

func newMirror() *mirror {
	return &mirror{events: map[fsm.Revision]watch.EventType{}, objects: map[string]string{}, sawLast: make(chan struct{})}
}

// follow watches until the context ends; with resume it breaks off after every 20 events and
// resumes where it was.
func (m *mirror) follow(ctx context.Context, s *store.Storage, revision string, resume bool) {
	for ctx.Err() == nil && m.err == nil {
		w, err := s.Watch(ctx, "/reservations", from(revision))
		if err != nil {
			if ctx.Err() == nil {
				m.err = err
			}
			return
		}
		n := 0
		for e := range w.ResultChan() {
			if revision = m.take(e); m.err != nil {
				break
			}
			if n++; resume && n == 20 {
				m.resumed++
				break
			}
		}
		w.Stop()
	}
}

func (m *mirror) take(e watch.Event) (revision string) {
	r, ok := e.Object.(runtime.CacheableObject)
	if !ok {
		m.err = fmt.Errorf("%s: %+v", e.Type, e.Object)
		return ""
	}
	object := r.GetObject().(*broker.Reservation)
	at := revisionFrom(object.ResourceVersion)
	if _, twice := m.events[at]; twice {
		m.err = fmt.Errorf("revision %d came twice", at)
	}
	for seen := range m.events {
		if seen > at {
			m.err = fmt.Errorf("revision %d came after %d", at, seen)
		}
	}
	if _, known := m.objects[object.Name]; known != (e.Type != watch.Added) && object.Name != "start" {
		m.err = fmt.Errorf("%s of %s at %d, known: %t", e.Type, object.Name, at, known)
	}
	m.events[at] = e.Type
	m.objects[object.Name] = object.ResourceVersion
	if e.Type == watch.Deleted {
		delete(m.objects, object.Name)
	}
	if object.Name == "last" {
		close(m.sawLast)
	}
	return object.ResourceVersion
}

func revisionFrom(resourceVersion string) fsm.Revision {
	revision, err := storage.APIObjectVersioner{}.ParseResourceVersion(resourceVersion)
	if err != nil {
		panic(err)
	}
	return fsm.Revision(revision)
}

func expectExpired(t *testing.T, w watch.Interface) {
	t.Helper()
	stuck := time.AfterFunc(30*time.Second, w.Stop) // ends the loop
	defer stuck.Stop()
	for e := range w.ResultChan() {
		if e.Type != watch.Error {
			continue
		}
		status := e.Object.(*metav1.Status)
		require.Equal(t, int32(http.StatusGone), status.Code)
		require.Equal(t, metav1.StatusReasonExpired, status.Reason)
		_, open := <-w.ResultChan()
		require.False(t, open, "the watch goes on after its error")
		return
	}
	t.Fatal("the watch ended without saying why")
}

func TestAWatchThatFallsOutOfTheHistoryEndsWith410(t *testing.T) {
	t.Parallel()
	db := store.NewSmallDB(fsm.New(), 50)
	leader := storetest.NewLeader(db)
	x := exchangeOn(t, db, leader, leader)
	created := x.create("ml")
	slow, err := x.reservations.Watch(t.Context(), "/reservations", from(created.ResourceVersion))
	require.NoError(t, err)
	defer slow.Stop()
	for i := range 400 { // far more than buffer and history together
		x.target("ml", fmt.Sprintf("c%d", i), store.PhaseReserved)
	}
	expectExpired(t, slow)

	late, err := x.reservations.Watch(t.Context(), "/reservations", from(created.ResourceVersion))
	require.NoError(t, err)
	defer late.Stop()
	expectExpired(t, late)
	require.Equal(t, uint64(2), db.Counters().Overruns)
}

func TestAnInstalledSnapshotEndsWatchesWith410(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	created := x.create("ml")
	w, err := x.reservations.Watch(t.Context(), "/reservations", from(created.ResourceVersion))
	require.NoError(t, err)
	defer w.Stop()
	x.db.Restore(x.db.State())
	expectExpired(t, w)
}

func TestAWatchFromTheFutureIsRefusedUnlessOnlyThisNodeLags(t *testing.T) {
	t.Parallel()
	x := lagging(t)
	ahead := fmt.Sprint(x.db.State().Revision() + 2)
	w, err := x.reservations.Watch(t.Context(), "/reservations", from(ahead))
	require.NoError(t, err, "the leader is there already")
	defer w.Stop()
	_, err = x.reservations.Watch(t.Context(), "/reservations", from("1000000"))
	require.True(t, apierrors.IsResourceExpired(err), "%v", err)
	err = x.reservations.GetList(t.Context(), "/reservations", from("1000000"), &broker.ReservationList{})
	require.True(t, storage.IsTooLargeResourceVersion(err), "%v", err)
}

func TestAWatchListIsCurrentAndSaysWhereItEnds(t *testing.T) {
	t.Parallel()
	x := lagging(t)
	opts := from("")
	yes := true
	opts.SendInitialEvents, opts.Predicate.AllowWatchBookmarks = &yes, true
	w, err := x.reservations.Watch(t.Context(), "/reservations", opts)
	require.NoError(t, err)
	defer w.Stop()
	require.Equal(t, "new", nextReservation(t, w, watch.Added).Annotations["note"])
	require.Equal(t, "young", nextReservation(t, w, watch.Added).Name)
	end := nextReservation(t, w, watch.Bookmark)
	require.Equal(t, "true", end.Annotations[metav1.InitialEventsAnnotationKey])
	require.Equal(t, x.db.State().Revision(), revisionOf(t, end))
	x.create("later")
	require.Equal(t, "later", nextReservation(t, w, watch.Added).Name)
}

func TestAnEventIsEncodedOnceForAllWatchers(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	created := x.create("ml")
	var watches []watch.Interface
	for range 5 {
		w, err := x.reservations.Watch(t.Context(), "/reservations", from(created.ResourceVersion))
		require.NoError(t, err)
		defer w.Stop()
		watches = append(watches, w)
	}
	x.target("ml", "paris", store.PhaseReserved)
	encoded := 0
	var first runtime.Object
	for _, w := range watches {
		object := (<-w.ResultChan()).Object.(runtime.CacheableObject)
		err := object.CacheEncode("test", func(o runtime.Object, w io.Writer) error {
			encoded++
			o.(*broker.Reservation).APIVersion = "set by the encoder"
			first = o
			_, err := io.WriteString(w, "bytes")
			return err
		}, io.Discard)
		require.NoError(t, err)
	}
	require.Equal(t, 1, encoded)
	shared := store.ReservationOf(x.db.State().Row(rsvKey))
	require.NotSame(t, shared, first)
	require.Empty(t, shared.APIVersion, "the encoder got a copy")
}
