package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// initialAdvertisement is what the agent creates where there is none. Resource figures are not
// part of it: they come by report.
func (c *Config) initialAdvertisement() *broker.ClusterAdvertisement {
	return &broker.ClusterAdvertisement{
		ObjectMeta: metav1.ObjectMeta{Name: broker.AdvertisementName(c.ClusterID), Labels: maps.Clone(c.Labels)},
		Spec: broker.ClusterAdvertisementSpec{
			ClusterID: c.ClusterID,
			Endpoint:  c.Endpoint,
			Region:    c.Region,
			Provider:  c.Provider,
			Cost:      maps.Clone(c.Costs),
		},
	}
}

// advertisementFaults asks the API's own validation, so that an agent never starts with values
// that the exchange would refuse.
func (c *Config) advertisementFaults() []error {
	wanted := c.withAnyID().initialAdvertisement()
	var faults []error
	for _, e := range broker.ValidateClusterAdvertisement(wanted) {
		faults = append(faults, fmt.Errorf("initial advertisement: %w", e))
	}
	return faults
}

// withAnyID leaves faults of the id to validateClusterID, which names it once and by its flag.
func (c *Config) withAnyID() *Config {
	copied := *c
	copied.ClusterID = "any"
	return &copied
}

// drift is one value that was given to the agent and stands otherwise in the advertisement.
type drift struct {
	what, given, stands string
}

// drifts compares what was given (only that) with what stands.
func (c *Config) drifts(stands *broker.ClusterAdvertisement) []drift {
	var found []drift
	differs := func(what, given, stands string) {
		if given != "" && given != stands {
			found = append(found, drift{what, given, stands})
		}
	}
	differs("endpoint", c.Endpoint, stands.Spec.Endpoint)
	differs("region", c.Region, stands.Spec.Region)
	differs("provider", c.Provider, stands.Spec.Provider)
	for _, key := range slices.Sorted(maps.Keys(c.Labels)) {
		if v, there := stands.Labels[key]; !there || v != c.Labels[key] {
			found = append(found, drift{"label " + key, c.Labels[key], v})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.Costs)) {
		price := stands.Spec.Cost[key]
		if annotated, there := stands.Annotations["cost."+key]; there {
			price = annotated
		}
		if !samePrice(c.Costs[key], price) {
			differs("cost "+key, c.Costs[key], price)
		}
	}
	return found
}

// samePrice sees that 0.50 is 0.5. The currency is no price and compares as text.
func samePrice(a, b string) bool {
	x, errX := broker.ParsePrice(a)
	y, errY := broker.ParsePrice(b)
	return errX == nil && errY == nil && x == y
}

// ensure makes sure that the advertisement exists.
func (r *reporter) ensure(ctx context.Context) error {
	stands, err := r.exchange.advertisement(ctx, r.name)
	if err == nil {
		r.logDrifts(stands)
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("get advertisement %s: %w", r.name, err)
	}
	err = r.exchange.createAdvertisement(ctx, r.config.initialAdvertisement())
	if apierrors.IsAlreadyExists(err) {
		return nil // an attempt whose answer was lost, or another agent
	}
	if err != nil {
		return fmt.Errorf("create advertisement %s: %w", r.name, err)
	}
	r.logger.Info("advertisement created", "name", r.name)
	return nil
}

// logDrifts names each difference once in the life of the process.
func (r *reporter) logDrifts(stands *broker.ClusterAdvertisement) {
	for _, d := range r.config.drifts(stands) {
		if r.toldDrifts[d] {
			continue
		}
		r.toldDrifts[d] = true
		r.logger.Warn("flag differs from the advertisement, which kubectl owns: left as it stands",
			"what", d.what, "flag", d.given, "stands", d.stands,
			"hint", "kubectl edit clusteradvertisement "+r.name)
	}
}

// declare says in the advertisement which blueprints may run here, each time before a session is opened: another agent may
// have spoken meanwhile. An exchange that takes no such word is spoken to all the same.
func (r *reporter) declare(ctx context.Context) error {
	stands, err := r.exchange.advertisement(ctx, r.name)
	if err != nil {
		return fmt.Errorf("get advertisement %s: %w", r.name, err)
	}
	conditions := stands.Status.Conditions
	allowed := metav1.Condition{
		Type: broker.ConditionBlueprints, Status: metav1.ConditionFalse, Reason: "NotConsented",
		Message: r.config.Blueprints.words(), LastTransitionTime: metav1.NewTime(r.clock.Now().UTC().Truncate(time.Second)),
	}
	if r.config.Blueprints.given() {
		allowed.Status, allowed.Reason = metav1.ConditionTrue, "Consented"
	}
	if !meta.SetStatusCondition(&conditions, allowed) {
		return nil
	}
	err = r.exchange.patchStatus(ctx, advertisements, "", r.name, map[string]any{"conditions": conditions}, &broker.ClusterAdvertisement{})
	if err == nil || answered(err) == 0 || apierrors.IsNotFound(err) {
		return err
	}
	r.complain("exchange takes no condition "+broker.ConditionBlueprints, err)
	return nil
}
