package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// errForeign: a Deployment of that name is somebody else's.
var errForeign = errors.New("exists and is not ours")

// Reasons of faults that decide what happens next.
const (
	reasonUnreachable = "Unreachable"
	reasonConflict    = "Conflict"
)

// reasonNotRemoved of the condition Refused: what ran before consent was taken back is, or may be, still there.
const reasonNotRemoved = "NotRemoved"

// ask reads a Deployment that isn't watched; nil where there is none.
func (d *driver) ask(ctx context.Context, namespace, name string) (*workload, error) {
	have, err := d.get(ctx, namespace, name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return readWorkload(have, d.config.ClusterID), nil
}

func (d *driver) get(ctx context.Context, namespace, name string) (*appsv1.Deployment, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return d.member.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
}

// do carries out an act on what is there now, whatever was seen before, and returns what there is afterwards. With
// errForeign, that is what is not ours.
func (d *driver) do(ctx context.Context, do act, key string, s *sight) (*workload, error) {
	name := s.name()
	have, err := d.get(ctx, name.Namespace, name.Name)
	switch {
	case apierrors.IsNotFound(err) && do == actDelete:
		return nil, nil
	case apierrors.IsNotFound(err):
		return d.create(ctx, s.slice)
	case err != nil:
		return nil, err
	}
	w := readWorkload(have, d.config.ClusterID)
	switch {
	case !w.ours:
		return w, fmt.Errorf("deployment %s %w", key, errForeign)
	case w.leaving:
		return w, nil
	case do == actDelete:
		return d.remove(ctx, have)
	default:
		return d.update(ctx, s.slice, have, w)
	}
}

func (d *driver) create(ctx context.Context, s *broker.Slice) (*workload, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	wanted := d.config.Blueprints.want(s, nil).deployment(s)
	made, err := d.member.AppsV1().Deployments(wanted.Namespace).Create(ctx, wanted, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return readWorkload(made, d.config.ClusterID), nil
}

// update leaves labels and annotations that others set, and nothing of the spec.
func (d *driver) update(ctx context.Context, s *broker.Slice, have *appsv1.Deployment, w *workload) (*workload, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	wanted := d.config.Blueprints.want(s, w).deployment(s)
	next := have.DeepCopy()
	maps.Copy(next.Labels, wanted.Labels)
	maps.Copy(next.Annotations, wanted.Annotations)
	next.Spec = wanted.Spec
	made, err := d.member.AppsV1().Deployments(next.Namespace).Update(ctx, next, metav1.UpdateOptions{})
	if err != nil {
		return nil, err
	}
	return readWorkload(made, d.config.ClusterID), nil
}

// remove deletes exactly what was read. The Deployment stays until its pods are gone.
func (d *driver) remove(ctx context.Context, have *appsv1.Deployment) (*workload, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	foreground := metav1.DeletePropagationForeground
	err := d.member.AppsV1().Deployments(have.Namespace).Delete(ctx, have.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &have.UID, ResourceVersion: &have.ResourceVersion},
		PropagationPolicy: &foreground,
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	return d.ask(context.WithoutCancel(ctx), have.Namespace, have.Name)
}

// faultOf puts an error of the member cluster into words for the slice's status.
func faultOf(err error) fault {
	var status apierrors.APIStatus
	switch {
	case errors.Is(err, errForeign):
		return fault{reason: "Foreign", text: err.Error(), final: true}
	case !errors.As(err, &status), apierrors.IsServiceUnavailable(err), apierrors.IsTooManyRequests(err), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		return fault{reason: reasonUnreachable, text: err.Error()}
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return fault{reason: reasonConflict, text: err.Error()}
	case apierrors.IsNotFound(err):
		return fault{reason: "NoNamespace", text: "the member cluster says: " + err.Error(), final: true}
	case apierrors.IsForbidden(err):
		return fault{reason: "Forbidden", text: "the agent has no right to it: " + err.Error(), final: true}
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return fault{reason: "Invalid", text: "the member cluster refuses it: " + err.Error(), final: true}
	default:
		return fault{reason: "Error", text: err.Error()}
	}
}

func actOutcome(err error) string {
	if err == nil {
		return "done"
	}
	return "failed"
}

// tell brings the slice's status at the exchange up to date, where it differs, and returns when it is to be looked at
// again for that.
func (d *driver) tell(ctx context.Context, m *memory, s *sight, v verdict) time.Time {
	now := d.clock.Now()
	stands := &s.slice.Status
	if m.toldOver == s.slice.ResourceVersion {
		stands = &m.told // the watch has not brought it back yet
	}
	want := statusOf(now, s, v, stands)
	if sameStatus(&want, stands) {
		m.differs = time.Time{}
		return time.Time{}
	}
	if m.differs.IsZero() {
		m.differs = now
	}
	due := later(later(m.tellPace.notBefore, d.exchangePace.notBefore), m.mayWait(&want, stands, d.config.PublishWithin))
	if now.Before(due) {
		return due
	}
	err := d.exchange.patchStatus(ctx, slicesResource, s.slice.Namespace, s.slice.Name, statusFields(&want), &broker.Slice{})
	switch {
	case ctx.Err() != nil:
		return now
	case err == nil:
		m.told, m.toldOver, m.toldAt, m.differs = want, s.slice.ResourceVersion, now, time.Time{}
		m.tellPace.calm()
		d.exchangePace.calm()
		d.metrics.sliceReports.WithLabelValues("done").Inc()
		return time.Time{}
	}
	d.metrics.sliceReports.WithLabelValues("failed").Inc()
	if answered(err) == 0 {
		d.exchangePace.failed(now)
		return d.exchangePace.notBefore
	}
	m.tellPace.failed(now)
	d.logger.Warn("exchange takes no status of a slice: trying on", "slice", keyOf(s.slice), "error", err)
	return m.tellPace.notBefore
}

// mayWait is when a difference must be told: a new state at once, a count after a moment in which more may come, mere
// words only now and then.
func (m *memory) mayWait(want, stands *broker.SliceStatus, gather time.Duration) time.Time {
	switch {
	case want.State != stands.State || want.ObservedGeneration != stands.ObservedGeneration || !sameConditions(want.Conditions, stands.Conditions):
		return m.differs
	case want.ReadyInstances != stands.ReadyInstances:
		return m.differs.Add(gather)
	default:
		return later(m.differs.Add(gather), m.toldAt.Add(tellEvery))
	}
}

// statusOf is the agent's part of a slice's status.
func statusOf(now time.Time, s *sight, v verdict, stands *broker.SliceStatus) broker.SliceStatus {
	status := broker.SliceStatus{
		ObservedGeneration: s.slice.Generation,
		State:              v.state,
		ReadyInstances:     s.pods.ready,
		Message:            broker.Clip(v.message, maxSliceMessage),
	}
	for _, c := range []struct {
		is     bool
		of     string
		reason string
	}{{v.refused, broker.ConditionRefused, refusedFor(s)}, {v.unloaded, broker.ConditionUnloaded, "NothingLeft"}} {
		if !c.is {
			continue
		}
		condition := metav1.Condition{
			Type: c.of, Status: metav1.ConditionTrue, Reason: c.reason, Message: status.Message,
			ObservedGeneration: status.ObservedGeneration, LastTransitionTime: metav1.NewTime(now.UTC().Truncate(time.Second)),
		}
		if old := meta.FindStatusCondition(stands.Conditions, c.of); old != nil && old.Status == condition.Status {
			condition.LastTransitionTime = old.LastTransitionTime
		}
		status.Conditions = append(status.Conditions, condition)
	}
	return status
}

// refusedFor tells a later agent whether something ran before.
func refusedFor(s *sight) string {
	if s.mayBeThere() {
		return reasonNotRemoved
	}
	return "NotConsented"
}

func sameStatus(a, b *broker.SliceStatus) bool {
	return a.ObservedGeneration == b.ObservedGeneration && a.State == b.State && a.ReadyInstances == b.ReadyInstances &&
		a.Message == b.Message && sameConditions(a.Conditions, b.Conditions)
}

// sameConditions compares those that are ours.
func sameConditions(a, b []metav1.Condition) bool {
	for _, of := range []string{broker.ConditionRefused, broker.ConditionUnloaded} {
		x, y := meta.FindStatusCondition(a, of), meta.FindStatusCondition(b, of)
		if (x == nil) != (y == nil) {
			return false
		}
		if x != nil && (x.Status != y.Status || x.Reason != y.Reason || x.Message != y.Message) {
			return false
		}
	}
	return true
}

// statusFields names every field, so that a patch also takes back.
func statusFields(s *broker.SliceStatus) map[string]any {
	conditions := s.Conditions
	if conditions == nil {
		conditions = []metav1.Condition{}
	}
	return map[string]any{
		"observedGeneration": s.ObservedGeneration, "state": s.State, "readyInstances": s.ReadyInstances,
		"message": s.Message, "conditions": conditions,
	}
}
