package cluster

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// scripted is a room whose steps are functions; it remembers what it was given.
type scripted struct {
	begun int
	in    []Input
	step  func(Input) Output
}

func (s *scripted) Name() string                      { return "scripted" }
func (s *scripted) Takes(*Intent) bool                { return true }
func (s *scripted) Begin(*fsm.State, fsm.Millis) Term { s.begun++; return s }
func (s *scripted) Step(in Input) Output {
	s.in = append(s.in, in)
	if s.step == nil {
		return Output{}
	}
	return s.step(in)
}

func entryOf(t *testing.T, txns ...fsm.Txn) []byte {
	t.Helper()
	data, err := fsm.EncodeEntry(&fsm.Entry{Txns: txns})
	require.NoError(t, err)
	return data
}

func write(key string, size int) fsm.Txn {
	return fsm.Txn{Writes: []fsm.Write{{Key: key, Body: make([]byte, size)}}}
}

func applyAll(t *testing.T, db *store.DB, batches []Batch) []Proposed {
	t.Helper()
	out := make([]Proposed, len(batches))
	for i, b := range batches {
		out[i].Results, out[i].Err = db.Apply(b.Entry)
		require.NoError(t, out[i].Err)
	}
	return out
}

func TestAStepSeesEveryChangeOnceAndItsSettledInTheState(t *testing.T) {
	t.Parallel()
	db := store.NewDB(fsm.New())
	room := &scripted{}
	s := NewStepper(room, db, 5)
	_, err := db.Apply(entryOf(t, write("a/1", 1), write("a/2", 1)))
	require.NoError(t, err)
	intent := NewIntent(ptr(write("a/3", 1)), nil)
	room.step = func(in Input) Output { return Output{Propose: []Item{{Txn: intent.Txn, Intent: intent}}, Wake: 99} }
	batches, err := s.Step(7, []*Intent{intent})
	require.NoError(t, err)
	require.Len(t, room.in[0].Changes, 2)
	require.Equal(t, fsm.Millis(99), s.Wake())
	require.NoError(t, s.Settle(batches, applyAll(t, db, batches)))
	require.True(t, s.Busy())

	room.step = func(in Input) Output {
		require.Len(t, in.Settled, 1)
		require.Len(t, in.Changes, 1)
		require.NotNil(t, in.State.Row("a/3"))
		require.Equal(t, fsm.Millis(7), in.State.Time())
		return Output{Answers: []Answer{{intent, in.Settled[0].Result}}}
	}
	_, err = s.Step(8, nil)
	require.NoError(t, err)
	require.False(t, s.Busy())
	require.Nil(t, (<-intent.Replied()).Result.Refusal)
	require.Equal(t, 1, room.begun)
}

func TestEntriesAreSplitBySizeAndKindAndKeepTheirOrder(t *testing.T) {
	t.Parallel()
	db := store.NewDB(fsm.New())
	room := &scripted{step: func(in Input) Output {
		var out Output
		if len(in.Intents) == 0 {
			return out
		}
		for i := range 40 {
			out.Propose = append(out.Propose, Item{Txn: ptr(write(fmt.Sprintf("a/%02d", i), 20_000))})
		}
		out.Propose = append(out.Propose, Item{Report: &fsm.Report{Account: "b/1", Open: true}}, Item{Txn: ptr(write("a/99", 1))})
		return out
	}}
	s := NewStepper(room, db, 1)
	batches, err := s.Step(1, []*Intent{NewIntent(ptr(write("x/y", 1)), nil)})
	require.NoError(t, err)
	items := 0
	for _, b := range batches {
		require.LessOrEqual(t, len(b.Entry), MaxEntryBytes)
		items += len(b.items)
	}
	require.Equal(t, 42, items)
	require.Greater(t, len(batches), 5)
	require.NoError(t, s.Settle(batches, applyAll(t, db, batches)))
	_, err = s.Step(2, nil)
	require.NoError(t, err)
	settled := room.in[1].Settled
	require.Len(t, settled, 42)
	for i := range 40 {
		require.Equal(t, fmt.Sprintf("a/%02d", i), settled[i].Item.Txn.Writes[0].Key)
	}
	require.NotNil(t, settled[40].Item.Report)
}

func TestACommandBeyondTheLimitsIsSettledAsInvalidAndTheRestGoesOn(t *testing.T) {
	t.Parallel()
	db := store.NewDB(fsm.New())
	room := &scripted{step: func(in Input) Output {
		if len(in.Intents) == 0 {
			return Output{}
		}
		return Output{Propose: []Item{{Txn: ptr(write("a/1", fsm.MaxEntryBytes))}, {Txn: ptr(write("a/2", 1))}}}
	}}
	s := NewStepper(room, db, 1)
	batches, err := s.Step(1, []*Intent{NewIntent(ptr(write("x/y", 1)), nil)})
	require.NoError(t, err)
	require.Len(t, batches, 1)
	require.NoError(t, s.Settle(batches, applyAll(t, db, batches)))
	_, err = s.Step(2, nil)
	require.NoError(t, err)
	require.Len(t, room.in[1].Settled, 2)
	require.Equal(t, fsm.RefusedInvalid, room.in[1].Settled[0].Result.Refusal.Kind)
	require.NotNil(t, db.State().Row("a/2"))
}

func TestTheEndOfATermSaysWhatIsKnownOfEachIntent(t *testing.T) {
	t.Parallel()
	db := store.NewDB(fsm.New())
	unseen, done, lost, never := NewIntent(ptr(write("a/0", 1)), nil), NewIntent(ptr(write("a/1", 1)), nil),
		NewIntent(ptr(write("a/2", 1)), nil), NewIntent(ptr(write("a/3", 1)), nil)
	room := &scripted{step: func(in Input) Output {
		return Output{Propose: []Item{
			{Txn: done.Txn, Intent: done},
			{Report: &fsm.Report{Account: "b/1"}}, // parts the two into entries of their own
			{Txn: lost.Txn, Intent: lost},
			{Report: &fsm.Report{Account: "b/1"}},
			{Txn: never.Txn, Intent: never},
		}}
	}}
	s := NewStepper(room, db, 1)
	batches, err := s.Step(1, []*Intent{unseen, done, lost, never})
	require.NoError(t, err)
	require.Len(t, batches, 5)
	outcomes := applyAll(t, db, batches[:2])
	outcomes = append(outcomes, Proposed{Err: unknownOutcome(errTest)}, Proposed{Err: ErrNotLeader}, Proposed{Err: ErrNotLeader})
	require.ErrorIs(t, s.Settle(batches, outcomes), errTest)
	s.End()
	require.NoError(t, (<-done.Replied()).Err)
	require.ErrorIs(t, (<-lost.Replied()).Err, store.ErrUnknownOutcome)
	require.ErrorIs(t, (<-never.Replied()).Err, ErrNotProposed)
	require.ErrorIs(t, (<-unseen.Replied()).Err, ErrNotProposed)
}

// gapFeed forgets its history once.
type gapFeed struct {
	*store.DB
	gaps int
}

func (g *gapFeed) Changes(after fsm.Revision) ([]fsm.Change, error) {
	if g.gaps > 0 {
		g.gaps--
		return nil, store.ErrCompacted
	}
	return g.DB.Changes(after)
}

func TestARoomThatFellOutOfTheHistoryBeginsAnewAndLosesNoIntent(t *testing.T) {
	t.Parallel()
	feed := &gapFeed{DB: store.NewDB(fsm.New())}
	room := &scripted{}
	s := NewStepper(room, feed, 1)
	intent := NewIntent(ptr(write("a/1", 1)), nil)
	_, err := s.Step(1, []*Intent{intent}) // the room keeps it
	require.NoError(t, err)
	feed.gaps = 1
	_, err = s.Step(2, nil)
	require.NoError(t, err)
	require.Equal(t, 2, room.begun)
	require.Equal(t, []*Intent{intent}, room.in[1].Intents)
	s.End()
	require.ErrorIs(t, (<-intent.Replied()).Err, ErrNotProposed)
}

func ptr[T any](v T) *T { return &v }

// A first command of an intent was done and the second refused: nobody may be told that nothing happened.
func TestARefusalInTheMiddleOfAnIntentLeavesItsOutcomeUnknown(t *testing.T) {
	t.Parallel()
	db := store.NewDB(fsm.New())
	room := &scripted{}
	s := NewStepper(room, db, 5)
	intent := NewIntent(ptr(write("a/1", 1)), nil)
	commands := []fsm.Txn{write("a/1", 1), {Guards: []fsm.Guard{fsm.GuardAbsent("a/1")}, Writes: write("a/2", 1).Writes}}
	for i := range commands {
		room.step = func(Input) Output {
			return Output{Propose: []Item{{Txn: &commands[i], Intent: intent, Partial: i == 0}}}
		}
		var intents []*Intent
		if i == 0 {
			intents = append(intents, intent)
		}
		batches, err := s.Step(7, intents)
		require.NoError(t, err)
		require.NoError(t, s.Settle(batches, applyAll(t, db, batches)))
	}
	s.End()
	require.ErrorIs(t, (<-intent.Replied()).Err, store.ErrUnknownOutcome)
}

// What was done of an intent is not its end where the room says that there is more.
func TestATermThatEndsInTheMiddleOfAnIntentLeavesItsOutcomeUnknown(t *testing.T) {
	t.Parallel()
	for _, partial := range []bool{true, false} {
		db := store.NewDB(fsm.New())
		room := &scripted{}
		s := NewStepper(room, db, 5)
		intent := NewIntent(ptr(write("a/1", 1)), nil)
		room.step = func(Input) Output {
			return Output{Propose: []Item{{Txn: intent.Txn, Intent: intent, Partial: partial}}}
		}
		batches, err := s.Step(7, []*Intent{intent})
		require.NoError(t, err)
		require.NoError(t, s.Settle(batches, applyAll(t, db, batches)))
		s.End()
		reply := <-intent.Replied()
		if partial {
			require.ErrorIs(t, reply.Err, store.ErrUnknownOutcome)
		} else {
			require.NoError(t, reply.Err)
			require.Nil(t, reply.Result.Refusal)
		}
	}
}
