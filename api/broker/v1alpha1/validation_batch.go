package v1alpha1

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateReservationBatch checks a new batch. Pure; callers: the REST layer, the CLI.
func ValidateReservationBatch(b *ReservationBatch) field.ErrorList {
	errs := validateObjectMeta(&b.ObjectMeta)
	if n := len(b.Name); n > MaxItemNameBytes {
		errs = append(errs, field.TooLong(field.NewPath("metadata", "name"), "", MaxItemNameBytes))
	}
	path := field.NewPath("spec")
	errs = append(errs, validateSpan(path.Child("duration"), b.Spec.Duration)...)
	errs = append(errs, validatePriority(path.Child("priority"), b.Spec.Priority)...)
	errs = append(errs, validateRetention(path.Child("ttlSecondsAfterFinished"), b.Spec.TTLSecondsAfterFinished)...)
	if !b.Spec.Atomic {
		const why = "is of atomic batches: set it on the items, or set spec.atomic"
		if b.Spec.Duration != "" {
			errs = append(errs, field.Invalid(path.Child("duration"), b.Spec.Duration, why))
		}
		if b.Spec.Priority != 0 {
			errs = append(errs, field.Invalid(path.Child("priority"), b.Spec.Priority, why))
		}
	}
	return append(errs, validateItems(path.Child("items"), &b.Spec)...)
}

func validateItems(path *field.Path, s *ReservationBatchSpec) field.ErrorList {
	limit := MaxBatchItems
	if s.Atomic {
		limit = MaxAtomicItems
	}
	switch {
	case len(s.Items) == 0:
		return field.ErrorList{field.Required(path, "name at least one item, as {name: a, spec: {...}}")}
	case len(s.Items) > limit:
		return tooMany(path, len(s.Items), limit) // and no thousand other faults
	}
	var errs field.ErrorList
	seen := make(map[string]struct{}, len(s.Items))
	for i := range s.Items {
		item, at := &s.Items[i], path.Index(i)
		for _, msg := range validation.IsDNS1123Label(item.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), item.Name, msg))
		}
		if _, twice := seen[item.Name]; twice {
			errs = append(errs, field.Duplicate(at.Child("name"), item.Name))
		}
		seen[item.Name] = struct{}{}
		errs = append(errs, validateReservationSpec(&item.Spec, at.Child("spec"))...)
		errs = append(errs, validateItemOf(s, item, at.Child("spec"))...)
		errs = append(errs, validateItemBytes(&item.Spec, at.Child("spec"))...)
	}
	return errs
}

// validateItemBytes: only a selector can make a spec as large as that.
func validateItemBytes(s *ReservationSpec, path *field.Path) field.ErrorList {
	if s.ClusterSelector == nil {
		return nil
	}
	text, err := json.Marshal(s)
	switch {
	case err != nil:
		return field.ErrorList{field.InternalError(path, err)}
	case len(text) > MaxItemBytes:
		return field.ErrorList{field.Invalid(path, fmt.Sprintf("%d bytes", len(text)), fmt.Sprintf("at most %d bytes as JSON", MaxItemBytes))}
	}
	return nil
}

// validateItemOf refuses what an item of this batch can't set.
func validateItemOf(s *ReservationBatchSpec, item *BatchItem, path *field.Path) (errs field.ErrorList) {
	if item.Spec.Split != nil {
		errs = append(errs, field.Forbidden(path.Child("split"), "an item of a batch is not split: make it several items, or a reservation of its own"))
	}
	if !s.Atomic {
		return errs
	}
	const why = "stands on an atomic batch, for all items: set spec."
	if item.Spec.Duration != "" {
		errs = append(errs, field.Invalid(path.Child("duration"), item.Spec.Duration, why+"duration"))
	}
	if item.Spec.Priority != 0 {
		errs = append(errs, field.Invalid(path.Child("priority"), item.Spec.Priority, why+"priority"))
	}
	if ttl := item.Spec.TTLSecondsAfterFinished; ttl != nil {
		errs = append(errs, field.Invalid(path.Child("ttlSecondsAfterFinished"), *ttl, why+"ttlSecondsAfterFinished"))
	}
	if item.Spec.WaitFor != "" {
		errs = append(errs, field.Invalid(path.Child("waitFor"), item.Spec.WaitFor, "an atomic batch does not wait: it is reserved whole, or fails at once"))
	}
	return errs
}

// ValidateReservationBatchUpdate checks a changed batch against the stored one.
func ValidateReservationBatchUpdate(updated, old *ReservationBatch) field.ErrorList {
	if equality.Semantic.DeepEqual(updated.Spec, old.Spec) {
		return validateObjectMeta(&updated.ObjectMeta)
	}
	errs := ValidateReservationBatch(updated)
	path := field.NewPath("spec")
	if !equality.Semantic.DeepEqual(updated.Spec.Items, old.Spec.Items) {
		errs = append(errs, field.Forbidden(path.Child("items"), "can't change: delete the batch and apply it again, or apply another"))
	}
	if updated.Spec.Atomic != old.Spec.Atomic {
		errs = append(errs, field.Invalid(path.Child("atomic"), updated.Spec.Atomic, "can't change: delete the batch and apply it again"))
	}
	if updated.Spec.Priority != old.Spec.Priority {
		errs = append(errs, field.Invalid(path.Child("priority"), updated.Spec.Priority, "can't change: delete the batch and apply it again"))
	}
	if ttl := updated.Spec.TTLSecondsAfterFinished; !equality.Semantic.DeepEqual(ttl, old.Spec.TTLSecondsAfterFinished) {
		errs = append(errs, field.Forbidden(path.Child("ttlSecondsAfterFinished"), "can't change: delete the batch and apply it again"))
	}
	if updated.Spec.Duration != old.Spec.Duration {
		errs = append(errs, validateLonger(path.Child("duration"), updated, old)...)
	}
	return errs
}

func validateLonger(path *field.Path, updated, old *ReservationBatch) field.ErrorList {
	if phase := old.Status.Phase; phase != BatchReserved {
		return field.ErrorList{field.Invalid(path, updated.Spec.Duration,
			fmt.Sprintf("can't change while the phase is %s: delete the batch and apply it again", phase))}
	}
	if !longer(updated.Spec.Duration, old.Spec.Duration) {
		return field.ErrorList{field.Invalid(path, updated.Spec.Duration,
			fmt.Sprintf("can only become longer while the phase is Reserved (now %s)", durationText(old.Spec.Duration)))}
	}
	return nil
}
