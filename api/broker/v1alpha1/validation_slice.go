package v1alpha1

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	sliceCommands = []SliceCommand{SliceLoad, SliceActivate, SliceDeactivate, SliceUnload}
	sliceStates   = []SliceState{SliceLoading, SliceLoaded, SliceActivating, SliceActive, SliceDeactivating, SliceUnloading, SliceFailed}
)

// ValidateSliceUpdate checks a slice that was changed by hand. What it is a share of, and where, is
// fixed: its row's name and its hold speak of that. The rest its agent does, until the leader puts
// it right.
func ValidateSliceUpdate(updated, old *Slice) field.ErrorList {
	errs := validateObjectMeta(&updated.ObjectMeta)
	path := field.NewPath("spec")
	fixed := func(name, now, before string) {
		if now != before {
			errs = append(errs, field.Invalid(path.Child(name), now, fmt.Sprintf("is immutable (%q)", before)))
		}
	}
	fixed("blueprint", updated.Spec.Blueprint, old.Spec.Blueprint)
	fixed("blueprintUID", updated.Spec.BlueprintUID, old.Spec.BlueprintUID)
	fixed("slice", updated.Spec.Slice, old.Spec.Slice)
	fixed("clusterID", updated.Spec.ClusterID, old.Spec.ClusterID)
	if image := updated.Spec.Image; len(image) > MaxArtifactBytes {
		errs = append(errs, field.TooLong(path.Child("image"), "", MaxArtifactBytes))
	} else if _, err := imageReference(image); err != nil {
		errs = append(errs, field.Invalid(path.Child("image"), image, err.Error()))
	}
	if len(updated.Spec.Artifact) > MaxArtifactBytes {
		errs = append(errs, field.TooLong(path.Child("artifact"), "", MaxArtifactBytes))
	}
	if n := updated.Spec.Instances; n < 0 || n > MaxBlueprintInstances {
		errs = append(errs, field.Invalid(path.Child("instances"), n, fmt.Sprintf("must be from 0 to %d", MaxBlueprintInstances)))
	}
	if updated.Spec.Attempt < 0 {
		errs = append(errs, field.Invalid(path.Child("attempt"), updated.Spec.Attempt, "must not be negative"))
	}
	errs = append(errs, validateInstanceResources(path.Child("resources"), updated.Spec.Resources, updated.Spec.Instances)...)
	errs = append(errs, validateRollout(path.Child("rollout"), &updated.Spec.Rollout)...)
	if updated.Spec.Command == "" {
		return append(errs, field.Required(path.Child("command"), "Load, Activate, Deactivate or Unload"))
	}
	return append(errs, validateEnum(path.Child("command"), updated.Spec.Command, sliceCommands)...)
}

// ValidateSliceStatusUpdate checks what an agent reports.
func ValidateSliceStatusUpdate(updated *Slice) field.ErrorList {
	path := field.NewPath("status")
	s := &updated.Status
	errs := validateEnum(path.Child("state"), s.State, sliceStates)
	if s.ObservedGeneration < 0 || s.ObservedGeneration > updated.Generation {
		errs = append(errs, field.Invalid(path.Child("observedGeneration"), s.ObservedGeneration,
			fmt.Sprintf("must be from 0 to the slice's generation (%d)", updated.Generation)))
	}
	if s.ReadyInstances < 0 || s.ReadyInstances > MaxReadyInstances {
		errs = append(errs, field.Invalid(path.Child("readyInstances"), s.ReadyInstances, fmt.Sprintf("must be from 0 to %d", MaxReadyInstances)))
	}
	if len(s.Message) > MaxConditionMessageBytes {
		errs = append(errs, field.TooLong(path.Child("message"), "", MaxConditionMessageBytes))
	}
	return append(errs, validateConditions(path.Child("conditions"), s.Conditions)...)
}
