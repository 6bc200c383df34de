package advertisement

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

func TestANewAdvertisementIsStaleUntilItsAgentReports(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	in := x.create("berlin")
	x.run()
	require.Nil(t, x.answer(in).Refusal)
	require.Equal(t, "Stale", x.phase("berlin"))
	require.True(t, x.state.Row(key("berlin")).Ledger.Closed, "Apply takes no hold")

	agent := x.agent("berlin", 1).open()
	require.EqualValues(t, 1, agent.epoch)
	require.Equal(t, "Stale", x.phase("berlin"), "a session without facts offers nothing")
	x.pass(second)
	report := agent.report("4")
	x.run()
	require.Nil(t, x.answer(report).Refusal)
	require.Equal(t, "Active", x.phase("berlin"))
	require.False(t, x.state.Row(key("berlin")).Ledger.Closed)
	require.NotNil(t, x.get("berlin").Status.LastSeen)

	again := x.create("berlin")
	x.run()
	require.Equal(t, fsm.RefusedExists, x.answer(again).Refusal.Kind)
	require.Equal(t, "Active", x.phase("berlin"))
}

func TestAHeartbeatProposesNothingAndKeepsItActive(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	agent := x.active("berlin", "4")
	before, entries := x.state.Revision(), x.entries
	for range 10 {
		x.pass(30 * second)
		in := agent.report("4")
		x.run()
		require.Nil(t, x.answer(in).Refusal)
		require.Equal(t, agent.epoch, x.answer(in).Epoch)
	}
	require.Equal(t, "Active", x.phase("berlin"))
	require.Equal(t, before, x.state.Revision())
	require.Equal(t, entries, x.entries)
}

func TestSilenceMakesItStaleAndAReportActiveAgain(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	agent := x.active("berlin", "4")
	x.pass(10 * second)
	agent.report("4")
	x.run()
	heard := x.now
	x.pass(staleAfter - 1)
	require.Equal(t, "Active", x.phase("berlin"))
	x.pass(1)
	require.Equal(t, "Stale", x.phase("berlin"))
	require.Equal(t, heard, x.state.Row(key("berlin")).Ledger.SeenAt)
	require.True(t, x.state.Row(key("berlin")).Ledger.Closed)
	before := x.state.Revision()
	x.pass(100 * staleAfter)
	require.Equal(t, before, x.state.Revision(), "said once")
	agent.report("4")
	x.run()
	require.Equal(t, "Active", x.phase("berlin"), "unchanged facts wake it too")
}

func TestANewLeaderGivesAFullInterval(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	agent := x.active("berlin", "4")
	x.pass(staleAfter - second)
	x.now += 10 * staleAfter // nobody led
	x.begin()
	x.pass(staleAfter - 1)
	require.Equal(t, "Active", x.phase("berlin"))
	x.pass(1)
	require.Equal(t, "Stale", x.phase("berlin"))

	x.begin()
	x.pass(10 * staleAfter)
	require.Equal(t, "Stale", x.phase("berlin"), "a new term wakes nobody")
	agent.report("4")
	x.run()
	require.Equal(t, "Active", x.phase("berlin"))
}

func TestWithdrawing(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	agent := x.active("berlin", "4")
	x.lend("berlin", broker.Lending{Withdrawn: true})
	x.run()
	require.Equal(t, "Withdrawn", x.phase("berlin"))
	x.pass(30 * second)
	agent.report("3")
	x.run()
	require.Equal(t, "Withdrawn", x.phase("berlin"))
	x.lend("berlin", broker.Lending{})
	x.run()
	require.Equal(t, "Active", x.phase("berlin"))
	x.lend("berlin", broker.Lending{Withdrawn: true})
	x.pass(2 * staleAfter)
	x.lend("berlin", broker.Lending{})
	x.run()
	require.Equal(t, "Stale", x.phase("berlin"))
}

func TestANewerSessionWinsAndTheOlderIsToldOnce(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	older := x.active("berlin", "4")
	x.pass(second)
	newer := x.agent("berlin", 2).open()
	require.EqualValues(t, 2, newer.epoch)
	x.pass(second)
	newer.report("5")
	x.run()

	late := older.report("9")
	x.run()
	require.Equal(t, fsm.RefusedEpoch, x.answer(late).Refusal.Kind)
	require.Equal(t, newer.epoch, x.answer(late).Epoch)
	require.Equal(t, "True", x.condition("berlin", conditionDuplicate))
	require.EqualValues(t, 5000, x.state.Row(key("berlin")).Account.Allocatable.Get("cpu"))

	before := x.state.Revision()
	for range 5 {
		x.pass(10 * second)
		older.report("9")
		newer.report("5")
		x.run()
	}
	require.Equal(t, before, x.state.Revision(), "the condition is written once")
	x.begin()
	for range 4 {
		x.pass(30 * second)
		newer.report("5")
		x.run()
	}
	require.Equal(t, "False", x.condition("berlin", conditionDuplicate))
	require.Equal(t, "Active", x.phase("berlin"))
}

func TestReportsThatCanOnlyBeRefusedCostNoEntry(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	agent := x.active("berlin", "4")
	x.pass(second)
	entries := x.entries
	good := fsm.Report{Epoch: agent.epoch, Sequence: 99, Facts: fsm.AccountFacts{Allocatable: amounts("4")}}
	for name, c := range map[string]struct {
		change func(*fsm.Report)
		want   fsm.RefusalKind
	}{
		"an epoch of another history": {func(r *fsm.Report) { r.Epoch = 77 }, fsm.RefusedSession},
		"a late one":                  {func(r *fsm.Report) { r.Sequence = 1 }, fsm.RefusedLate},
		"a negative amount": {func(r *fsm.Report) {
			r.Facts.Allocated = allocation.Amounts{{Resource: "cpu", Value: -1}}
		}, fsm.RefusedInvalid},
		"use named twice":  {func(r *fsm.Report) { r.Use = []fsm.HoldUse{{Holder: "a"}, {Holder: "a"}} }, fsm.RefusedInvalid},
		"too much use":     {func(r *fsm.Report) { r.Use = make([]fsm.HoldUse, broker.MaxHoldUse+1) }, fsm.RefusedInvalid},
		"use of nobody":    {func(r *fsm.Report) { r.Use = make([]fsm.HoldUse, 1) }, fsm.RefusedInvalid},
		"too many amounts": {func(r *fsm.Report) { r.Facts.Allocated = many(broker.MaxResources + 1) }, fsm.RefusedInvalid},
	} {
		report := good
		c.change(&report)
		in := agent.send(report)
		x.run()
		require.Equal(t, c.want, x.answer(in).Refusal.Kind, name)
	}
	stranger := x.agent("tokyo", 1).send(fsm.Report{Open: true})
	x.run()
	require.Equal(t, fsm.RefusedMissing, x.answer(stranger).Refusal.Kind)
	require.Equal(t, entries, x.entries)
}

func many(n int) (a allocation.Amounts) {
	for i := range n {
		a = append(a, allocation.Amount{Resource: string([]rune{'a' + rune(i/26), 'a' + rune(i%26)}), Value: 1})
	}
	return a
}

func TestOpeningTwiceGivesTheSameEpoch(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	agent := x.active("berlin", "4")
	entries := x.entries
	require.EqualValues(t, 1, agent.open().epoch)
	require.Equal(t, entries, x.entries)
}

func TestAMadAgentIsCoalescedAndTheNewestWins(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	agent := x.active("berlin", "4")
	x.pass(second)
	entries := x.entries
	var sent []*cluster.Intent
	for i := range 1000 {
		sent = append(sent, agent.report([]string{"1", "2", "3"}[i%3]))
		x.pass(1)
	}
	last := agent.report("7")
	x.pass(second)
	require.LessOrEqual(t, x.entries-entries, 8, "4 a second")
	require.EqualValues(t, 7000, x.state.Row(key("berlin")).Account.Allocatable.Get("cpu"))
	require.Nil(t, x.answer(last).Refusal)
	for _, in := range sent {
		if r := x.answer(in).Refusal; r != nil {
			require.Equal(t, fsm.RefusedLate, r.Kind)
		}
	}
}

func TestAReportThatTakesBackAnotherEndsIt(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	agent := x.active("berlin", "4")
	x.pass(second)
	agent.report("5")
	x.run()
	waits := agent.report("6")
	back := agent.report("5")
	x.pass(second)
	require.Nil(t, x.answer(waits).Refusal)
	require.Nil(t, x.answer(back).Refusal)
	require.EqualValues(t, 5000, x.state.Row(key("berlin")).Account.Allocatable.Get("cpu"))
}

func TestTwoSessionsThatOpenAtOnceGetTwoEpochs(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.create("berlin")
	x.run()
	a := x.agent("berlin", 1).send(fsm.Report{Open: true})
	b := x.agent("berlin", 2).send(fsm.Report{Open: true})
	x.pass(second)
	require.NotEqual(t, x.answer(a).Epoch, x.answer(b).Epoch)
}

func TestUseOfHoldsIsRecordedAndShortnessShown(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	agent := x.active("berlin", "4")
	holder := broker.ReservationKey("rome", "r")
	require.Nil(t, x.apply(fsm.Entry{Time: x.now, Txns: []fsm.Txn{{
		Writes: []fsm.Write{{Key: holder, Body: []byte("{}"), Ledger: &fsm.Ledger{Phase: store.PhaseReserved}}},
		Moves:  []fsm.Move{{Op: fsm.MoveHold, Account: key("berlin"), Holder: holder, Amounts: amounts("2")}},
	}}})[0].Refusal)
	x.pass(second)
	use := fsm.HoldUse{Holder: holder, Fence: x.state.Row(holder).Ledger.Fence, Used: amounts("1")}
	agent.report("4", use)
	x.run()
	hold, _ := x.state.Row(key("berlin")).Account.Hold(holder)
	require.EqualValues(t, 1000, hold.Used.Get("cpu"))
	entries := x.entries
	x.pass(second)
	agent.report("4", use)
	x.run()
	require.Equal(t, entries, x.entries, "the same use is a heartbeat")
	x.pass(second)
	agent.report("4")
	x.run()
	hold, _ = x.state.Row(key("berlin")).Account.Hold(holder)
	require.Empty(t, hold.Used, "a report names all use")

	require.Equal(t, "absent", x.condition("berlin", conditionShort))
	x.pass(second)
	agent.report("1")
	x.run()
	require.Equal(t, "True", x.condition("berlin", conditionShort))
	require.Equal(t, "Active", x.phase("berlin"))
	x.pass(second)
	agent.report("4")
	x.run()
	require.Equal(t, "False", x.condition("berlin", conditionShort))
}

func TestADeletedAdvertisementIsForgotten(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	agent := x.active("berlin", "4")
	x.apply(fsm.Entry{Time: x.now, Txns: []fsm.Txn{{Writes: []fsm.Write{{Key: key("berlin"), Delete: true}}}}})
	in := agent.report("5")
	x.run()
	require.Equal(t, fsm.RefusedMissing, x.answer(in).Refusal.Kind)
	x.pass(10 * staleAfter)
	require.Nil(t, x.state.Row(key("berlin")))
	x.create("berlin")
	x.run()
	require.Equal(t, "Stale", x.phase("berlin"), "the new one was never heard")
}

func TestCurrencyConflict(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	ad := func(id, currency string) *broker.ClusterAdvertisement {
		a := &broker.ClusterAdvertisement{}
		a.Name, a.Spec.ClusterID = broker.AdvertisementName(id), id
		if currency != "" {
			a.Spec.Cost = map[string]string{"currency": currency, "cpu": "1"}
		}
		return a
	}
	require.Empty(t, CurrencyConflict(x.state, ad("berlin", "EUR")), "the first says which")
	txn := txnOf("berlin", broker.Lending{})
	txn.Writes[0].Body = []byte(`{"metadata":{"name":"berlin-adv"},"spec":{"clusterID":"berlin","cost":{"currency":"EUR","cpu":"1"}}}`)
	x.apply(fsm.Entry{Time: x.now, Txns: []fsm.Txn{*txn}})
	require.Empty(t, CurrencyConflict(x.state, ad("paris", "EUR")))
	require.Empty(t, CurrencyConflict(x.state, ad("paris", "")))
	require.Contains(t, CurrencyConflict(x.state, ad("paris", "USD")), `"EUR" (berlin-adv)`)
	require.Empty(t, CurrencyConflict(x.state, ad("berlin", "USD")), "its own may change while it is the only one")

	// Two nodes accepted two currencies at once: the first by name counts, and the other can be mended.
	txn = txnOf("rome", broker.Lending{})
	txn.Writes[0].Body = []byte(`{"metadata":{"name":"rome-adv"},"spec":{"clusterID":"rome","cost":{"currency":"USD","cpu":"1"}}}`)
	x.apply(fsm.Entry{Time: x.now, Txns: []fsm.Txn{*txn}})
	require.Empty(t, CurrencyConflict(x.state, ad("paris", "EUR")))
	require.Contains(t, CurrencyConflict(x.state, ad("paris", "USD")), `"EUR" (berlin-adv)`)
	require.Empty(t, CurrencyConflict(x.state, ad("rome", "EUR")))
}
