package v1alpha1

import (
	"fmt"
	"net/url"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateClusterAdvertisement checks a new advertisement. Its resource figures are not looked at:
// ordinary writes can't change them.
func ValidateClusterAdvertisement(a *ClusterAdvertisement) field.ErrorList {
	errs := validateObjectMeta(&a.ObjectMeta)
	path := field.NewPath("spec")
	errs = append(errs, validateClusterID(path.Child("clusterID"), a.Spec.ClusterID)...)
	if want := AdvertisementName(a.Spec.ClusterID); a.Name != want {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), a.Name,
			fmt.Sprintf("must be %q: <spec.clusterID>-adv", want)))
	}
	errs = append(errs, validateEndpoint(path.Child("endpoint"), a.Spec.Endpoint)...)
	errs = append(errs, validateLabelValue(path.Child("region"), a.Spec.Region)...)
	errs = append(errs, validateLabelValue(path.Child("provider"), a.Spec.Provider)...)
	errs = append(errs, validateCost(path.Child("cost"), a.Spec.Cost)...)
	errs = append(errs, validateCostAnnotations(a.Annotations)...)
	errs = append(errs, validateResources(path.Child("lending", "keepBack"), a.Spec.Lending.KeepBack, zeroOrMore, true)...)
	return errs
}

// ValidateClusterAdvertisementUpdate checks a changed advertisement against the stored one.
func ValidateClusterAdvertisementUpdate(updated, old *ClusterAdvertisement) field.ErrorList {
	errs := ValidateClusterAdvertisement(updated)
	if updated.Spec.ClusterID != old.Spec.ClusterID {
		errs = append(errs, field.Invalid(field.NewPath("spec", "clusterID"), updated.Spec.ClusterID,
			fmt.Sprintf("is immutable (%q)", old.Spec.ClusterID)))
	}
	return errs
}

// ValidateClusterAdvertisementStatusUpdate checks what an agent writes into the status: conditions.
func ValidateClusterAdvertisementStatusUpdate(updated *ClusterAdvertisement) field.ErrorList {
	return validateConditions(field.NewPath("status", "conditions"), updated.Status.Conditions)
}

// ValidateFactsReport checks an agent's report: no negative or absurd figure reaches the ledger.
func ValidateFactsReport(f *FactsReport) field.ErrorList {
	var errs field.ErrorList
	if id, err := uuid.Parse(f.Session); err != nil || id == uuid.Nil {
		errs = append(errs, field.Invalid(field.NewPath("session"), f.Session, "must be a random UUID"))
	}
	if f.Epoch < 0 {
		errs = append(errs, field.Invalid(field.NewPath("epoch"), f.Epoch, "must not be negative"))
	}
	if f.Sequence < 0 {
		errs = append(errs, field.Invalid(field.NewPath("sequence"), f.Sequence, "must not be negative"))
	}
	errs = append(errs, validateResources(field.NewPath("allocatable"), f.Allocatable, zeroOrMore, false)...)
	errs = append(errs, validateResources(field.NewPath("allocated"), f.Allocated, zeroOrMore, true)...)
	errs = append(errs, validateResources(field.NewPath("largestFree"), f.LargestFree, zeroOrMore, false)...)
	path := field.NewPath("use")
	errs = append(errs, tooMany(path, len(f.Use), MaxHoldUse)...)
	for i := range f.Use {
		errs = append(errs, validateHoldUse(path.Index(i), &f.Use[i])...)
	}
	return errs
}

func validateHoldUse(path *field.Path, u *HoldUse) field.ErrorList {
	errs := validateEnum(path.Child("kind"), u.Kind, []string{HolderReservation, HolderSlice})
	for _, msg := range validation.IsDNS1123Label(u.Namespace) {
		errs = append(errs, field.Invalid(path.Child("namespace"), u.Namespace, msg))
	}
	for _, msg := range validation.IsDNS1123Subdomain(u.Name) {
		errs = append(errs, field.Invalid(path.Child("name"), u.Name, msg))
	}
	if u.Fence <= 0 {
		errs = append(errs, field.Invalid(path.Child("fence"), u.Fence, "must be the fence of the hold"))
	}
	return append(errs, validateResources(path.Child("used"), u.Used, zeroOrMore, true)...)
}

// validateEndpoint keeps credentials out of what every member of the exchange can read.
func validateEndpoint(path *field.Path, endpoint string) field.ErrorList {
	if endpoint == "" {
		return nil
	}
	if len(endpoint) > MaxEndpointBytes {
		return field.ErrorList{field.TooLong(path, endpoint, MaxEndpointBytes)}
	}
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return field.ErrorList{field.Invalid(path, endpoint, `must be a URL, as "https://paris.example.org:6443"`)}
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		// The value itself is left out of the message: it may be a password.
		return field.ErrorList{field.Forbidden(path, "must not carry a user, a password, a query or a fragment")}
	}
	return nil
}

// validateLabelValue: region and provider count as labels.
func validateLabelValue(path *field.Path, value string) field.ErrorList {
	var errs field.ErrorList
	for _, msg := range validation.IsValidLabelValue(value) {
		errs = append(errs, field.Invalid(path, value, msg))
	}
	return errs
}
