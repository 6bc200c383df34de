package fsm

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bourse-dev/bourse/allocation"
)

// bench is a state under test: one account with facts, and commands applied one by one.
type bench struct {
	t     testing.TB
	state *State
	now   Millis
	epoch uint64
	seq   uint64
}

const paris = "clusteradvertisements/paris-adv"

func cores(n int64) allocation.Amounts {
	return allocation.NewAmounts(allocation.Amount{Resource: allocation.CPU, Value: n * 1000})
}

func newBench(t testing.TB, capacity allocation.Amounts) *bench {
	b := &bench{t: t, state: New(), now: 1000}
	b.must(Txn{Writes: []Write{{Key: paris, Body: []byte("{}"), Terms: &Terms{}}}})
	b.facts(AccountFacts{Allocatable: capacity})
	return b
}

func (b *bench) entry(e *Entry) Outcome {
	b.t.Helper()
	e.Time = max(e.Time, b.now)
	data, err := EncodeEntry(e)
	require.NoError(b.t, err)
	out, err := b.state.Apply(data)
	require.NoError(b.t, err)
	require.Equal(b.t, out.State.FullHash(), out.State.Hash())
	require.NoError(b.t, out.State.verify())
	b.state = out.State
	return out
}

func (b *bench) txn(t Txn) Result {
	b.t.Helper()
	return b.entry(&Entry{Txns: []Txn{t}}).Results[0]
}

func (b *bench) must(t Txn) Result {
	b.t.Helper()
	r := b.txn(t)
	require.Nil(b.t, r.Refusal)
	return r
}

func (b *bench) refused(kind RefusalKind, t Txn) *Refusal {
	b.t.Helper()
	before := b.state
	r := b.txn(t)
	require.NotNil(b.t, r.Refusal)
	require.Equal(b.t, kind, r.Refusal.Kind, "%s", r.Refusal)
	require.Equal(b.t, before.sum, b.state.sum, "a refusal leaves no trace")
	require.Equal(b.t, before.Revision(), b.state.Revision())
	return r.Refusal
}

func (b *bench) report(r Report) Result {
	b.t.Helper()
	return b.entry(&Entry{Reports: []Report{r}}).Results[0]
}

func (b *bench) facts(f AccountFacts, use ...HoldUse) Result {
	b.t.Helper()
	if b.epoch == 0 {
		b.epoch = b.report(Report{Account: paris, Session: [16]byte{1}, Open: true}).Epoch
	}
	b.seq++
	r := b.report(Report{Account: paris, Session: [16]byte{1}, Epoch: b.epoch, Sequence: b.seq, Facts: f, Use: use})
	require.Nil(b.t, r.Refusal)
	return r
}

func grant(name string, amounts allocation.Amounts) Txn {
	key := "reservations/rome/" + name
	return Txn{
		Guards: []Guard{GuardAbsent(key)},
		Writes: []Write{{Key: key, Body: []byte(name), SpecChanged: true, Ledger: &Ledger{Phase: 2, ExpiresAt: 5000}}},
		Moves:  []Move{{Op: MoveHold, Account: paris, Holder: key, Amounts: amounts}},
	}
}

func (b *bench) account() *Account { return b.state.Row(paris).Account }

func (b *bench) row(name string) *Row { return b.state.Row("reservations/rome/" + name) }

func TestAGrantWritesHolderAndAccountOnceEach(t *testing.T) {
	t.Parallel()
	b := newBench(t, cores(8))
	before := b.state.Revision()
	out := b.entry(&Entry{Txns: []Txn{grant("a", cores(3))}})
	require.Len(t, out.Changes, 2)
	require.Equal(t, before+2, b.state.Revision())
	row := b.row("a")
	require.Equal(t, before+1, row.Revision())
	require.Equal(t, before+1, row.Ledger.Fence)
	require.Equal(t, []Held{{Account: paris, Amounts: cores(3), Fence: before + 1}}, row.Ledger.Holds)
	require.Equal(t, before+2, b.state.Row(paris).LedgerRev)
	require.Equal(t, cores(3), b.account().Held)
	require.Equal(t, int64(5000), b.account().Available(allocation.CPU))
	hold, ok := b.account().Hold(row.Key)
	require.True(t, ok)
	require.Equal(t, row.Ledger.Fence, hold.Fence)
}

func TestEveryRefusalNamesItsRule(t *testing.T) {
	t.Parallel()
	b := newBench(t, cores(8))
	b.must(grant("a", cores(3)))
	a := "reservations/rome/a"
	accountRev := b.state.Row(paris).Revision()

	capacity := b.refused(RefusedCapacity, grant("b", cores(6)))
	require.Equal(t, Refusal{Kind: RefusedCapacity, Key: paris, Revision: accountRev, Lack: allocation.Lack{Resource: "cpu", Requested: 6000, Available: 5000}}, *capacity)
	require.Contains(t, capacity.String(), "cpu 6000 requested, 5000 available")
	require.Equal(t, b.row("a").Revision(), b.refused(RefusedExists, grant("a", cores(1))).Revision)
	b.refused(RefusedHeld, Txn{Moves: []Move{{Op: MoveHold, Account: paris, Holder: a, Amounts: cores(1)}}})
	b.refused(RefusedMissing, Txn{Moves: []Move{{Op: MoveHold, Account: "clusteradvertisements/x-adv", Holder: a, Amounts: cores(1)}}})
	b.refused(RefusedMissing, Txn{Moves: []Move{{Op: MoveHold, Account: paris, Holder: "reservations/rome/x", Amounts: cores(1)}}})
	b.refused(RefusedMissing, Txn{Moves: []Move{{Op: MoveRelease, Account: paris, Holder: "reservations/rome/x"}}})
	b.refused(RefusedMissing, Txn{Guards: []Guard{{Key: "reservations/rome/x", Part: PartBody, Revision: 3}}})
	b.refused(RefusedMissing, Txn{Writes: []Write{{Key: "reservations/rome/x", Delete: true}}})
	b.refused(RefusedInUse, Txn{Writes: []Write{{Key: paris, Delete: true}}})
	stale := b.refused(RefusedGuard, Txn{Guards: []Guard{{Key: a, Part: PartBody, Revision: 1}}})
	require.Equal(t, b.row("a").BodyRev, stale.Revision)
	b.must(Txn{Writes: []Write{{Key: a, Ledger: &Ledger{Ended: true}}}})
	b.refused(RefusedGuard, Txn{Moves: []Move{{Op: MoveHold, Account: paris, Holder: a, Amounts: cores(1)}}})
	b.must(Txn{Writes: []Write{{Key: paris, Terms: &Terms{Closed: true}}}})
	require.True(t, b.state.Row(paris).Closed())
	b.refused(RefusedClosed, grant("b", cores(1)))
	b.must(Txn{Writes: []Write{{Key: paris, Terms: &Terms{}, Ledger: &Ledger{Closed: true}}}})
	b.refused(RefusedClosed, grant("b", cores(1)))
}

func TestMalformedCommandsNameTheirPart(t *testing.T) {
	t.Parallel()
	b := newBench(t, cores(8))
	b.must(grant("a", cores(3)))
	a := "reservations/rome/a"
	for fault, txn := range map[string]Txn{
		"writes[0].key":            {Writes: []Write{{Body: []byte("x")}}},
		"writes[0].body":           {Writes: []Write{{Key: a}}},
		"writes[0].delete":         {Writes: []Write{{Key: a, Delete: true, Body: []byte("x")}}},
		"writes[1].delete":         {Writes: []Write{{Key: a, Delete: true}, {Key: a, Body: []byte("x")}}},
		"writes[0].specChanged":    {Writes: []Write{{Key: a, SpecChanged: true, Facts: []byte("x")}}},
		"writes[0].terms.keepBack": {Writes: []Write{{Key: a, Terms: &Terms{KeepBack: allocation.Amounts{{Resource: "cpu"}}}}}},
		"moves[0].op":              {Moves: []Move{{Account: paris, Holder: a}}},
		"moves[0].account":         {Moves: []Move{{Op: MoveRelease, Holder: a}}},
		"moves[0].holder":          {Moves: []Move{{Op: MoveRelease, Account: paris, Holder: paris}}},
		"moves[0].to":              {Moves: []Move{{Op: MoveTransfer, Account: paris, Holder: a, To: a}}},
		"moves[0].amounts":         {Moves: []Move{{Op: MoveHold, Account: paris, Holder: a}}},
		"moves[0].priority":        {Moves: []Move{{Op: MoveRelease, Account: paris, Holder: a, Priority: 1}}},
		"id.seen":                  {ID: RequestID{Seen: math.MaxUint64}, Writes: []Write{{Key: a, Body: []byte("x")}}},
	} {
		require.Equal(t, fault, b.refused(RefusedInvalid, txn).Key)
	}
	require.Zero(t, b.state.Results())
}

func TestARowThatEndsOrGoesReleasesWhatItHolds(t *testing.T) {
	t.Parallel()
	b := newBench(t, cores(8))
	b.must(grant("a", cores(3)))
	b.must(grant("b", cores(5)))
	b.refused(RefusedCapacity, grant("c", cores(1)))
	fence := b.row("a").Ledger.Fence
	b.must(Txn{Writes: []Write{{Key: "reservations/rome/a", Ledger: &Ledger{Phase: 3, Ended: true}}}})
	require.Empty(t, b.row("a").Ledger.Holds)
	require.Equal(t, fence, b.row("a").Ledger.Fence, "the record of the grant stays")
	require.Equal(t, cores(5), b.account().Held)
	b.must(Txn{Writes: []Write{{Key: "reservations/rome/b", Delete: true}}})
	require.Nil(t, b.row("b"))
	require.Nil(t, b.account().Held)
	require.Zero(t, b.account().HoldCount())
	b.must(grant("c", cores(8)))
}

func TestOneTxnMakesRoomAndTakesIt(t *testing.T) {
	t.Parallel()
	b := newBench(t, cores(8))
	b.must(grant("victim", cores(6)))
	preempt := grant("urgent", cores(8))
	preempt.Writes = append(preempt.Writes, Write{Key: "reservations/rome/victim", Ledger: &Ledger{Ended: true}})
	b.must(preempt)
	require.Equal(t, cores(8), b.account().Held)
	// And all or nothing: the victim keeps its hold where the other doesn't fit.
	preempt = grant("greedy", cores(9))
	preempt.Writes = append(preempt.Writes, Write{Key: "reservations/rome/urgent", Ledger: &Ledger{Ended: true}})
	b.refused(RefusedCapacity, preempt)
	require.Len(t, b.row("urgent").Ledger.Holds, 1)
}

func TestATransferOutlivesItsFirstHolder(t *testing.T) {
	t.Parallel()
	b := newBench(t, cores(8))
	b.must(grant("old", cores(8)))
	old, next := "reservations/rome/old", "reservations/rome/new"
	b.must(Txn{
		Writes: []Write{{Key: old, Delete: true}, {Key: next, Body: []byte("new")}},
		Moves:  []Move{{Op: MoveTransfer, Account: paris, Holder: old, To: next}},
	})
	require.Nil(t, b.row("old"))
	require.Equal(t, cores(8), b.account().Held)
	require.Equal(t, b.row("new").Revision(), b.row("new").Ledger.Fence)
	hold, ok := b.account().Hold(next)
	require.True(t, ok)
	require.Equal(t, b.row("new").Revision(), hold.Fence)
}

func TestAHoldIsResizedWithThePodsInside(t *testing.T) {
	t.Parallel()
	b := newBench(t, cores(10))
	b.must(grant("a", cores(4)))
	a := b.row("a")
	resize := func(n int64) Txn {
		return Txn{Moves: []Move{{Op: MoveResize, Account: paris, Holder: a.Key, Amounts: cores(n), Priority: 7}}}
	}
	b.refused(RefusedInvalid, resize(5)) // not every voter knows it yet
	b.entry(&Entry{Behaviour: ResizeBehaviour})
	b.facts(AccountFacts{Allocatable: cores(10), Allocated: cores(6)}, HoldUse{Holder: a.Key, Fence: a.Ledger.Fence, Used: cores(4)})
	b.must(resize(8))
	require.Equal(t, int64(0), b.account().Available(allocation.CPU), "2 are the cluster's own, 8 are held")
	hold, _ := b.account().Hold(a.Key)
	require.Equal(t, Hold{Holder: a.Key, Amounts: cores(8), Used: cores(4), Fence: a.Ledger.Fence, Priority: 7}, hold)
	require.Equal(t, a.Ledger.Fence, b.row("a").Ledger.Fence)
	require.Equal(t, []Held{{Account: paris, Amounts: cores(8), Fence: a.Ledger.Fence}}, b.row("a").Ledger.Holds)
	b.refused(RefusedCapacity, resize(9))

	b.must(Txn{Writes: []Write{{Key: paris, Terms: &Terms{Closed: true}}}})
	b.must(resize(2)) // less is granted on a closed account too
	require.Equal(t, int64(4000), b.account().Available(allocation.CPU), "four pods still run inside")
	b.must(resize(4)) // and what the pods inside take already
	b.refused(RefusedClosed, resize(5))
	b.must(Txn{Moves: []Move{{Op: MoveRelease, Account: paris, Holder: a.Key}}})
	require.Equal(t, RefusedMissing, b.refused(RefusedMissing, resize(1)).Kind)
}

func TestTwoHostileProposersCannotDoubleBook(t *testing.T) {
	t.Parallel()
	d := dice{42}
	granted, refused := 0, 0
	for round := range 50 {
		b := newBench(t, cores(20))
		// Each plans on the empty account it saw first, and never looks again.
		var plans [2][]Txn
		for p := range plans {
			for i := range 30 {
				plans[p] = append(plans[p], grant(fmt.Sprintf("p%d-%d", p, i), cores(int64(1+d.n(6)))))
			}
		}
		for len(plans[0])+len(plans[1]) > 0 {
			p := d.n(2)
			n := min(len(plans[p]), 1+d.n(5))
			if n == 0 {
				continue
			}
			for _, r := range b.entry(&Entry{Txns: plans[p][:n]}).Results {
				if r.Refusal == nil {
					granted++
				} else {
					require.Equal(t, RefusedCapacity, r.Refusal.Kind)
					refused++
				}
			}
			plans[p] = plans[p][n:]
			require.LessOrEqual(t, b.account().Held.Get(allocation.CPU), int64(20000), "round %d", round)
		}
		require.Greater(t, b.account().Held.Get(allocation.CPU), int64(14000))
	}
	require.Greater(t, granted, 200)
	require.Greater(t, refused, 1000)
}

func TestALateExpiryCannotEndAnExtendedLease(t *testing.T) {
	t.Parallel()
	b := newBench(t, cores(8))
	b.must(grant("a", cores(3)))
	seen := b.row("a")
	expire := Txn{Guards: []Guard{GuardLease(seen)}, Writes: []Write{{Key: seen.Key, Ledger: &Ledger{Phase: 3, Ended: true}}}}
	b.now = 4999
	b.refused(RefusedGuard, expire)
	longer := *seen.Ledger
	longer.ExpiresAt = 9000
	b.must(Txn{Guards: []Guard{GuardLedger(seen)}, Writes: []Write{{Key: seen.Key, Body: []byte("longer"), SpecChanged: true, Ledger: &longer}}})
	b.now = 8000
	b.refused(RefusedGuard, expire)
	require.Len(t, b.row("a").Ledger.Holds, 1)

	// Nor one that was granted anew, though it ends at the same time.
	b.must(Txn{Moves: []Move{{Op: MoveRelease, Account: paris, Holder: seen.Key}}})
	b.must(Txn{Moves: []Move{{Op: MoveHold, Account: paris, Holder: seen.Key, Amounts: cores(1)}}})
	b.now = 9000
	b.refused(RefusedGuard, Txn{Guards: []Guard{{Key: seen.Key, Part: PartLease, Revision: seen.Ledger.Fence, ExpiresAt: 9000}}})
	expire.Guards[0] = GuardLease(b.row("a"))
	b.must(expire)
	require.Nil(t, b.account().Held)

	// A row without a lease never expires.
	b.must(Txn{Writes: []Write{{Key: "reservations/rome/forever", Ledger: &Ledger{}}}})
	b.refused(RefusedGuard, Txn{Guards: []Guard{GuardLease(b.row("forever"))}})
}

func TestAShrinkingAdvertisementLeavesHoldsAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t, cores(8))
	b.must(grant("a", cores(6)))
	b.facts(AccountFacts{Allocatable: cores(2)})
	require.Equal(t, int64(0), b.account().Available(allocation.CPU))
	require.Equal(t, int64(4000), b.account().Short(allocation.CPU))
	require.Equal(t, cores(6), b.account().Held)
	b.refused(RefusedCapacity, grant("b", cores(1)))
	b.facts(AccountFacts{})
	require.Equal(t, cores(6), b.account().Held)
	b.must(Txn{Writes: []Write{{Key: "reservations/rome/a", Delete: true}}})
	b.facts(AccountFacts{Allocatable: cores(2)})
	b.must(grant("b", cores(2)))
}

func TestUseMovesPodsFromOwnIntoTheirHold(t *testing.T) {
	t.Parallel()
	b := newBench(t, cores(10))
	b.must(grant("a", cores(4)))
	a := b.row("a")
	use := func(fence Revision, n int64) HoldUse { return HoldUse{Holder: a.Key, Fence: fence, Used: cores(n)} }
	facts := AccountFacts{Allocatable: cores(10), Allocated: cores(3)}
	b.facts(facts, use(a.Ledger.Fence, 3))
	require.Equal(t, int64(6000), b.account().Available(allocation.CPU), "3 of the 4 held are in use")
	facts.Allocated = cores(7)
	b.facts(facts, use(a.Ledger.Fence, 7))
	require.Equal(t, int64(3000), b.account().Available(allocation.CPU), "use beyond the hold counts")
	b.facts(facts, use(a.Ledger.Fence-1, 7))
	require.Nil(t, b.account().Used, "use of an older hold is dropped")
	revision := b.state.Revision()
	require.Equal(t, revision, b.facts(facts).Revision, "the same facts write nothing")
	require.Equal(t, revision, b.state.Revision())
	require.Equal(t, b.now, b.state.Row(paris).Ledger.SeenAt)
}

func TestTheNewestSessionSpeaks(t *testing.T) {
	t.Parallel()
	b := newBench(t, cores(10))
	one, two := [16]byte{1}, [16]byte{2}
	report := func(session [16]byte, epoch, sequence uint64, n int64) Result {
		return b.report(Report{Account: paris, Session: session, Epoch: epoch, Sequence: sequence, Facts: AccountFacts{Allocatable: cores(n)}})
	}
	revision := b.state.Revision()
	require.Equal(t, uint64(1), b.report(Report{Account: paris, Session: one, Open: true}).Epoch, "opening again is the same session")
	require.Equal(t, revision, b.state.Revision())
	require.Equal(t, uint64(2), b.report(Report{Account: paris, Session: two, Open: true}).Epoch)
	require.Equal(t, cores(10), b.account().Allocatable, "opening keeps the facts")
	require.Nil(t, report(two, 2, 5, 6).Refusal)

	old := report(one, 1, 100, 4)
	require.Equal(t, RefusedEpoch, old.Refusal.Kind)
	require.Equal(t, uint64(2), old.Epoch)
	require.Equal(t, RefusedSession, report(two, 3, 1, 4).Refusal.Kind)
	require.Equal(t, RefusedSession, report(one, 2, 9, 4).Refusal.Kind, "the same number in another history")
	require.Equal(t, RefusedLate, report(two, 2, 5, 4).Refusal.Kind)
	require.Equal(t, RefusedInvalid, report([16]byte{}, 2, 6, 4).Refusal.Kind)
	require.Equal(t, RefusedMissing, b.report(Report{Account: "clusteradvertisements/x-adv", Session: one}).Refusal.Kind)
	require.Equal(t, cores(6), b.account().Allocatable)
}

func TestPartsHaveRevisionsOfTheirOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t, cores(10))
	key := "reservations/rome/a"
	first := b.must(Txn{Writes: []Write{{Key: key, Body: []byte("1")}}}).Revision
	second := b.must(Txn{Writes: []Write{{Key: key, Body: []byte("2")}}}).Revision
	third := b.must(Txn{Writes: []Write{{Key: key, Facts: []byte("f")}}}).Revision
	fourth := b.must(Txn{Writes: []Write{{Key: key, Ledger: &Ledger{Phase: 1}}}}).Revision
	row := b.state.Row(key)
	require.Equal(t, []Revision{first, first, second, third, fourth, fourth},
		[]Revision{row.Created, row.SpecRev, row.BodyRev, row.FactsRev, row.LedgerRev, row.Revision()})
	b.must(Txn{Guards: []Guard{GuardRow(row), GuardBody(row), GuardSpec(row), GuardFacts(row), GuardLedger(row)}})
	fifth := b.must(Txn{Writes: []Write{{Key: key, Body: []byte("3"), SpecChanged: true}}}).Revision
	require.Equal(t, fifth, b.refused(RefusedGuard, Txn{Guards: []Guard{GuardSpec(row)}}).Revision)
	require.False(t, b.state.GuardsHold([]Guard{GuardLedger(row), GuardSpec(row)}), "a planner must see what Apply will say")
	require.True(t, b.state.GuardsHold([]Guard{GuardLedger(row), GuardFacts(row), GuardAbsent("reservations/rome/b")}))
	b.must(Txn{Guards: []Guard{GuardLedger(row), GuardFacts(row)}})
	unchanged := b.must(Txn{Writes: []Write{{Key: key, IfAbsent: true, Body: []byte("4")}}}).Revision
	require.Equal(t, fifth, unchanged)
	require.Equal(t, "3", string(b.state.Row(key).Body))
}

func TestTimeNeverGoesBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.entry(&Entry{Time: 7000})
	data, err := EncodeEntry(&Entry{Time: 6000})
	require.NoError(t, err)
	out, err := b.state.Apply(data)
	require.NoError(t, err)
	require.Equal(t, Millis(7000), out.State.Time())
}

func TestAnOldStateIsNotDisturbedByLaterOnes(t *testing.T) {
	t.Parallel()
	b := newBench(t, cores(100))
	b.must(grant("a", cores(1)))
	old, hash := b.state, b.state.Hash()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 200 {
			if old.FullHash() != hash || old.Row(paris).Account.HoldCount() != 1 {
				panic("an immutable state has changed")
			}
		}
	}()
	for i := range 50 {
		b.must(grant(fmt.Sprint("more", i), cores(1)))
		b.must(Txn{ID: RequestID{Seen: 1, Random: uint64(i)}, Writes: []Write{{Key: "reservations/rome/a", Body: []byte{byte(i)}}}})
	}
	<-done
	require.Equal(t, hash, old.FullHash())
}

func TestABrokenSumPanicsWithTheRevision(t *testing.T) {
	t.Parallel()
	b := newBench(t, cores(8))
	b.must(grant("a", cores(3)))
	broken := b.state.Row(paris).edit()
	account := *broken.Account
	account.Held = cores(2)
	broken.Account = &account
	b.state.rows, _, _ = b.state.rows.Insert([]byte(paris), broken)
	data, err := EncodeEntry(&Entry{Txns: []Txn{grant("b", cores(1))}})
	require.NoError(t, err)
	defer func() {
		broken, ok := recover().(*InvariantError)
		require.True(t, ok)
		require.Equal(t, paris, broken.Key)
		require.Equal(t, b.state.Revision()+2, broken.Revision)
		require.Contains(t, broken.Error(), "held is not the sum")
	}()
	_, _ = b.state.Apply(data)
	t.Fatal("Apply went on with a broken account")
}

func TestALongAccountIsAddedUpAtSomeOfItsChanges(t *testing.T) {
	t.Parallel()
	row := &Row{Key: "long", Account: &Account{}}
	for i := range 10 * addUpHolds {
		row.Account.take(&Hold{Holder: fmt.Sprint(i), Amounts: allocation.Amounts{{Resource: "cpu", Value: 1}}})
	}
	for _, stride := range []Revision{1, 2, 11} {
		due := 0
		for i := range Revision(1100) {
			row.LedgerRev = i * stride
			if dueToAddUp(row) {
				due++
			}
		}
		require.InDelta(t, 100, due, 60, "changes at every %d. revision", stride)
	}
}
