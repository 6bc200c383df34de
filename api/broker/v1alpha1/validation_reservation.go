package v1alpha1

import (
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ServerConditionTypes are the conditions that the exchange sets itself. Agents set all others.
var ServerConditionTypes = map[string]bool{
	ConditionReady:          true,
	ConditionStalled:        true,
	ConditionCapacityShort:  true,
	ConditionDuplicateAgent: true,
}

// The conditions that the exchange sets.
const (
	// ConditionReady and ConditionStalled are kstatus's: every kind carries them.
	ConditionReady   = "Ready"
	ConditionStalled = "Stalled"
	// ConditionCapacityShort: the cluster has less than it promised.
	ConditionCapacityShort = "CapacityShort"
	// ConditionDuplicateAgent: two agents speak for one cluster.
	ConditionDuplicateAgent = "DuplicateAgent"
)

// ValidateReservation checks a new reservation. Pure; callers: the REST layer, the CLI.
func ValidateReservation(r *Reservation) field.ErrorList {
	return append(validateObjectMeta(&r.ObjectMeta), validateReservationSpec(&r.Spec, field.NewPath("spec"))...)
}

// ValidateReservationUpdate checks a changed reservation against the stored one.
func ValidateReservationUpdate(updated, old *Reservation) field.ErrorList {
	errs := ValidateReservation(updated)
	if equality.Semantic.DeepEqual(updated.Spec, old.Spec) {
		return errs
	}
	phase := old.Status.Phase
	if phase == "" || phase == ReservationPending || phase == ReservationReserved && onlyLonger(&updated.Spec, &old.Spec) {
		return errs
	}
	why := fmt.Sprintf("can't change once the phase is %s: delete the reservation and apply it again", phase)
	if phase == ReservationReserved {
		why = fmt.Sprintf("can't change while the phase is %s, but for a longer duration (now %s)", phase, durationText(old.Spec.Duration))
	}
	return append(errs, changedFields(&updated.Spec, &old.Spec, why)...)
}

// changedFields names each field of the spec that differs, with its new value.
func changedFields(updated, old *ReservationSpec, why string) (errs field.ErrorList) {
	now, before := reflect.ValueOf(updated).Elem(), reflect.ValueOf(old).Elem()
	for i := range now.NumField() {
		if equality.Semantic.DeepEqual(now.Field(i).Interface(), before.Field(i).Interface()) {
			continue
		}
		name, _, _ := strings.Cut(now.Type().Field(i).Tag.Get("json"), ",")
		errs = append(errs, field.Invalid(field.NewPath("spec", name), now.Field(i).Interface(), why))
	}
	return errs
}

// ValidateReservationStatusUpdate checks what an agent writes into the status: conditions.
func ValidateReservationStatusUpdate(updated *Reservation) field.ErrorList {
	return validateConditions(field.NewPath("status", "conditions"), updated.Status.Conditions)
}

func validateReservationSpec(s *ReservationSpec, path *field.Path) field.ErrorList {
	errs := validateClusterID(path.Child("requesterID"), s.RequesterID)
	requested := path.Child("requestedResources")
	if len(s.RequestedResources) == 0 {
		errs = append(errs, field.Required(requested, `name at least one resource, as {cpu: "4", memory: "8Gi"}`))
	}
	errs = append(errs, validateResources(requested, s.RequestedResources, positive, true)...)
	errs = append(errs, validateSpan(path.Child("duration"), s.Duration)...)
	errs = append(errs, validateSpan(path.Child("waitFor"), s.WaitFor)...)
	errs = append(errs, validatePriority(path.Child("priority"), s.Priority)...)
	errs = append(errs, validateChunk(s, path.Child("chunk"))...)
	errs = append(errs, validateSelector(path.Child("clusterSelector"), s.ClusterSelector)...)
	if s.TargetClusterID != "" {
		errs = append(errs, validateClusterID(path.Child("targetClusterID"), s.TargetClusterID)...)
		if s.TargetClusterID == s.RequesterID {
			errs = append(errs, field.Invalid(path.Child("targetClusterID"), s.TargetClusterID, "a cluster can't reserve its own capacity"))
		}
	}
	if s.MaxCostPerHour != "" {
		errs = append(errs, validatePrice(path.Child("maxCostPerHour"), s.MaxCostPerHour)...)
	}
	if ttl := s.TTLSecondsAfterFinished; ttl != nil && (*ttl < 0 || *ttl > MaxRetentionSeconds) {
		errs = append(errs, field.Invalid(path.Child("ttlSecondsAfterFinished"), *ttl,
			fmt.Sprintf("must be from 0 to %d (a year)", MaxRetentionSeconds)))
	}
	return errs
}

// validateChunk: a chunk is a part of the request; one that is larger could never be met by what is held.
func validateChunk(s *ReservationSpec, path *field.Path) field.ErrorList {
	errs := validateResources(path, s.Chunk, positive, true)
	for _, name := range sortedNames(s.Chunk) {
		chunk, requested := s.Chunk[name], s.RequestedResources[name]
		if chunk.Cmp(requested) > 0 {
			errs = append(errs, field.Invalid(path.Child(string(name)), chunk.String(),
				fmt.Sprintf("must not be more than is requested (%s)", requested.String())))
		}
	}
	return errs
}

// onlyLonger says whether the specs differ in nothing but a longer duration. Empty, until deleted, is the longest.
func onlyLonger(updated, old *ReservationSpec) bool {
	same := *updated
	same.Duration = old.Duration
	if !equality.Semantic.DeepEqual(same, *old) || old.Duration == "" {
		return false
	}
	if updated.Duration == "" {
		return true
	}
	before, err := ParseSpan(old.Duration)
	if err != nil {
		return false
	}
	after, err := ParseSpan(updated.Duration)
	return err == nil && after >= before
}

func durationText(duration string) string {
	if duration == "" {
		return "until deleted"
	}
	return duration
}
