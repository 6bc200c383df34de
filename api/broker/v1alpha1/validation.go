package v1alpha1

import (
	"fmt"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// CostAnnotationPrefix starts the annotations that set a price: cost.cpu, cost.memory, cost.<resource>.
// They win over spec.cost.
const CostAnnotationPrefix = "cost."

// Keys of spec.cost that are not resource names.
const (
	CostCurrency = "currency"
	CostPerHour  = "perHour"
)

// sign is what the amounts of a resource list must be.
type sign int

const (
	positive sign = iota
	zeroOrMore
)

// validateObjectMeta checks what the generic registry leaves open: a DNS name, and counts.
func validateObjectMeta(meta *metav1.ObjectMeta) field.ErrorList {
	path := field.NewPath("metadata")
	var errs field.ErrorList
	for _, msg := range validation.IsDNS1123Subdomain(meta.Name) {
		errs = append(errs, field.Invalid(path.Child("name"), meta.Name, msg))
	}
	errs = append(errs, tooMany(path.Child("labels"), len(meta.Labels), MaxLabels)...)
	errs = append(errs, tooMany(path.Child("finalizers"), len(meta.Finalizers), MaxFinalizers)...)
	errs = append(errs, tooMany(path.Child("ownerReferences"), len(meta.OwnerReferences), MaxOwnerReferences)...)
	for i, f := range meta.Finalizers {
		if f == metav1.FinalizerDeleteDependents || f == metav1.FinalizerOrphanDependents {
			errs = append(errs, field.Forbidden(path.Child("finalizers").Index(i),
				fmt.Sprintf("%q waits for a garbage collector, and the exchange has none", f)))
		}
	}
	return errs
}

func tooMany(path *field.Path, have, limit int) field.ErrorList {
	if have <= limit {
		return nil
	}
	return field.ErrorList{field.TooMany(path, have, limit)}
}

// validateClusterID checks the id of a member cluster.
func validateClusterID(path *field.Path, id string) field.ErrorList {
	if id == "" {
		return field.ErrorList{field.Required(path, "the ID of a member cluster")}
	}
	var errs field.ErrorList
	for _, msg := range validation.IsDNS1123Label(id) {
		errs = append(errs, field.Invalid(path, id, msg))
	}
	return errs
}

// validateResources checks names, signs and bounds; roundUp says how the list becomes integers.
func validateResources(path *field.Path, list corev1.ResourceList, want sign, roundUp bool) field.ErrorList {
	errs := tooMany(path, len(list), MaxResources)
	for _, name := range sortedNames(list) {
		at := path.Child(string(name))
		for _, msg := range validation.IsQualifiedName(string(name)) {
			errs = append(errs, field.Invalid(at, string(name), msg))
		}
		errs = append(errs, validateQuantity(at, string(name), list[name], want, roundUp)...)
	}
	return errs
}

func validateQuantity(path *field.Path, name string, quantity resource.Quantity, want sign, roundUp bool) field.ErrorList {
	switch s := quantity.Sign(); {
	case want == positive && s <= 0:
		return field.ErrorList{field.Invalid(path, quantity.String(), "must be greater than 0")}
	case s < 0:
		return field.ErrorList{field.Invalid(path, quantity.String(), "must not be negative")}
	}
	if _, err := AmountOf(name, quantity, roundUp); err != nil {
		return field.ErrorList{field.Invalid(path, quantity.String(), err.Error())}
	}
	return nil
}

const besidePerHour = "perHour includes everything: state it alone, or unit prices"

// validateCost checks spec.cost: a currency, perHour or unit prices.
func validateCost(path *field.Path, cost map[string]string) field.ErrorList {
	errs := tooMany(path, len(cost), MaxCostEntries)
	for _, key := range sortedNames(cost) {
		value := cost[key]
		switch key {
		case CostCurrency:
			errs = append(errs, validateCurrency(path.Child(key), value)...)
		case CostPerHour:
			errs = append(errs, validateUnitPrice(path.Child(key), value)...)
		default:
			for _, msg := range validation.IsQualifiedName(key) {
				errs = append(errs, field.Invalid(path.Child(key), key, msg))
			}
			errs = append(errs, validateUnitPrice(path.Child(key), value)...)
		}
	}
	if _, ok := cost[CostPerHour]; ok {
		for _, key := range sortedNames(cost) {
			if key != CostCurrency && key != CostPerHour {
				errs = append(errs, field.Forbidden(path.Child(key), besidePerHour))
			}
		}
	}
	return errs
}

// validateCostAnnotations checks cost.<key> as spec.cost.<key>.
func validateCostAnnotations(annotations map[string]string) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("metadata", "annotations")
	for _, key := range sortedNames(annotations) {
		name, ok := strings.CutPrefix(key, CostAnnotationPrefix)
		// A key with a slash is somebody's domain (cost.example.com/x), unless the name before it
		// is a resource's own (cost.nvidia.com/gpu): both are prices to us.
		if !ok {
			continue
		}
		if name == CostCurrency {
			errs = append(errs, validateCurrency(path.Key(key), annotations[key])...)
			continue
		}
		errs = append(errs, validateUnitPrice(path.Key(key), annotations[key])...)
		if _, allIn := annotations[CostAnnotationPrefix+CostPerHour]; allIn && name != CostPerHour {
			errs = append(errs, field.Forbidden(path.Key(key), besidePerHour))
		}
	}
	return errs
}

func validateCurrency(path *field.Path, currency string) field.ErrorList {
	ok := len(currency) == 3
	for _, r := range currency {
		ok = ok && r >= 'A' && r <= 'Z'
	}
	if !ok {
		return field.ErrorList{field.Invalid(path, currency, `must be three capital letters, as "EUR"`)}
	}
	return nil
}

func validateUnitPrice(path *field.Path, price string) field.ErrorList {
	if nano, err := ParsePrice(price); err == nil && nano > MaxUnitPrice {
		return field.ErrorList{field.Invalid(path, price, "must be at most "+FormatPrice(MaxUnitPrice)+" per unit and hour")}
	}
	return validatePrice(path, price)
}

func validatePrice(path *field.Path, price string) field.ErrorList {
	if _, err := ParsePrice(price); err != nil {
		return field.ErrorList{field.Invalid(path, price, err.Error())}
	}
	return nil
}

func validateSpan(path *field.Path, span string) field.ErrorList {
	if span == "" {
		return nil
	}
	if _, err := ParseSpan(span); err != nil {
		return field.ErrorList{field.Invalid(path, span, err.Error())}
	}
	return nil
}

func validateSelector(path *field.Path, selector *metav1.LabelSelector) field.ErrorList {
	if selector == nil {
		return nil
	}
	errs := tooMany(path, len(selector.MatchLabels)+len(selector.MatchExpressions), MaxSelectorTerms)
	for i := range selector.MatchExpressions {
		errs = append(errs, tooMany(path.Child("matchExpressions").Index(i).Child("values"),
			len(selector.MatchExpressions[i].Values), MaxSelectorValues)...)
	}
	return append(errs, metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, path)...)
}

func validateConditions(path *field.Path, conditions []metav1.Condition) field.ErrorList {
	errs := tooMany(path, len(conditions), MaxConditions)
	for i := range conditions {
		if n := len(conditions[i].Message); n > MaxConditionMessageBytes {
			errs = append(errs, field.TooLong(path.Index(i).Child("message"), "", MaxConditionMessageBytes))
		}
	}
	return append(errs, metav1validation.ValidateConditions(conditions, path)...)
}

// sortedNames gives faults an order, so that the same mistake reads the same twice.
func sortedNames[K ~string, V any](m map[K]V) []K {
	names := make([]K, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Slice(names, func(i, j int) bool { return names[i] < names[j] })
	return names
}
