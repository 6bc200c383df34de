package server

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/reservation"
	"github.com/bourse-dev/bourse/store"
)

// The dry runs of what a leader room decides, on the state that the registry has just read
// linearizably. Their objects are the request's own.

func (s *Server) dryReservation(ctx context.Context, obj runtime.Object) error {
	r, state := obj.(*broker.Reservation), s.cfg.DB.State()
	r.Status = reservation.Decide(state, r, now(state))
	if state.Row(broker.ReservationKey(r.Namespace, r.Name)) == nil {
		for i := range r.Status.Pieces {
			if err := nameIsFree(state, r, store.ReservationKind(), r.Status.Pieces[i].Name); err != nil {
				return err
			}
		}
	}
	reduceFor(ctx, store.ReservationKind(), r)
	return nil
}

func (s *Server) dryBatch(ctx context.Context, obj runtime.Object) error {
	b, state := obj.(*broker.ReservationBatch), s.cfg.DB.State()
	if b.Spec.Atomic && state.Row(broker.BatchKey(b.Namespace, b.Name)) == nil {
		for i := range b.Spec.Items {
			if err := nameIsFree(state, b, store.BatchKind(), broker.ItemReservationName(b.Name, b.Spec.Items[i].Name)); err != nil {
				return err
			}
		}
	}
	status, refusal := reservation.DecideBatch(state, b, now(state))
	if refusal != nil {
		return store.TooLargeError(store.BatchKind(), refusal)
	}
	b.Status = status
	reduceFor(ctx, store.BatchKind(), b)
	return nil
}

// nameIsFree refuses what the leader would refuse: a name of a part that another reservation has.
func nameIsFree(state *fsm.State, whole metav1.Object, kind *store.Kind, part string) error {
	row := state.Row(broker.ReservationKey(whole.GetNamespace(), part))
	if row == nil {
		return nil
	}
	return store.PartTakenError(kind, whole.GetName(), row.Key, row.Revision())
}

// reduceFor takes from an object what the request's user may not see, as storage does.
func reduceFor(ctx context.Context, kind *store.Kind, obj runtime.Object) {
	if !roleFrom(ctx).seesDecisions() {
		kind.Reduce(obj)
	}
}

// now is about what the leader would enter: state time is up to ten seconds behind.
func now(state *fsm.State) fsm.Millis {
	return max(state.Time(), fsm.Millis(time.Now().UnixMilli()))
}
