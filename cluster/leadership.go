package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/internal/planted"
)

// Leadership is one leadership term of this node in steps:
//
//	l.TakeOver(ctx)  // catches up, then lets intents in: Submit and ReadIndex
//	l.Turn(i)        // of each room, over and over, when Ready(i) or due; Tick now and then
//	l.Close()        // lets no more in
//	l.EndRoom(i)     // of each room, after its last Turn
//
// It has no goroutine and no timer, and blocks nowhere but in its Log. The term loop runs it on
// goroutines; a simulator runs the same steps on one.
type Leadership struct {
	cfg    LeadershipConfig
	rooms  []roomTurns
	number uint64 // Raft's, as it was before the barrier

	// State time within the term: base at start, then the monotonic clock.
	base  fsm.Millis
	start time.Time
}

// LeadershipConfig is what every term of a node shares.
type LeadershipConfig struct {
	Log             Log
	Feed            Feed
	Rooms           []Room // what none of them takes is proposed as it stands
	Clock           clock.PassiveClock
	TakeOverTimeout time.Duration
	// Check, before the first entry, fails where this node must not lead (its clock). May be nil.
	Check func(ctx context.Context) error
	// Gate is where requests find the term that lets them in; nil in it: there is none.
	Gate *atomic.Pointer[Leadership]
}

// roomTurns is what one room needs for its turns.
type roomTurns struct {
	queue   *intentQueue
	stepper *Stepper
}

// NewLeadership is to be called once leadership is gained.
func NewLeadership(cfg LeadershipConfig) *Leadership {
	return &Leadership{cfg: cfg, number: cfg.Log.Term()}
}

// TakeOver catches up with earlier terms and enters the wall clock, so that time without a leader counts.
// Then it lets intents in. Where it fails nothing is left.
func (l *Leadership) TakeOver(ctx context.Context) error {
	if planted.Bug != planted.SkippedBarrier {
		if err := l.cfg.Log.Barrier(l.cfg.TakeOverTimeout); err != nil {
			return fmt.Errorf("barrier: %w", err)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if l.cfg.Check != nil {
		if err := l.cfg.Check(ctx); err != nil {
			return err
		}
	}
	l.start = l.cfg.Clock.Now()
	l.base = max(millisOf(l.start), l.cfg.Feed.State().Time())
	if planted.Bug != planted.SkippedBarrier { // it would do for a barrier
		if err := l.propose(fsm.Entry{Time: l.base}); err != nil {
			return err
		}
	}
	now := l.Now()
	for _, room := range append(slices.Clone(l.cfg.Rooms), passage{}) {
		l.rooms = append(l.rooms, roomTurns{newIntentQueue(room), NewStepper(room, l.cfg.Feed, now)})
	}
	l.cfg.Gate.Store(l)
	return nil
}

// Now is state time: it doesn't follow jumps of the wall clock within the term.
func (l *Leadership) Now() fsm.Millis {
	return l.base + fsm.Millis(l.cfg.Clock.Since(l.start).Milliseconds())
}

// Tick enters the time.
func (l *Leadership) Tick() error { return l.propose(fsm.Entry{Time: l.Now()}) }

// RaiseBehaviour enters a behaviour version that every voter supports.
func (l *Leadership) RaiseBehaviour(to uint32) error {
	return l.propose(fsm.Entry{Time: l.Now(), Behaviour: to})
}

func (l *Leadership) propose(entry fsm.Entry) error {
	data, err := fsm.EncodeEntry(&entry)
	if err != nil {
		return err
	}
	if err := l.cfg.Log.Propose([][]byte{data})[0].Err; err != nil {
		return fmt.Errorf("propose at state time %d: %w", entry.Time, err)
	}
	return nil
}

// Submit hands an intent, one of NewIntent, to the room that takes it. An error means that nothing happened.
func (l *Leadership) Submit(intent *Intent) error {
	i := slices.IndexFunc(l.rooms, func(r roomTurns) bool { return r.queue.room.Takes(intent) })
	if i < 0 {
		return fmt.Errorf("%w: no room takes this", ErrInvalid)
	}
	return l.rooms[i].queue.add(intent)
}

// ReadIndex returns a revision that contains whatever was acknowledged, or shown by any node, before the
// call. The gate must be open: the state then contains all of earlier terms.
func (l *Leadership) ReadIndex() (fsm.Revision, error) {
	if planted.Bug != planted.StaleLinearizableRead {
		if err := l.cfg.Log.Verify(); err != nil {
			return 0, fmt.Errorf("%w (%w)", ErrNotLeader, err)
		}
	}
	// Lost and regained, and the owner has not heard yet: what others wrote in between may not be applied here.
	if now := l.cfg.Log.Term(); now != l.number {
		return 0, fmt.Errorf("%w (the gate is of term %d, this is %d)", ErrNotLeader, l.number, now)
	}
	return l.cfg.Feed.State().Revision(), nil
}

// StateChanged tells every room; called after each applied entry, must not block.
func (l *Leadership) StateChanged() {
	for _, r := range l.rooms {
		r.queue.nudge()
	}
}

// Rooms is how many take turns.
func (l *Leadership) Rooms() int { return len(l.rooms) }

// Woken receives when there is something new for room i.
func (l *Leadership) Woken(i int) <-chan struct{} { return l.rooms[i].queue.wake }

// Busy says that room i wants its next turn at once.
func (l *Leadership) Busy(i int) bool { return l.rooms[i].stepper.Busy() }

// Wake is when room i wants its next turn though nothing happens; 0: only when woken.
func (l *Leadership) Wake(i int) fsm.Millis { return l.rooms[i].stepper.Wake() }

// Turn lets room i look at what is new, proposes what it wants and waits for the fate of that.
// After an error the term should end.
func (l *Leadership) Turn(i int) (err error) {
	defer recovered(&err)
	r := l.rooms[i]
	batches, err := r.stepper.Step(l.Now(), r.queue.take())
	if err != nil || len(batches) == 0 {
		return err
	}
	entries := make([][]byte, len(batches))
	for i := range batches {
		entries[i] = batches[i].Entry
	}
	return r.stepper.Settle(batches, l.cfg.Log.Propose(entries))
}

// Close lets no more intents in: first of all when the term ends.
func (l *Leadership) Close() {
	if planted.Bug != planted.GateLeftOpen {
		l.cfg.Gate.Store(nil)
	}
	for _, r := range l.rooms {
		r.queue.close()
	}
}

// EndRoom answers whatever room i has not.
func (l *Leadership) EndRoom(i int) {
	l.rooms[i].stepper.End()
	l.rooms[i].queue.end()
}
