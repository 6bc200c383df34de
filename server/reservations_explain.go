package server

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic/registry"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/reservation"
)

// explainREST serves GET reservations/<name>/explain: every candidate on the present state.
type explainREST struct {
	server *Server
	store  *registry.Store
}

func (explainREST) New() runtime.Object { return &broker.ReservationExplanation{} }
func (explainREST) Destroy()            {}

func (e explainREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	obj, err := e.store.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	r, state := obj.(*broker.Reservation), e.server.cfg.DB.State()
	explanation := &broker.ReservationExplanation{Decision: reservation.Explain(state, r, now(state))}
	explanation.Name, explanation.Namespace = r.Name, r.Namespace
	explanation.UID, explanation.ResourceVersion = r.UID, r.ResourceVersion
	explanation.CreationTimestamp = r.CreationTimestamp
	return explanation, nil
}
