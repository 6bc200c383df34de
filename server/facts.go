package server

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
)

// factsREST serves POST clusteradvertisements/<id>-adv/facts: an agent's report. The authorizer has
// seen to it that only the cluster's own agent gets here: the name is in the request.
type factsREST struct{ server *Server }

var _ rest.NamedCreater = factsREST{}

func (factsREST) New() runtime.Object { return &broker.FactsReport{} }
func (factsREST) Destroy()            {}

func (f factsREST) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	report := obj.(*broker.FactsReport)
	if errs := broker.ValidateFactsReport(report); len(errs) > 0 {
		return nil, apierrors.NewInvalid(broker.SchemeGroupVersion.WithKind("FactsReport").GroupKind(), name, errs)
	}
	if validate != nil {
		if err := validate(ctx, report); err != nil {
			return nil, err
		}
	}
	// The answer is small: the agent knows what it sent.
	answer := &broker.FactsReport{Session: report.Session, Epoch: report.Epoch, Sequence: report.Sequence}
	answer.Name = name
	if options != nil && dryrun.IsDryRun(options.DryRun) {
		return answer, nil
	}
	command, err := reportOf(name, report)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	result, err := f.server.cfg.Writer.Report(ctx, command)
	if err != nil {
		return nil, apiError(err)
	}
	answer.Status, err = factsStatus(name, result)
	return answer, err
}

// reportOf is the report in the ledger's integers: supply is rounded down, use up.
func reportOf(name string, r *broker.FactsReport) (fsm.Report, error) {
	session, err := uuid.Parse(r.Session)
	if err != nil {
		return fsm.Report{}, fmt.Errorf("session %q: %w", r.Session, err)
	}
	command := fsm.Report{
		Account: broker.AdvertisementsPrefix + name, Session: session,
		Open: r.Epoch == 0, Epoch: uint64(r.Epoch), Sequence: uint64(r.Sequence),
	}
	if command.Facts.Allocatable, err = allocation.AmountsOf(r.Allocatable, false); err != nil {
		return fsm.Report{}, fmt.Errorf("allocatable: %w", err)
	}
	if command.Facts.Allocated, err = allocation.AmountsOf(r.Allocated, true); err != nil {
		return fsm.Report{}, fmt.Errorf("allocated: %w", err)
	}
	if command.Facts.LargestFree, err = allocation.AmountsOf(r.LargestFree, false); err != nil {
		return fsm.Report{}, fmt.Errorf("largestFree: %w", err)
	}
	for i := range r.Use {
		u := &r.Use[i]
		used, err := allocation.AmountsOf(u.Used, true)
		if err != nil {
			return fsm.Report{}, fmt.Errorf("use[%d].used: %w", i, err)
		}
		command.Use = append(command.Use, fsm.HoldUse{Holder: holderOf(u), Fence: fsm.Revision(u.Fence), Used: used})
	}
	return command, nil
}

// holderOf is the row that holds: a reservation, or a slice of a blueprint.
func holderOf(u *broker.HoldUse) string {
	if u.Kind == broker.HolderSlice {
		return broker.SliceKey(u.Namespace, u.Name)
	}
	return broker.ReservationKey(u.Namespace, u.Name)
}

// factsStatus: who speaks for the cluster is the exchange's answer, not an error of the request.
func factsStatus(name string, result fsm.Result) (broker.FactsReportStatus, error) {
	status := broker.FactsReportStatus{
		Outcome: broker.FactsAccepted, Epoch: int64(result.Epoch), Revision: int64(result.Revision),
	}
	if result.Refusal == nil {
		return status, nil
	}
	switch result.Refusal.Kind {
	case fsm.RefusedLate: // a newer report of the same session is in: nothing to do about this one
	case fsm.RefusedEpoch:
		status.Outcome = broker.FactsSuperseded
	case fsm.RefusedSession:
		status.Outcome = broker.FactsUnknownSession
	case fsm.RefusedMissing:
		return status, apierrors.NewNotFound(broker.Resource("clusteradvertisements"), name)
	default:
		return status, apiError(refusalError(result.Refusal))
	}
	return status, nil
}
