package history

import (
	"fmt"
	"time"
)

// spans: what is held for a duration is held from the grant on, for all of it.
func spans(r Reservation) error {
	if r.Duration == "" {
		if r.ExpiresAt != 0 {
			return fmt.Errorf("held until deleted, and expires at %d", r.ExpiresAt)
		}
		return nil
	}
	d, err := time.ParseDuration(r.Duration)
	if err != nil {
		return err
	}
	if r.ExpiresAt-r.ReservedAt != d.Microseconds() {
		return fmt.Errorf("held for %d microseconds, not %s", r.ExpiresAt-r.ReservedAt, d)
	}
	return nil
}
