// Package proxy is the network between the processes of a chaos run: what passes it can be cut,
// delayed and lost, each direction between two parties for itself. It knows TCP streams and
// gossip's datagrams, and nothing of what they mean but who dials.
package proxy

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Rule is what happens to bytes on their way from one party to another.
type Rule struct {
	Cut   bool          // nothing arrives until the rule changes; streams keep what was sent
	Delay time.Duration // each read of a stream, and each datagram, is this late, and up to as much more
	Loss  float64       // of datagrams; of a stream's reads it is the chance to come one retransmission later
}

// retransmitAfter is TCP's least wait before it sends again; it doubles with each loss of the same segment.
const retransmitAfter = 200 * time.Millisecond

// lossesToReset: a stream that loses so often in a row is as good as dead.
const lossesToReset = 4

var errLost = errors.New("lost too often")

// Link is one direction between two parties. Methods may be called on any goroutine.
type Link struct {
	mu      sync.Mutex
	rule    Rule
	changed chan struct{} // closed when the rule changes

	held, late, lost atomic.Int64
}

// Set the rule from now on.
func (l *Link) Set(r Rule) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rule = r
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Link) now() (Rule, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rule, l.changed
}

// pass returns when what was just read may be written; an error ends the stream.
func (l *Link) pass(ctx context.Context) error {
	rule, _ := l.now()
	if wait := l.lateness(rule); wait > 0 {
		l.late.Add(1)
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
	for losses := 0; rand.Float64() < rule.Loss; losses++ {
		l.lost.Add(1)
		if losses == lossesToReset {
			return errLost
		}
		if err := pause(ctx, retransmitAfter<<losses); err != nil {
			return err
		}
		rule, _ = l.now()
	}
	return l.open(ctx)
}

func (l *Link) lateness(rule Rule) time.Duration {
	if rule.Delay == 0 {
		return 0
	}
	return rule.Delay + rand.N(rule.Delay)
}

// open returns once the link is not cut.
func (l *Link) open(ctx context.Context) error {
	for first := true; ; first = false {
		rule, changed := l.now()
		if !rule.Cut {
			return nil
		}
		if first {
			l.held.Add(1)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
