package v1alpha1

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Defaults are never written into an object: a GitOps tool compares what it applied with what
// is stored, and would differ for ever. Who needs the effective value asks for it here.

// Retention is how long the reservation is kept once Released or Failed.
func (s *ReservationSpec) Retention() time.Duration {
	return retention(s.TTLSecondsAfterFinished)
}

// Retention is how long the batch is kept once nothing of it holds or waits.
func (s *ReservationBatchSpec) Retention() time.Duration {
	return retention(s.TTLSecondsAfterFinished)
}

func retention(seconds *int32) time.Duration {
	if seconds == nil {
		return DefaultRetention
	}
	return time.Duration(*seconds) * time.Second
}

// EffectiveStrategy of a blueprint.
func (s *BlueprintSpec) EffectiveStrategy() BlueprintStrategy {
	return cmp.Or(s.Strategy, StrategyRoundRobin)
}

// Moves is how many instances a reconciliation may move to a better place: none where it is Conservative.
func (s *BlueprintSpec) Moves() int32 {
	switch {
	case s.Reconciliation != ReconcileAggressive:
		return 0
	case s.MaxMoves == nil:
		return DefaultMaxMoves
	}
	return *s.MaxMoves
}

// Range is how many instances must run, and how many may.
func (s *BlueprintSlice) Range() (least, most int32) {
	if s.Instances != nil {
		return *s.Instances, *s.Instances
	}
	if s.MinInstances != nil {
		least = *s.MinInstances
	}
	if s.MaxInstances != nil {
		most = *s.MaxInstances
	}
	return least, max(least, most)
}

// Bounds of a rollout over so many instances of one cluster, as a Deployment's: unavailable is
// rounded down, surge up, and where both come to 0 one may be unavailable.
func (r *BlueprintRollout) Bounds(instances int32) (unavailable, surge int32) {
	unavailable = share(r.MaxUnavailable, instances, false)
	surge = share(r.MaxSurge, instances, true)
	if unavailable == 0 && surge == 0 {
		unavailable = 1
	}
	return min(unavailable, instances), surge
}

func share(bound *intstr.IntOrString, of int32, roundUp bool) int32 {
	if bound != nil && bound.Type == intstr.Int {
		return max(0, bound.IntVal)
	}
	parts := int64(DefaultRolloutPercent)
	if bound != nil {
		parts, _ = percent(bound.StrVal)
	}
	product := parts * int64(of)
	if roundUp {
		product += 99
	}
	return int32(product / 100)
}

// percent reads "25%": false where it is none from 0% to 100%.
func percent(text string) (int64, bool) {
	number, ok := strings.CutSuffix(text, "%")
	if !ok || !digits(number) {
		return 0, false
	}
	value, err := strconv.ParseInt(number, 10, 32)
	return value, err == nil && value <= 100
}
