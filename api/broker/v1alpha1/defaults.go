package v1alpha1

import "time"

// Defaults are never written into an object: a GitOps tool compares what it applied with what
// is stored, and would differ for ever. Who needs the effective value asks for it here.

// Retention is how long the reservation is kept once Released or Failed.
func (s *ReservationSpec) Retention() time.Duration {
	if s.TTLSecondsAfterFinished == nil {
		return DefaultRetention
	}
	return time.Duration(*s.TTLSecondsAfterFinished) * time.Second
}
