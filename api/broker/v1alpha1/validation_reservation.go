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
	errs := append(validateObjectMeta(&r.ObjectMeta), validateReservationSpec(&r.Spec, field.NewPath("spec"))...)
	if longest := MaxNameBytes - len(PieceName("", MaxPieces)); r.Spec.Split != nil && len(r.Name) > longest {
		errs = append(errs, field.TooLong(field.NewPath("metadata", "name"), "", longest))
	}
	return errs
}

// ValidateReservationUpdate checks a changed reservation against the stored one.
func ValidateReservationUpdate(updated, old *Reservation) field.ErrorList {
	errs := ValidateReservation(updated)
	if equality.Semantic.DeepEqual(updated.Spec, old.Spec) {
		return errs
	}
	if old.Status.PartOf != nil && updated.Spec.Split != nil {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "split"), "a part of a "+old.Status.PartOf.Kind+" can't be split"))
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
	errs = append(errs, validateSplit(s, path)...)
	return append(errs, validateRetention(path.Child("ttlSecondsAfterFinished"), s.TTLSecondsAfterFinished)...)
}

func validatePriority(path *field.Path, priority int32) field.ErrorList {
	if priority < MinPriority || priority > MaxPriority {
		return field.ErrorList{field.Invalid(path, priority, fmt.Sprintf("must be from %d to %d", MinPriority, MaxPriority))}
	}
	return nil
}

func validateRetention(path *field.Path, ttl *int32) field.ErrorList {
	if ttl != nil && (*ttl < 0 || *ttl > MaxRetentionSeconds) {
		return field.ErrorList{field.Invalid(path, *ttl, fmt.Sprintf("must be from 0 to %d (a year)", MaxRetentionSeconds))}
	}
	return nil
}

// validateSplit: pieces are parts of the request, and a request that waits is granted whole.
func validateSplit(s *ReservationSpec, path *field.Path) field.ErrorList {
	if s.Split == nil {
		return nil
	}
	at := path.Child("split")
	var errs field.ErrorList
	if n := s.Split.MaxPieces; n < 2 || n > MaxPieces {
		errs = append(errs, field.Invalid(at.Child("maxPieces"), n, fmt.Sprintf("must be from 2 to %d", MaxPieces)))
	}
	least := at.Child("minPiece")
	if len(s.Split.MinPiece) == 0 {
		errs = append(errs, field.Required(least, `name at least one resource, as {cpu: "2"}`))
	}
	errs = append(errs, validateResources(least, s.Split.MinPiece, positive, true)...)
	for _, name := range sortedNames(s.Split.MinPiece) {
		piece, requested := s.Split.MinPiece[name], s.RequestedResources[name]
		if piece.Cmp(requested) > 0 {
			errs = append(errs, field.Invalid(least.Child(string(name)), piece.String(),
				fmt.Sprintf("must not be more than is requested (%s)", requested.String())))
		}
	}
	for _, name := range sortedNames(s.Chunk) {
		if chunk, piece := s.Chunk[name], s.Split.MinPiece[name]; chunk.Cmp(piece) > 0 {
			errs = append(errs, field.Invalid(path.Child("chunk").Child(string(name)), chunk.String(),
				fmt.Sprintf("must not be more than the smallest piece (spec.split.minPiece: %s)", piece.String())))
		}
	}
	if s.WaitFor != "" {
		errs = append(errs, field.Invalid(path.Child("waitFor"), s.WaitFor, "a split reservation does not wait: remove spec.waitFor or spec.split"))
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
	return equality.Semantic.DeepEqual(same, *old) && longer(updated.Duration, old.Duration)
}

// longer compares durations; empty, until deleted, is the longest.
func longer(updated, old string) bool {
	if updated == "" || old == "" {
		return old != ""
	}
	before, err := ParseSpan(old)
	if err != nil {
		return false
	}
	after, err := ParseSpan(updated)
	return err == nil && after >= before
}

func durationText(duration string) string {
	if duration == "" {
		return "until deleted"
	}
	return duration
}
