package server

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// blueprintDryRun fills in what the leader would do, as dryRun does for reservations: status.plan, and
// status.slices as they would be once it is done.
type blueprintDryRun struct{ server *Server }

func (d blueprintDryRun) afterCreate(obj runtime.Object, options *metav1.CreateOptions) {
	if options != nil && dryrun.IsDryRun(options.DryRun) {
		d.plan(obj)
	}
}

func (d blueprintDryRun) afterUpdate(obj runtime.Object, options *metav1.UpdateOptions) {
	if options != nil && dryrun.IsDryRun(options.DryRun) {
		d.plan(obj)
	}
}

func (d blueprintDryRun) plan(obj runtime.Object) {
	b := obj.(*broker.Blueprint)
	b.Status = d.server.planned(b)
}

// planned is the blueprint's status as the room would make it now.
func (s *Server) planned(b *broker.Blueprint) broker.BlueprintStatus {
	if s.cfg.Plan == nil {
		return b.Status
	}
	state := s.cfg.DB.State()
	return s.cfg.Plan(state, b, now(state))
}

// unmapped: coordinates of a group that this exchange has no registry for. What is stored already
// stays: a mapping that was taken away must not keep a label from being set.
func (s blueprintStrategy) unmapped(b, old *broker.Blueprint) (errs field.ErrorList) {
	stored := map[string]bool{}
	if old != nil {
		for i := range old.Spec.Slices {
			stored[old.Spec.Slices[i].Artifact] = true
		}
	}
	for i := range b.Spec.Slices {
		artifact := b.Spec.Slices[i].Artifact
		if broker.CheckArtifact(artifact) != nil || stored[artifact] {
			continue
		}
		if _, err := s.server.cfg.Registries.Image(artifact); err != nil {
			errs = append(errs, field.Invalid(field.NewPath("spec", "slices").Index(i).Child("artifact"), artifact, err.Error()))
		}
	}
	return errs
}

// shortfall is a slice that would not get the instances that must run.
type shortfall struct {
	index         int
	least, placed int32
	why           string
}

func (f shortfall) String() string {
	text := fmt.Sprintf("would not fit the federation now: %d of %d instances", f.placed, f.least)
	if f.why != "" {
		text += ": " + f.why
	}
	return text
}

func (s *Server) shortfalls(b *broker.Blueprint) (list []shortfall) {
	if s.cfg.Plan == nil {
		return nil
	}
	planned := s.planned(b)
	for i := range b.Spec.Slices {
		least, _ := b.Spec.Slices[i].Range()
		f := shortfall{index: i, least: least}
		for j := range planned.Slices {
			if planned.Slices[j].Name == b.Spec.Slices[i].Name {
				f.placed, f.why = planned.Slices[j].Placed, planned.Slices[j].Message
			}
		}
		if f.placed < least {
			list = append(list, f)
		}
	}
	return list
}

// notFitting refuses a Strict blueprint that would not fit.
func (s blueprintStrategy) notFitting(b *broker.Blueprint) (errs field.ErrorList) {
	if b.Spec.Admission != broker.AdmissionStrict {
		return nil
	}
	for _, f := range s.server.shortfalls(b) {
		at := field.NewPath("spec", "slices").Index(f.index)
		if b.Spec.Slices[f.index].Instances != nil {
			at = at.Child("instances")
		} else {
			at = at.Child("minInstances")
		}
		errs = append(errs, field.Invalid(at, f.least, f.String()))
	}
	return errs
}

// doubts are warnings: what is allowed and yet may not be what was meant.
func (s blueprintStrategy) doubts(b *broker.Blueprint) (warnings []string) {
	state := s.server.cfg.DB.State()
	for i := range b.Spec.Slices {
		slice, at := &b.Spec.Slices[i], fmt.Sprintf("spec.slices[%d]", i)
		if slice.ClusterSelector != nil && !selectsAny(state, slice.ClusterSelector) {
			warnings = append(warnings, at+".clusterSelector: matches no cluster that advertises here")
		}
		if image, err := s.server.cfg.Registries.Image(slice.Artifact); err == nil && strings.HasSuffix(image, ":latest") {
			warnings = append(warnings, fmt.Sprintf("%s.artifact: %q may come to stand for another image without a rollout; name a version", at, slice.Artifact))
		}
	}
	if b.Spec.Admission == broker.AdmissionStrict {
		return warnings // it fits: validation has seen to it
	}
	for _, f := range s.server.shortfalls(b) {
		warnings = append(warnings, fmt.Sprintf("spec.slices[%d] (%s): %s", f.index, b.Spec.Slices[f.index].Name, f))
	}
	return warnings
}

// selectsAny says whether the selector takes any cluster, be it up now or not.
func selectsAny(state *fsm.State, selector *metav1.LabelSelector) bool {
	selects, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return false // validation says what is wrong with it
	}
	for row := range state.Scan(broker.AdvertisementsPrefix) {
		if a := store.AdvertisementOf(row); a != nil && selects.Matches(clusterLabels(a)) {
			return true
		}
	}
	return false
}

// clusterLabels are a cluster's labels; region and provider count as such.
func clusterLabels(a *broker.ClusterAdvertisement) labels.Set {
	set := labels.Set{}
	for key, value := range a.Labels {
		set[key] = value
	}
	if a.Spec.Region != "" {
		set[allocation.LabelRegion] = a.Spec.Region
	}
	if a.Spec.Provider != "" {
		set[allocation.LabelProvider] = a.Spec.Provider
	}
	return set
}
