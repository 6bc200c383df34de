package history_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bourse-dev/bourse/test/chaos/history"
)

// story is a history that is told by one watcher of each kind.
type story struct {
	*history.History
	cursors [2]history.Cursor
}

func newStory(t *testing.T) *story {
	s := &story{History: history.New(1, nil)}
	for kind := range s.cursors {
		s.cursors[kind] = history.Cursor{Kind: history.Kind(kind), At: 1}
	}
	require.NoError(t, s.tell(offer(2, 4000)))
	return s
}

func (s *story) tell(row history.Row) error { return s.Saw(&s.cursors[row.Kind], row) }

// to proves both kinds up to the revision.
func (s *story) to(t *testing.T, rev uint64) {
	t.Helper()
	for kind := range s.cursors {
		require.NoError(t, s.Bookmark(&s.cursors[kind], rev))
	}
}

func offer(rev uint64, cpu int64) history.Row {
	return history.Row{Kind: history.Advertisements, Key: "c-adv", Rev: rev, Body: history.Advertisement{
		UID: "adv", Cluster: "c", Phase: "Active", Allocatable: history.Amounts{CPUMilli: cpu, MemoryBytes: 1 << 40},
	}}
}

func granted(rev uint64, key string, cpu int64) history.Row {
	return history.Row{Kind: history.Reservations, Key: key, Rev: rev, Body: history.Reservation{
		UID: "uid of " + key, Op: "op of " + key, Generation: 1, Asked: history.Amounts{CPUMilli: cpu},
		Duration: "1s", Phase: history.Reserved, Target: "c", Fence: rev, ReservedAt: 1_000_000, ExpiresAt: 2_000_000,
	}}
}

func with(row history.Row, rev uint64, change func(*history.Reservation)) history.Row {
	body := row.Body.(history.Reservation)
	change(&body)
	row.Rev, row.Body = rev, body
	return row
}

func expired(row history.Row, rev uint64, at int64) history.Row {
	return with(row, rev, func(r *history.Reservation) { r.Phase, r.Reason, r.EndedAt = history.Released, "Expired", at })
}

func gone(row history.Row, rev uint64) history.Row {
	row.Rev, row.Gone = rev, true
	return row
}

func TestATrueStoryIsBelieved(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	a := granted(3, "ns/a", 3000)
	require.NoError(t, s.Wrote(a, 2), "acknowledged before any watch tells")
	require.NoError(t, s.tell(a))
	longer := with(a, 5, func(r *history.Reservation) { r.Duration, r.ExpiresAt, r.Op, r.Generation = "2s", 3_000_000, "op2", 2 })
	require.NoError(t, s.tell(longer))
	require.NoError(t, s.tell(expired(longer, 6, 3)))
	s.to(t, 10)
	require.NoError(t, s.Read(longer, 5))
	require.NoError(t, s.Read(a, 0), "an old read of any age")
	require.NoError(t, s.Listed(history.Reservations, "ns/", 5, 5, []history.Row{longer}))
	require.NoError(t, s.tell(gone(expired(longer, 6, 3), 11)))
	require.NoError(t, s.Deleted("uid of ns/a", 9))
	require.NoError(t, s.tell(granted(12, "ns/b", 4000)), "the room is free again")
	require.NoError(t, s.tell(history.Row{
		Kind: history.Advertisements, Key: "c-adv", Rev: 13, Body: history.Advertisement{
			UID: "adv", Cluster: "c", Phase: "Active", Allocatable: history.Amounts{CPUMilli: 1}, Reserved: history.Amounts{CPUMilli: 4000},
		},
	}), "facts shrink under what is held")
	s.to(t, 14)
	require.NoError(t, s.Quiet())
	require.NoError(t, s.Balanced())
	s.Discard(12)
	require.NoError(t, s.Quiet())
	require.NoError(t, s.Balanced())
	require.NoError(t, s.tell(gone(granted(12, "ns/b", 4000), 15)))
	s.to(t, 16)
	require.Error(t, s.Balanced(), "nobody told that the account has it back")
}

func TestEachLieIsFound(t *testing.T) {
	t.Parallel()
	a := granted(3, "ns/a", 3000)
	for lie, tell := range map[string]func(*story) error{
		"capacity promised twice": func(s *story) error {
			return first(s.tell(a), s.tell(granted(4, "ns/b", 2000)), s.Bookmark(&s.cursors[history.Advertisements], 9))
		},
		"a fence that is not the grant's revision": func(s *story) error {
			return first(s.tell(with(a, 3, func(r *history.Reservation) { r.Fence = 2 })), s.Bookmark(&s.cursors[history.Advertisements], 9))
		},
		"a lease that ended early": func(s *story) error {
			return first(s.tell(a), s.tell(expired(a, 4, 0)), s.Bookmark(&s.cursors[history.Advertisements], 9))
		},
		"a lease that is shorter than asked": func(s *story) error {
			return first(s.tell(with(a, 3, func(r *history.Reservation) { r.ExpiresAt = 1_500_000 })), s.Bookmark(&s.cursors[history.Advertisements], 9))
		},
		"a grant that moved": func(s *story) error {
			return first(s.tell(a), s.tell(with(a, 4, func(r *history.Reservation) { r.Target = "d" })), s.Bookmark(&s.cursors[history.Advertisements], 9))
		},
		"an event twice": func(s *story) error { return first(s.tell(a), s.tell(a)) },
		"two watchers told differently": func(s *story) error {
			other := history.Cursor{At: 1}
			return first(s.tell(a), s.Saw(&other, with(a, 3, func(r *history.Reservation) { r.Target = "d" })))
		},
		"an event left out": func(s *story) error {
			other := history.Cursor{At: 1}
			return first(s.tell(a), s.tell(gone(a, 4)), s.Saw(&other, gone(a, 4)))
		},
		"an event left out before a bookmark": func(s *story) error {
			other := history.Cursor{At: 1}
			return first(s.tell(a), s.Bookmark(&other, 3))
		},
		"an event that comes late": func(s *story) error {
			return first(s.Bookmark(&s.cursors[history.Reservations], 7), s.Saw(&history.Cursor{At: 1}, a))
		},
		"an acknowledged write that is nowhere": func(s *story) error {
			return first(s.Wrote(a, 2), s.Bookmark(&s.cursors[history.Reservations], 9))
		},
		"an acknowledged write that is otherwise": func(s *story) error {
			return first(s.tell(a), s.Wrote(with(a, 3, func(r *history.Reservation) { r.Target = "d" }), 2))
		},
		"a write that was acknowledged in the past":  func(s *story) error { return first(s.tell(a), s.Wrote(a, 3)) },
		"an operation that was refused and happened": func(s *story) error { return first(s.Refused("op of ns/a"), s.tell(a)) },
		"an operation that happened and was refused": func(s *story) error { return first(s.tell(a), s.Refused("op of ns/a")) },
		"an operation that happened twice": func(s *story) error {
			again := with(a, 5, func(r *history.Reservation) { r.UID, r.Fence = "another", 5 })
			return first(s.tell(a), s.tell(gone(a, 4)), s.tell(again))
		},
		"a linearizable read of what was replaced": func(s *story) error {
			return first(s.tell(a), s.tell(with(a, 4, func(r *history.Reservation) { r.Op = "op2" })), s.Read(a, 4))
		},
		"a read of what never was": func(s *story) error { return first(s.tell(a), s.Read(granted(2, "ns/b", 1), 0)) },
		"a list that goes back":    func(s *story) error { return s.Listed(history.Reservations, "", 2, 3, nil) },
		"a list that lacks one":    func(s *story) error { return first(s.tell(a), s.Listed(history.Reservations, "", 3, 3, nil)) },
		"a list with one too many": func(s *story) error {
			return first(s.tell(a), s.tell(gone(a, 4)), s.Listed(history.Reservations, "", 4, 3, []history.Row{a}))
		},
		"a delete that was acknowledged twice": func(s *story) error {
			return first(s.tell(a), s.tell(gone(a, 4)), s.Deleted("uid of ns/a", 3), s.Deleted("uid of ns/a", 3))
		},
		"a delete that did nothing": func(s *story) error { return first(s.tell(a), s.Deleted("uid of ns/a", 3), s.quiet()) },
		"a delete of what was gone before": func(s *story) error {
			return first(s.tell(a), s.tell(gone(a, 4)), s.Deleted("uid of ns/a", 4), s.quiet())
		},
		"two of three": func(s *story) error {
			return s.Listed(history.Reservations, "", 5, 0, []history.Row{part(granted(3, "ns/b-1of3", 1)), part(granted(4, "ns/b-2of3", 1))})
		},
		"three of which one ends later": func(s *story) error {
			late := with(granted(5, "ns/b-3of3", 1), 5, func(r *history.Reservation) { r.Duration, r.ExpiresAt = "2s", 3_000_000 })
			return s.Listed(history.Reservations, "", 5, 0, []history.Row{part(granted(3, "ns/b-1of3", 1)), part(granted(4, "ns/b-2of3", 1)), part(late)})
		},
		"pieces that are not the request": func(s *story) error {
			return s.Listed(history.Reservations, "", 5, 0, append(pieces(3), whole(3000)))
		},
		"pieces without the whole": func(s *story) error {
			return s.Listed(history.Reservations, "", 5, 0, pieces(3))
		},
		"a whole without a piece": func(s *story) error {
			return s.Listed(history.Reservations, "", 5, 0, append(pieces(3)[:1], whole(2000)))
		},
		"a part that is made twice": func(s *story) error {
			b := part(granted(3, "ns/b-1of3", 1))
			return first(s.tell(b), s.tell(gone(b, 4)), s.tell(part(granted(5, "ns/b-1of3", 1))), s.Bookmark(&s.cursors[history.Advertisements], 9))
		},
		"an account that does not add up": func(s *story) error {
			return first(s.tell(a), s.tell(offer(5, 4000)), s.Bookmark(&s.cursors[history.Reservations], 9))
		},
	} {
		t.Run(lie, func(t *testing.T) {
			t.Parallel()
			require.ErrorIs(t, tell(newStory(t)), history.ErrViolation)
		})
	}
}

// part of an atomic batch of three.
func part(row history.Row) history.Row {
	return with(row, row.Rev, func(r *history.Reservation) { r.PartOf, r.Bound, r.Parts, r.Op = "uid of b", true, 3, "" })
}

// whole is a split reservation in two pieces of 1000 each, from pieces.
func whole(cpu int64) history.Row {
	return with(granted(2, "ns/w", cpu), 2, func(r *history.Reservation) { r.Pieces, r.Target, r.Fence = 2, "", 0 })
}

func pieces(rev uint64) (rows []history.Row) {
	for i, key := range []string{"ns/w-1", "ns/w-2"} {
		at := rev + uint64(i)
		rows = append(rows, with(granted(at, key, 1000), at, func(r *history.Reservation) { r.PartOf, r.Bound, r.Op = "uid of ns/w", true, "" }))
	}
	return rows
}

// A split reservation holds nothing itself; what it is made of does, and ends with it.
func TestAWholeInPiecesIsBelieved(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	w, both := whole(2000), pieces(4)
	w.Rev = 3
	require.NoError(t, first(s.tell(w), s.tell(both[0]), s.tell(both[1])))
	require.NoError(t, s.tell(history.Row{Kind: history.Advertisements, Key: "c-adv", Rev: 6, Body: history.Advertisement{
		UID: "adv", Cluster: "c", Phase: "Active", Allocatable: history.Amounts{CPUMilli: 4000}, Reserved: history.Amounts{CPUMilli: 2000},
	}}))
	s.to(t, 7)
	require.NoError(t, s.Listed(history.Reservations, "", 7, 0, append(both, w)))
	require.NoError(t, s.Balanced())
	require.NoError(t, first(s.tell(expired(w, 8, 3)), s.tell(expired(both[0], 9, 3))))
	require.NoError(t, s.Bookmark(&s.cursors[history.Advertisements], 9))
	require.Error(t, s.Balanced(), "a piece outlives the whole")
}

// quiet proves both kinds and asks for quiet.
func (s *story) quiet() error {
	return first(s.Bookmark(&s.cursors[0], 9), s.Bookmark(&s.cursors[1], 9), s.Quiet())
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestPorcupineJudgesWindows(t *testing.T) {
	t.Parallel()
	op := func(action history.Action, outcome history.Outcome, value string, call, end int) history.Op {
		return history.Op{Client: call, Key: "k", Action: action, Outcome: outcome, Value: value, Call: time.Duration(call), Return: time.Duration(end)}
	}
	for name, c := range map[string]struct {
		ops  []history.Op
		fits bool
	}{
		"what was written is read":            {[]history.Op{op(history.Create, history.Done, "a", 1, 2), op(history.Get, history.Done, "a", 3, 4)}, true},
		"a stale read":                        {[]history.Op{op(history.Create, history.Done, "a", 1, 2), op(history.Write, history.Done, "b", 3, 4), op(history.Get, history.Done, "a", 5, 6)}, false},
		"a lost write":                        {[]history.Op{op(history.Create, history.Done, "a", 1, 2), op(history.Get, history.Done, "", 3, 4)}, false},
		"an unknown write, read later":        {[]history.Op{op(history.Create, history.Unknown, "a", 1, 2), op(history.Get, history.Done, "", 3, 4), op(history.Get, history.Done, "a", 5, 6)}, true},
		"two creates of one name":             {[]history.Op{op(history.Create, history.Done, "a", 1, 2), op(history.Create, history.Done, "b", 3, 4)}, false},
		"exists where nothing is":             {[]history.Op{op(history.Create, history.Exists, "a", 1, 2)}, false},
		"missing where something is":          {[]history.Op{op(history.Create, history.Done, "a", 1, 2), op(history.Delete, history.Missing, "", 3, 4)}, false},
		"an unknown delete that came to pass": {[]history.Op{op(history.Create, history.Done, "a", 1, 2), op(history.Delete, history.Unknown, "", 3, 4), op(history.Create, history.Done, "b", 5, 6)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := history.NewRegisters()
			for _, o := range c.ops {
				r.Add(o)
			}
			decided, err := r.Cut()[0].Judge(time.Minute)
			require.True(t, decided)
			if c.fits {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, history.ErrViolation)
			}
		})
	}
}

func TestAWindowBeginsAsTheLastOneEnded(t *testing.T) {
	t.Parallel()
	r := history.NewRegisters()
	r.Add(history.Op{Key: "k", Action: history.Create, Value: "a", Call: 1, Return: 2})
	r.Add(history.Op{Key: "k", Action: history.Get, Value: "a", Call: 3, Return: 4})
	r.Cut()
	r.Add(history.Op{Key: "k", Action: history.Get, Value: "", Call: 5, Return: 6})
	_, err := r.Cut()[0].Judge(time.Minute)
	require.ErrorIs(t, err, history.ErrViolation)
}

func TestAnObjectIsOpenWhileAnUnknownOperationMayComeToPass(t *testing.T) {
	t.Parallel()
	r := history.NewRegisters()
	r.Add(history.Op{Key: "sure", Action: history.Create, Value: "a"})
	r.Add(history.Op{Key: "late", Action: history.Create, Outcome: history.Unknown, Value: "b"})
	r.Add(history.Op{Key: "told", Action: history.Create, Outcome: history.Unknown, Value: "c"})
	r.Add(history.Op{Key: "gone", Action: history.Delete, Outcome: history.Unknown})
	told := func(op string) bool { return op == "c" }
	require.Equal(t, map[string]bool{"late": true, "gone": true}, r.Open(told))
	r.Cut()
	require.Empty(t, r.Open(told), "a window of its own")
}
