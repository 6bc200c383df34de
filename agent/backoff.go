package agent

import "time"

// backoff says how long to wait after failures.
type backoff struct {
	jitter    func() float64 // in [0, 1)
	failures  int
	notBefore time.Time
}

// failed books one more failure. The wait doubles with each up to backoffCap; half of it is chance, so that
// agents that failed together don't return together.
func (b *backoff) failed(now time.Time) {
	wait := backoffCap
	if b.failures < 16 { // beyond, the shift would overflow long after the cap is reached
		wait = min(backoffCap, backoffBase<<b.failures)
	}
	b.failures++
	b.notBefore = now.Add(wait/2 + time.Duration(b.jitter()*float64(wait/2)))
}

// calm forgets all failures.
func (b *backoff) calm() {
	b.failures, b.notBefore = 0, time.Time{}
}
