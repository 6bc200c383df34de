package v1alpha1

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	blueprintStrategies = []BlueprintStrategy{StrategyRoundRobin, StrategySpread, StrategyPack, StrategyCheapest, StrategyBalanced}
	reconciliations     = []BlueprintReconciliation{ReconcileConservative, ReconcileAggressive}
	admissions          = []BlueprintAdmission{AdmissionWarn, AdmissionStrict}
)

// ValidateBlueprint checks a blueprint, new or changed. Pure; callers: the REST layer, the CLI.
// Whether it fits, and whether its artifacts can be found, is not looked at.
func ValidateBlueprint(b *Blueprint) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateObjectMeta(&b.ObjectMeta)
	errs = append(errs, validateEnum(path.Child("strategy"), b.Spec.Strategy, blueprintStrategies)...)
	errs = append(errs, validateEnum(path.Child("reconciliation"), b.Spec.Reconciliation, reconciliations)...)
	errs = append(errs, validateEnum(path.Child("admission"), b.Spec.Admission, admissions)...)
	if moves := b.Spec.MaxMoves; moves != nil && (*moves < 1 || *moves > MaxBlueprintInstances) {
		errs = append(errs, field.Invalid(path.Child("maxMoves"), *moves, fmt.Sprintf("must be from 1 to %d", MaxBlueprintInstances)))
	}
	errs = append(errs, validateRollout(path.Child("rollout"), &b.Spec.Rollout)...)
	return append(errs, validateBlueprintSlices(path.Child("slices"), b.Spec.Slices)...)
}

// validateEnum: empty is the default.
func validateEnum[T ~string](path *field.Path, value T, known []T) field.ErrorList {
	if value == "" || slices.Contains(known, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, known)}
}

func validateBlueprintSlices(path *field.Path, list []BlueprintSlice) field.ErrorList {
	if len(list) == 0 {
		return field.ErrorList{field.Required(path, "at least one slice: {name, artifact, instances, resources}")}
	}
	errs := tooMany(path, len(list), MaxBlueprintSlices)
	if len(errs) > 0 {
		return errs // what follows compares slices with each other
	}
	names, images, total := map[string]int{}, map[string]int{}, int64(0)
	for i := range list {
		s, at := &list[i], path.Index(i)
		if _, again := names[s.Name]; again {
			errs = append(errs, field.Duplicate(at.Child("name"), s.Name))
		}
		names[s.Name] = i
		for _, msg := range validation.IsDNS1123Label(s.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), s.Name, msg))
		}
		errs = append(errs, validateArtifact(at.Child("artifact"), s.Artifact, images, i)...)
		count := validateInstances(at, s)
		errs = append(errs, count...)
		_, most := s.Range()
		errs = append(errs, validateInstanceResources(at.Child("resources"), s.Resources, most)...)
		errs = append(errs, validateSelector(at.Child("clusterSelector"), s.ClusterSelector)...)
		errs = append(errs, validatePriority(at.Child("priority"), s.Priority)...)
		if len(count) == 0 {
			total += int64(most)
		}
	}
	if total > MaxBlueprintInstances {
		errs = append(errs, field.Invalid(path, total, fmt.Sprintf("instances of all slices must be at most %d in sum", MaxBlueprintInstances)))
	}
	return append(errs, validateNeighbours(path, list, names)...)
}

// validateArtifact; seen are the slices' images so far: the same one twice would be two shares of
// one thing, which nobody could tell apart.
func validateArtifact(path *field.Path, artifact string, seen map[string]int, index int) field.ErrorList {
	if artifact == "" {
		return field.ErrorList{field.Required(path, "an image, as registry.example.com/team/web:1.4.2, or group:name:version")}
	}
	if len(artifact) > MaxArtifactBytes {
		return field.ErrorList{field.TooLong(path, "", MaxArtifactBytes)}
	}
	if err := CheckArtifact(artifact); err != nil {
		return field.ErrorList{field.Invalid(path, artifact, err.Error())}
	}
	same := artifact
	if image, err := imageReference(artifact); err == nil {
		same = image
	}
	if _, again := seen[same]; again {
		return field.ErrorList{field.Duplicate(path, artifact)}
	}
	seen[same] = index
	return nil
}

// validateInstances: a number, or a range.
func validateInstances(path *field.Path, s *BlueprintSlice) (errs field.ErrorList) {
	count := func(name string, value *int32) {
		if value != nil && (*value < 1 || *value > MaxBlueprintInstances) {
			errs = append(errs, field.Invalid(path.Child(name), *value, fmt.Sprintf("must be from 1 to %d", MaxBlueprintInstances)))
		}
	}
	count("instances", s.Instances)
	count("minInstances", s.MinInstances)
	count("maxInstances", s.MaxInstances)
	switch {
	case s.Instances != nil && s.MinInstances != nil:
		errs = append(errs, field.Forbidden(path.Child("minInstances"), "state instances, or minInstances and maxInstances"))
	case s.Instances != nil && s.MaxInstances != nil:
		errs = append(errs, field.Forbidden(path.Child("maxInstances"), "state instances, or minInstances and maxInstances"))
	case s.Instances != nil:
	case s.MinInstances == nil && s.MaxInstances == nil:
		errs = append(errs, field.Required(path.Child("instances"), "how many run; or minInstances and maxInstances"))
	case s.MinInstances == nil:
		errs = append(errs, field.Required(path.Child("minInstances"), "goes with maxInstances"))
	case s.MaxInstances == nil:
		errs = append(errs, field.Required(path.Child("maxInstances"), "goes with minInstances"))
	case *s.MinInstances > *s.MaxInstances:
		errs = append(errs, field.Invalid(path.Child("minInstances"), *s.MinInstances,
			fmt.Sprintf("must not be more than maxInstances (%d)", *s.MaxInstances)))
	}
	return errs
}

// validateInstanceResources: every instance holds something, and all together stay what the ledger
// can count.
// validateInstanceResources of which there may be so many.
func validateInstanceResources(path *field.Path, list corev1.ResourceList, most int32) field.ErrorList {
	if len(list) == 0 {
		return field.ErrorList{field.Required(path, `name at least one resource of one instance, as {cpu: 500m, memory: 1Gi}`)}
	}
	errs := validateResources(path, list, positive, true)
	if len(errs) > 0 {
		return errs
	}
	for _, name := range sortedNames(list) {
		quantity := list[name]
		if amount, err := AmountOf(string(name), quantity, true); err == nil && amount > MaxAmount/int64(max(1, most)) {
			errs = append(errs, field.Invalid(path.Child(string(name)), quantity.String(), fmt.Sprintf("%d instances of it are too much to count", most)))
		}
	}
	return errs
}

// validateNeighbours checks affinity and antiAffinity. names are the slices' indexes.
func validateNeighbours(path *field.Path, list []BlueprintSlice, names map[string]int) (errs field.ErrorList) {
	with := make([]map[string]bool, len(list)) // whom slice i shares all its clusters with, near and far
	for i := range list {
		with[i] = map[string]bool{}
		seen := map[string]bool{}
		for j, name := range list[i].Affinity {
			at := path.Index(i).Child("affinity").Index(j)
			other, known := names[name]
			switch {
			case seen[name]:
				errs = append(errs, field.Duplicate(at, name))
			case !known:
				errs = append(errs, field.Invalid(at, name, "no slice of this blueprint has that name"))
			case other == i:
				errs = append(errs, field.Invalid(at, name, "a slice can't wait for itself"))
			case other > i:
				errs = append(errs, field.Invalid(at, name, "must name an earlier slice: they are placed in the order of the spec"))
			default:
				with[i][name] = true
				for far := range with[other] {
					with[i][far] = true
				}
			}
			seen[name] = true
		}
	}
	for i := range list {
		seen := map[string]bool{}
		for j, name := range list[i].AntiAffinity {
			at := path.Index(i).Child("antiAffinity").Index(j)
			other, known := names[name]
			switch {
			case seen[name]:
				errs = append(errs, field.Duplicate(at, name))
			case !known:
				errs = append(errs, field.Invalid(at, name, "no slice of this blueprint has that name"))
			case with[i][name] || with[other][list[i].Name]:
				errs = append(errs, field.Invalid(at, name, "affinity puts both on one cluster: no cluster could run them"))
			}
			seen[name] = true
		}
	}
	return errs
}

// validateRollout: something must be allowed to give way, or no version could ever change.
func validateRollout(path *field.Path, r *BlueprintRollout) field.ErrorList {
	errs := validateBound(path.Child("maxUnavailable"), r.MaxUnavailable)
	errs = append(errs, validateBound(path.Child("maxSurge"), r.MaxSurge)...)
	if len(errs) == 0 && isZero(r.MaxUnavailable) && isZero(r.MaxSurge) {
		errs = append(errs, field.Invalid(path.Child("maxUnavailable"), r.MaxUnavailable.String(), "must not be 0 while maxSurge is 0"))
	}
	return errs
}

// validateBound: a number of instances, or a percentage of them.
func validateBound(path *field.Path, bound *intstr.IntOrString) field.ErrorList {
	if bound == nil {
		return nil
	}
	if bound.Type == intstr.Int {
		if bound.IntVal < 0 || bound.IntVal > MaxBlueprintInstances {
			return field.ErrorList{field.Invalid(path, bound.IntVal, fmt.Sprintf("must be from 0 to %d", MaxBlueprintInstances))}
		}
		return nil
	}
	if _, ok := percent(bound.StrVal); !ok {
		return field.ErrorList{field.Invalid(path, clip(bound.StrVal), `must be a number, or a percentage from 0% to 100%`)}
	}
	return nil
}

func isZero(bound *intstr.IntOrString) bool {
	if bound == nil {
		return false
	}
	if bound.Type == intstr.Int {
		return bound.IntVal == 0
	}
	value, _ := percent(bound.StrVal)
	return value == 0
}
