package server

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/util/dryrun"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/blueprint"
)

// blueprintDryRun fills in what the leader would do, as dryRun does for reservations.
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

// plan fills status.plan, and says as the phase whether all that must run has a place.
func (d blueprintDryRun) plan(obj runtime.Object) {
	b := obj.(*broker.Blueprint)
	preview := d.server.preview(b)
	status := &b.Status
	status.Plan = preview.Changes
	switch {
	case len(preview.Unplaced) > 0:
		var words []string
		for _, u := range preview.Unplaced {
			words = append(words, b.Spec.Slices[u.Slice].Name+": "+u.Message)
		}
		status.Phase, status.Message = broker.BlueprintDegraded, strings.Join(words, "; ")
	case len(preview.Changes) > 0 || status.Phase == broker.BlueprintDegraded:
		status.Phase, status.Message = broker.BlueprintProgressing, "a dry run: see status.plan"
	}
}

func (s *Server) preview(b *broker.Blueprint) blueprint.Preview {
	state := s.cfg.DB.State()
	return blueprint.Plan(s.cfg.Blueprints, state, b, now(state))
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
		if _, err := s.server.cfg.Blueprints.Registries.Image(artifact); err != nil {
			errs = append(errs, field.Invalid(field.NewPath("spec", "slices").Index(i).Child("artifact"), artifact, err.Error()))
		}
	}
	return errs
}

// notFitting refuses a Strict blueprint that would not fit.
func (s blueprintStrategy) notFitting(b *broker.Blueprint) (errs field.ErrorList) {
	if b.Spec.Admission != broker.AdmissionStrict {
		return nil
	}
	for _, u := range s.server.preview(b).Unplaced {
		slice, at := &b.Spec.Slices[u.Slice], field.NewPath("spec", "slices").Index(u.Slice)
		least, _ := slice.Range()
		if at = at.Child("instances"); slice.Instances == nil {
			at = field.NewPath("spec", "slices").Index(u.Slice).Child("minInstances")
		}
		errs = append(errs, field.Invalid(at, least, notFitNow+u.Message))
	}
	return errs
}

const notFitNow = "would not fit the federation now: "

// doubts are warnings: what is allowed and yet may not be what was meant.
func (s blueprintStrategy) doubts(b *broker.Blueprint) (warnings []string) {
	preview := s.server.preview(b)
	for _, i := range preview.Unselected {
		if b.Spec.Slices[i].ClusterSelector != nil {
			warnings = append(warnings, fmt.Sprintf("spec.slices[%d].clusterSelector: matches no cluster that advertises here", i))
		}
	}
	for i := range b.Spec.Slices {
		artifact := b.Spec.Slices[i].Artifact
		if image, err := s.server.cfg.Blueprints.Registries.Image(artifact); err == nil && strings.HasSuffix(image, ":latest") {
			warnings = append(warnings, fmt.Sprintf("spec.slices[%d].artifact: %q may come to stand for another image without a rollout; name a version", i, artifact))
		}
	}
	for _, u := range preview.Unplaced {
		warnings = append(warnings, fmt.Sprintf("spec.slices[%d] (%s): %s%s", u.Slice, b.Spec.Slices[u.Slice].Name, notFitNow, u.Message))
	}
	return warnings
}
