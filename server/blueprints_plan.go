package server

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/blueprint"
)

// planning is what a request came to know of the blueprint that it writes. Validation, warnings and a
// dry run all ask for it, and it is computed once: it takes long where there are many clusters, and must
// not say one thing in a warning and another in the plan.
type planning struct {
	of      *broker.Blueprint // nil: nobody asked yet
	preview blueprint.Preview
}

type planningKey struct{}

func withPlanning(ctx context.Context) (context.Context, *planning) {
	p := &planning{}
	return context.WithValue(ctx, planningKey{}, p), p
}

// preview of an object that the request tries to write; an update tries another after a conflict.
func (s *Server) preview(ctx context.Context, b *broker.Blueprint) blueprint.Preview {
	p := ctx.Value(planningKey{}).(*planning)
	if p.of != b {
		start, state := time.Now(), s.cfg.DB.State()
		p.of, p.preview = b, blueprint.Plan(s.cfg.Blueprints, state, b, now(state))
		s.metrics.plans.Observe(time.Since(start).Seconds())
	}
	return p.preview
}

// fill puts the plan into what a dry run answers, and says as the phase whether all that must run has a place.
func (s *Server) fill(ctx context.Context, p *planning, b *broker.Blueprint) {
	if p.of == nil {
		s.preview(ctx, b)
	}
	status := &b.Status
	status.Plan = p.preview.Changes
	switch {
	case len(p.preview.Unplaced) > 0:
		var words []string
		for _, u := range p.preview.Unplaced {
			words = append(words, b.Spec.Slices[u.Slice].Name+": "+u.Message)
		}
		status.Phase, status.Message = broker.BlueprintDegraded, strings.Join(words, "; ")
	case len(p.preview.Changes) > 0 || status.Phase == broker.BlueprintDegraded:
		status.Phase, status.Message = broker.BlueprintProgressing, "a dry run: see status.plan"
	}
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
func (s blueprintStrategy) notFitting(ctx context.Context, b *broker.Blueprint) (errs field.ErrorList) {
	if b.Spec.Admission != broker.AdmissionStrict {
		return nil
	}
	for _, u := range s.server.preview(ctx, b).Unplaced {
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
func (s blueprintStrategy) doubts(ctx context.Context, b *broker.Blueprint) (warnings []string) {
	preview := s.server.preview(ctx, b)
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
