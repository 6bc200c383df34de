package cluster

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// memoryLog is Log for one node in memory: what is proposed is applied at once.
type memoryLog struct {
	db       *store.DB
	leaderCh chan bool

	mu        sync.Mutex
	leading   bool
	barrier   error
	propose   error
	handOvers chan struct{}
}

func newMemoryLog() *memoryLog {
	return &memoryLog{db: store.NewDB(fsm.New()), leaderCh: make(chan bool, 1), handOvers: make(chan struct{}, 64)}
}

// lead keeps only the newest value in the channel, as Raft does.
func (l *memoryLog) lead(leads bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leading = leads
	select {
	case <-l.leaderCh:
	default:
	}
	l.leaderCh <- leads
}

func (l *memoryLog) fail(barrier, propose error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.barrier, l.propose = barrier, propose
}

func (l *memoryLog) Propose(entries [][]byte) []Proposed {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]Proposed, len(entries))
	for i, e := range entries {
		switch {
		case l.propose != nil:
			out[i].Err = l.propose
		case !l.leading:
			out[i].Err = ErrNotLeader
		default:
			out[i].Results, out[i].Err = l.db.Apply(e)
		}
	}
	return out
}

func (l *memoryLog) Barrier(time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leading {
		return ErrNotLeader
	}
	return l.barrier
}

func (l *memoryLog) HandOver() error {
	l.handOvers <- struct{}{}
	return nil
}

func (l *memoryLog) Leading() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leading
}

func (l *memoryLog) Verify() error { return nil }

func (l *memoryLog) Term() uint64 { return 1 }

func (l *memoryLog) LeaderCh() <-chan bool { return l.leaderCh }

// lonely runs an owner on a memoryLog.
type lonely struct {
	log    *memoryLog
	gate   atomic.Pointer[Leadership]
	opens  chan *Leadership
	terms  atomic.Int32 // under way now
	cancel context.CancelFunc
	done   chan error
}

func startLonely(t *testing.T, c clock.Clock, rooms ...Room) *lonely {
	t.Helper()
	l := &lonely{log: newMemoryLog(), opens: make(chan *Leadership, 4096), done: make(chan error, 1)}
	cfg := termConfig{
		LeadershipConfig: LeadershipConfig{
			Log: l.log, Feed: l.log.db, Rooms: rooms, Clock: c, TakeOverTimeout: time.Second, Gate: &l.gate,
		},
		clock: c, tickInterval: 10 * time.Second,
	}
	o := &owner{log: l.log, clock: c, logger: hclog.NewNullLogger(), run: func(ctx context.Context, opened func()) error {
		if l.terms.Add(1) != 1 {
			panic("two terms at a time")
		}
		defer l.terms.Add(-1)
		cfg := cfg
		cfg.opened = func(term *Leadership) { opened(); l.opens <- term }
		return runTerm(ctx, &cfg)
	}}
	var ctx context.Context
	ctx, l.cancel = context.WithCancel(context.Background())
	go func() { l.done <- o.loop(ctx) }()
	t.Cleanup(l.stop)
	return l
}

func (l *lonely) stop() {
	if l.cancel != nil {
		l.cancel()
		<-l.done
		l.cancel = nil
	}
}

func (l *lonely) opened(t *testing.T) *Leadership {
	t.Helper()
	select {
	case term := <-l.opens:
		return term
	case <-time.After(patience):
		t.Fatal("the gate did not open")
		return nil
	}
}

func (l *lonely) write(t *testing.T, key string) Reply {
	t.Helper()
	term := l.gate.Load()
	if term == nil {
		return Reply{Err: ErrNotLeader}
	}
	intent := NewIntent(&fsm.Txn{Writes: []fsm.Write{{Key: key, Body: []byte("x")}}}, nil)
	if err := term.Submit(intent); err != nil {
		return Reply{Err: err}
	}
	select {
	case r := <-intent.Replied():
		return r
	case <-time.After(patience):
		t.Fatal("an intent was never answered")
		return Reply{}
	}
}

func TestLeadershipStartsAndStopsAThousandTimesAndLeavesNothing(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	l := startLonely(t, clock.RealClock{}, &echoRoom{})
	done := 0
	for i := range 1000 {
		l.log.lead(true)
		l.opened(t)
		if r := l.write(t, "things/a"); r.Err == nil {
			done++
		}
		if i%2 == 0 {
			l.log.lead(false)
		} // else true after true: lost and regained
	}
	l.stop()
	require.Zero(t, l.terms.Load())
	require.Nil(t, l.gate.Load())
	require.Greater(t, done, 500, "most terms should have written")
	goleak.VerifyNone(t, leaks)
}

func TestTakingOverThatFailsHandsLeadershipOverAndBacksOff(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*memoryLog){
		"barrier":     func(l *memoryLog) { l.fail(errTest, nil) },
		"first entry": func(l *memoryLog) { l.fail(nil, unknownOutcome(errTest)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := clocktesting.NewFakeClock(time.UnixMilli(1_000_000))
			l := startLonely(t, fake)
			fail(l.log)
			l.log.lead(true)
			receive(t, l.log.handOvers)
			require.Nil(t, l.gate.Load())

			// Nobody took it, and the fault is gone: after the pause it tries again by itself.
			l.log.fail(nil, nil)
			require.Eventually(t, fake.HasWaiters, patience, time.Millisecond)
			require.Empty(t, l.opens, "it must back off")
			fake.Step(firstTakeOverPause)
			l.opened(t)
		})
	}
}

func TestARoomThatPanicsEndsTheTermAndHandsLeadershipOver(t *testing.T) {
	t.Parallel()
	room := &echoRoom{}
	room.panicOn.Store(true)
	l := startLonely(t, clock.RealClock{}, room)
	l.log.lead(true)
	l.opened(t)
	r := l.write(t, "echo/a")
	require.ErrorIs(t, r.Err, ErrNotProposed)
	receive(t, l.log.handOvers)
}

func TestStateTimeCountsTimeWithoutALeaderAndNeverGoesBack(t *testing.T) {
	t.Parallel()
	fake := clocktesting.NewFakeClock(time.UnixMilli(5_000_000))
	l := startLonely(t, fake)
	l.log.lead(true)
	l.opened(t)
	require.Equal(t, fsm.Millis(5_000_000), l.log.db.State().Time())

	require.Eventually(t, fake.HasWaiters, patience, time.Millisecond)
	fake.Step(10 * time.Second) // the tick
	require.Eventually(t, func() bool { return l.log.db.State().Time() == 5_010_000 }, patience, time.Millisecond)

	l.log.lead(false)
	require.Eventually(t, func() bool { return l.gate.Load() == nil }, patience, time.Millisecond)
	fake.SetTime(time.UnixMilli(9_000_000))
	l.log.lead(true)
	l.opened(t)
	require.Equal(t, fsm.Millis(9_000_000), l.log.db.State().Time())

	l.log.lead(false)
	require.Eventually(t, func() bool { return l.gate.Load() == nil }, patience, time.Millisecond)
	fake.SetTime(time.UnixMilli(8_000_000)) // the next leader's clock is behind
	l.log.lead(true)
	term := l.opened(t)
	require.Equal(t, fsm.Millis(9_000_000), l.log.db.State().Time())
	require.Equal(t, fsm.Millis(9_000_000), term.Now())
}

func TestIntentsOfAnEndedTermAreAnswered(t *testing.T) {
	t.Parallel()
	room := &echoRoom{}
	room.silent.Store(true) // never answers
	l := startLonely(t, clock.RealClock{}, room)
	l.log.lead(true)
	term := l.opened(t)
	intent := NewIntent(&fsm.Txn{Writes: []fsm.Write{{Key: "echo/a"}}}, nil)
	require.NoError(t, term.Submit(intent))
	l.log.lead(false)
	r := receive(t, intent.Replied())
	require.ErrorIs(t, r.Err, ErrNotProposed)
	require.Eventually(t, func() bool { return l.gate.Load() == nil }, patience, time.Millisecond)
	require.ErrorIs(t, term.Submit(intent), ErrNotLeader)
}

func receive[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// echoRoom takes intents on echo/ keys, writes them and beside each a row of its own.
type echoRoom struct {
	panicOn atomic.Bool
	silent  atomic.Bool
}

func (r *echoRoom) Name() string { return "echo" }

func (r *echoRoom) Takes(i *Intent) bool {
	return i.Txn != nil && len(i.Txn.Writes) > 0 && len(i.Txn.Writes[0].Key) > 5 && i.Txn.Writes[0].Key[:5] == "echo/"
}

func (r *echoRoom) Begin(*fsm.State, fsm.Millis) Term { return r }

func (r *echoRoom) Step(in Input) Output {
	if len(in.Intents) > 0 && r.panicOn.Load() {
		panic(errors.New("as the test wants it"))
	}
	var out Output
	if r.silent.Load() {
		return out
	}
	for _, s := range in.Settled {
		if s.Item.Intent != nil && s.Err == nil {
			out.Answers = append(out.Answers, Answer{Intent: s.Item.Intent, Result: s.Result})
		}
	}
	for _, i := range in.Intents {
		out.Propose = append(out.Propose, Item{Txn: i.Txn, Intent: i}, Item{Txn: &fsm.Txn{
			Writes: []fsm.Write{{Key: "own/" + i.Txn.Writes[0].Key, Body: []byte("own")}},
		}})
	}
	return out
}
