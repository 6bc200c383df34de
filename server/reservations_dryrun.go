package server

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/util/dryrun"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/reservation"
)

// dryRun fills in what the exchange would have answered. The generic registry never lets a dry run
// reach storage, where a real write meets the leader's decision. All three ways to create (POST,
// server-side apply, create on update) end in afterCreate. The state is the one that the registry
// has just read linearizably.
type dryRun struct{ server *Server }

func (d dryRun) afterCreate(obj runtime.Object, options *metav1.CreateOptions) {
	if options != nil && dryrun.IsDryRun(options.DryRun) {
		d.decide(obj)
	}
}

func (d dryRun) afterUpdate(obj runtime.Object, options *metav1.UpdateOptions) {
	if options != nil && dryrun.IsDryRun(options.DryRun) {
		d.decide(obj)
	}
}

func (d dryRun) decide(obj runtime.Object) {
	r, state := obj.(*broker.Reservation), d.server.cfg.DB.State()
	r.Status = reservation.Decide(state, r, now(state))
}

// now is about what the leader would enter: state time is up to ten seconds behind.
func now(state *fsm.State) fsm.Millis {
	return max(state.Time(), fsm.Millis(time.Now().UnixMilli()))
}
