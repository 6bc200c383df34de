package advertisement

import (
	"encoding/json"
	"slices"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

const (
	second     = fsm.Millis(1000)
	staleAfter = 90 * second
)

type failer interface {
	require.TestingT
	Helper()
}

// exchange steps the room against a real state on one goroutine.
type exchange struct {
	t       failer
	room    cluster.Room
	term    cluster.Term
	state   *fsm.State
	now     fsm.Millis
	changes []fsm.Change
	seen    int
	intents []*cluster.Intent
	settled []cluster.Settled
	wake    fsm.Millis
	answers map[*cluster.Intent][]fsm.Result
	entries int // that the room proposed
	items   []cluster.Item
}

func newExchange(t failer) *exchange {
	x := &exchange{t: t, room: New(Config{}), state: fsm.New(), now: 1_700_000_000_000, answers: map[*cluster.Intent][]fsm.Result{}}
	x.begin()
	return x
}

func (x *exchange) begin() {
	x.term = x.room.Begin(x.state, x.now)
	x.seen, x.settled, x.wake = len(x.changes), nil, x.now
}

func (x *exchange) idle() bool {
	return len(x.intents) == 0 && len(x.settled) == 0 && x.seen == len(x.changes) && (x.wake == 0 || x.wake > x.now)
}

func (x *exchange) run() {
	x.t.Helper()
	for steps := 0; !x.idle(); steps++ {
		require.Less(x.t, steps, 200, "the room never comes to rest")
		x.step()
	}
}

func (x *exchange) step() {
	x.t.Helper()
	in := cluster.Input{Now: x.now, State: x.state, Changes: slices.Clone(x.changes[x.seen:]), Intents: x.intents, Settled: x.settled}
	x.seen, x.intents, x.settled = len(x.changes), nil, nil
	out := x.term.Step(in)
	for _, a := range out.Answers {
		x.answers[a.Intent] = append(x.answers[a.Intent], a.Result)
	}
	x.wake = out.Wake
	x.items = append(x.items, out.Propose...)
	for _, item := range out.Propose {
		entry := fsm.Entry{Time: x.now}
		if item.Txn != nil {
			entry.Txns = []fsm.Txn{*item.Txn}
		} else {
			entry.Reports = []fsm.Report{*item.Report}
		}
		x.entries++
		x.settled = append(x.settled, cluster.Settled{Item: item, Result: x.apply(entry)[0]})
	}
}

// pass lets time pass as the term loop would: stepping at every Wake.
func (x *exchange) pass(d fsm.Millis) {
	x.t.Helper()
	end := x.now + d
	x.run()
	for x.wake > 0 && x.wake <= end {
		x.now = max(x.now, x.wake)
		x.step()
		x.run()
	}
	x.now = end
	x.run()
}

func (x *exchange) apply(entry fsm.Entry) []fsm.Result {
	x.t.Helper()
	data, err := fsm.EncodeEntry(&entry)
	require.NoError(x.t, err)
	out, err := x.state.Apply(data)
	require.NoError(x.t, err)
	x.state = out.State
	x.changes = append(x.changes, out.Changes...)
	return out.Results
}

func key(id string) string { return broker.AdvertisementKey(id) }

func txnOf(id string, lending broker.Lending) *fsm.Txn {
	body, err := json.Marshal(map[string]any{
		"metadata": metav1.ObjectMeta{Name: broker.AdvertisementName(id)},
		"spec":     broker.ClusterAdvertisementSpec{ClusterID: id, Lending: lending},
	})
	if err != nil {
		panic(err)
	}
	return &fsm.Txn{Writes: []fsm.Write{{
		Key: key(id), Body: body, SpecChanged: true, Terms: &fsm.Terms{Closed: lending.Cordoned || lending.Withdrawn},
	}}}
}

// create brings the intent that store makes of a create.
func (x *exchange) create(id string) *cluster.Intent {
	txn := txnOf(id, broker.Lending{})
	txn.Guards = []fsm.Guard{fsm.GuardAbsent(key(id))}
	in := &cluster.Intent{Txn: txn}
	require.True(x.t, x.room.Takes(in))
	x.intents = append(x.intents, in)
	return in
}

func (x *exchange) lend(id string, lending broker.Lending) {
	require.Nil(x.t, x.apply(fsm.Entry{Time: x.now, Txns: []fsm.Txn{*txnOf(id, lending)}})[0].Refusal)
}

// process is one agent.
type process struct {
	x        *exchange
	id       string
	session  [16]byte
	epoch    uint64
	sequence uint64
}

func (x *exchange) agent(id string, session byte) *process {
	return &process{x: x, id: id, session: [16]byte{session}}
}

// open opens a session and waits for its epoch.
func (p *process) open() *process {
	p.x.t.Helper()
	in := p.send(fsm.Report{Open: true})
	p.x.run()
	result := p.x.answer(in)
	require.Nil(p.x.t, result.Refusal)
	p.epoch = result.Epoch
	return p
}

// report sends figures, and does not wait.
func (p *process) report(cpu string, use ...fsm.HoldUse) *cluster.Intent {
	p.sequence++
	return p.send(fsm.Report{
		Epoch: p.epoch, Sequence: p.sequence, Use: use,
		Facts: fsm.AccountFacts{Allocatable: amounts(cpu), LargestFree: amounts(cpu)},
	})
}

func (p *process) send(report fsm.Report) *cluster.Intent {
	report.Account, report.Session = key(p.id), p.session
	in := &cluster.Intent{Report: &report}
	require.True(p.x.t, p.x.room.Takes(in))
	p.x.intents = append(p.x.intents, in)
	return in
}

func amounts(cpu string) allocation.Amounts {
	a, err := allocation.AmountsOf(corev1.ResourceList{"cpu": resource.MustParse(cpu)}, false)
	if err != nil {
		panic(err)
	}
	return a
}

func (x *exchange) answer(in *cluster.Intent) fsm.Result {
	x.t.Helper()
	require.Len(x.t, x.answers[in], 1, "answered exactly once")
	return x.answers[in][0]
}

func (x *exchange) get(id string) *broker.ClusterAdvertisement {
	x.t.Helper()
	a := store.AdvertisementOf(x.state.Row(key(id)))
	require.NotNil(x.t, a)
	return a
}

func (x *exchange) phase(id string) string { return string(x.get(id).Status.Phase) }

func (x *exchange) condition(id, kind string) string {
	for _, c := range x.get(id).Status.Conditions {
		if c.Type == kind {
			return string(c.Status)
		}
	}
	return "absent"
}

// active is a cluster whose agent has reported.
func (x *exchange) active(id, cpu string) *process {
	x.t.Helper()
	x.create(id)
	x.run()
	p := x.agent(id, 1).open()
	x.pass(second)
	p.report(cpu)
	x.run()
	require.Equal(x.t, "Active", x.phase(id))
	return p
}
