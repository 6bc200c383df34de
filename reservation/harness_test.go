package reservation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

const (
	second = fsm.Millis(1000)
	minute = 60 * second
	hour   = 60 * minute
)

// failer is what both testing.T and rapid.T are.
type failer interface {
	require.TestingT
	Helper()
}

// exchange is a replicated state without replication: what planners propose is encoded, applied
// and fed back, on one goroutine.
type exchange struct {
	t       failer
	state   *fsm.State
	now     fsm.Millis
	changes []fsm.Change
	ids     uint64
	answers map[*cluster.Intent][]fsm.Result
	// onEntry is called after each entry that a planner proposed on the state before.
	onEntry func(before, after *fsm.State, txns []fsm.Txn)
}

func newExchange(t failer) *exchange {
	return &exchange{t: t, state: fsm.New(), now: 1_700_000_000_000, answers: map[*cluster.Intent][]fsm.Result{}}
}

// planner is one leader's term; two of them on one exchange are what may never happen, and must
// do no harm.
type planner struct {
	x       *exchange
	room    cluster.Room
	term    cluster.Term
	seen    int // of exchange.changes
	intents []*cluster.Intent
	settled []cluster.Settled
	wake    fsm.Millis
	// open are intents that were handed to the term and not answered.
	open map[*cluster.Intent]bool
}

func (x *exchange) planner(cfg Config) *planner {
	p := &planner{x: x, room: New(cfg), open: map[*cluster.Intent]bool{}}
	p.begin()
	return p
}

// begin throws the term away and begins another. Intents that were not answered are brought
// again, as the nodes that wait for them would.
func (p *planner) begin() {
	p.term = p.room.Begin(p.x.state, p.x.now)
	p.seen, p.settled, p.wake = len(p.x.changes), nil, p.x.now
	for in := range p.open {
		p.intents = append(p.intents, in)
	}
	slices.SortFunc(p.intents, func(a, b *cluster.Intent) int { return int(a.Txn.ID.Random) - int(b.Txn.ID.Random) })
	p.intents = slices.Compact(p.intents)
	p.open = map[*cluster.Intent]bool{}
}

func (p *planner) submit(intents ...*cluster.Intent) {
	for _, in := range intents {
		require.True(p.x.t, p.room.Takes(in))
	}
	p.intents = append(p.intents, intents...)
}

// plan steps the term on the state as it is, and returns what it proposes.
func (p *planner) plan() cluster.Output {
	in := cluster.Input{
		Now: p.x.now, State: p.x.state, Changes: slices.Clone(p.x.changes[p.seen:]),
		Intents: p.intents, Settled: p.settled,
	}
	for _, intent := range p.intents {
		p.open[intent] = true
	}
	p.seen, p.intents, p.settled = len(p.x.changes), nil, nil
	out := p.term.Step(in)
	for _, a := range out.Answers {
		delete(p.open, a.Intent)
		p.x.answers[a.Intent] = append(p.x.answers[a.Intent], a.Result)
	}
	p.wake = out.Wake
	return out
}

// enter applies what a Step proposed, perhaps on a state that has moved on.
func (p *planner) enter(out cluster.Output) {
	if len(out.Propose) == 0 {
		return
	}
	entry := fsm.Entry{Time: p.x.now}
	for _, item := range out.Propose {
		entry.Txns = append(entry.Txns, *item.Txn)
	}
	// As cluster.Stepper splits it.
	data, err := fsm.EncodeEntry(&entry)
	if (err != nil || len(data) > cluster.MaxEntryBytes) && len(out.Propose) > 1 {
		half := len(out.Propose) / 2
		p.enter(cluster.Output{Propose: out.Propose[:half]})
		p.enter(cluster.Output{Propose: out.Propose[half:]})
		return
	}
	before := p.x.state
	for i := range entry.Txns {
		p.x.keepsPromises(&entry.Txns[i])
	}
	results := p.x.apply(entry)
	for i, item := range out.Propose {
		p.settled = append(p.settled, cluster.Settled{Item: item, Result: results[i]})
	}
	if p.x.onEntry != nil {
		p.x.onEntry(before, p.x.state, entry.Txns)
	}
}

// keepsPromises: a finalizer is a promise that somebody is told first, so the room deletes nothing that has one.
func (x *exchange) keepsPromises(txn *fsm.Txn) {
	for i := range txn.Writes {
		if w := &txn.Writes[i]; w.Delete && isReservation(w.Key) && x.state.Row(w.Key) != nil {
			require.Empty(x.t, store.ReservationOf(x.state.Row(w.Key)).Finalizers, w.Key)
		}
	}
}

func (p *planner) idle() bool {
	return len(p.intents) == 0 && len(p.settled) == 0 && p.seen == len(p.x.changes) && (p.wake == 0 || p.wake > p.x.now)
}

// run steps until there is nothing left to do now.
func (p *planner) run() {
	for steps := 0; !p.idle(); steps++ {
		require.Less(p.x.t, steps, 2_000, "the room never comes to rest")
		p.enter(p.plan())
	}
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

func (x *exchange) write(txn fsm.Txn) {
	x.t.Helper()
	result := x.apply(fsm.Entry{Time: x.now, Txns: []fsm.Txn{txn}})[0]
	require.Nil(x.t, result.Refusal)
}

// advertise stores an Active advertisement with these prices and labels.
func (x *exchange) advertise(id string, spec broker.ClusterAdvertisementSpec) {
	x.t.Helper()
	spec.ClusterID = id
	body, err := json.Marshal(map[string]any{"metadata": metav1.ObjectMeta{Name: broker.AdvertisementName(id)}, "spec": spec})
	require.NoError(x.t, err)
	keepBack, err := allocation.AmountsOf(spec.Lending.KeepBack, true)
	require.NoError(x.t, err)
	x.write(fsm.Txn{Writes: []fsm.Write{{
		Key: broker.AdvertisementKey(id), Body: body, SpecChanged: true,
		Terms:  &fsm.Terms{KeepBack: keepBack, Closed: spec.Lending.Cordoned || spec.Lending.Withdrawn},
		Ledger: &fsm.Ledger{Phase: store.PhaseActive},
	}}})
}

// report records what the cluster has and what is allocated on it.
func (x *exchange) report(id, allocatable, allocated string) {
	x.t.Helper()
	key := broker.AdvertisementKey(id)
	session := [16]byte{1}
	results := x.apply(fsm.Entry{Time: x.now, Reports: []fsm.Report{{Account: key, Session: session, Open: true}}})
	x.ids++
	results = x.apply(fsm.Entry{Time: x.now, Reports: []fsm.Report{{
		Account: key, Session: session, Epoch: results[0].Epoch, Sequence: x.ids,
		Facts: fsm.AccountFacts{
			Allocatable: amounts(allocatable), Allocated: amounts(allocated), LargestFree: amounts(allocatable),
		},
	}}})
	require.Nil(x.t, results[0].Refusal)
}

// cluster is an Active cluster with a cpu price.
func (x *exchange) cluster(id, allocatable, cpuPrice string) {
	x.t.Helper()
	spec := broker.ClusterAdvertisementSpec{Endpoint: "https://" + id}
	if cpuPrice != "" {
		spec.Cost = map[string]string{"currency": "EUR", "cpu": cpuPrice}
	}
	x.advertise(id, spec)
	x.report(id, allocatable, "")
}

// list is "cpu=4,memory=8Gi" as a resource list.
func list(s string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, part := range strings.Split(s, ",") {
		if name, value, ok := strings.Cut(part, "="); ok {
			out[corev1.ResourceName(name)] = resource.MustParse(value)
		}
	}
	return out
}

func amounts(s string) allocation.Amounts {
	a, err := allocation.AmountsOf(list(s), false)
	if err != nil {
		panic(err)
	}
	return a
}

func reservation(name, resources string, change ...func(*broker.ReservationSpec)) *broker.Reservation {
	r := &broker.Reservation{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "rome", UID: types.UID("uid-" + name), Generation: 1},
		Spec:       broker.ReservationSpec{RequesterID: "rome", RequestedResources: list(resources)},
	}
	for _, f := range change {
		f(&r.Spec)
	}
	return r
}

func priority(n int32) func(*broker.ReservationSpec) {
	return func(s *broker.ReservationSpec) { s.Priority = n }
}

func waitFor(d string) func(*broker.ReservationSpec) {
	return func(s *broker.ReservationSpec) { s.WaitFor = d }
}

func duration(d string) func(*broker.ReservationSpec) {
	return func(s *broker.ReservationSpec) { s.Duration = d }
}

func target(id string) func(*broker.ReservationSpec) {
	return func(s *broker.ReservationSpec) { s.TargetClusterID = id }
}

func bodyOf(r *broker.Reservation) []byte {
	body, err := store.ReservationBody(r)
	if err != nil {
		panic(err)
	}
	return body
}

func (x *exchange) id() fsm.RequestID {
	x.ids++
	return fsm.RequestID{Seen: x.state.Revision(), Random: x.ids}
}

// creation is the intent that store makes of a create.
func (x *exchange) creation(r *broker.Reservation) *cluster.Intent {
	key := broker.ReservationKey(r.Namespace, r.Name)
	return &cluster.Intent{Txn: &fsm.Txn{
		ID: x.id(), Guards: []fsm.Guard{fsm.GuardAbsent(key)},
		Writes: []fsm.Write{{Key: key, Body: bodyOf(r)}, {Key: "namespaces/" + r.Namespace, IfAbsent: true, Body: []byte("{}")}},
	}}
}

// edit is the intent that store makes of a changed spec.
func (x *exchange) edit(name string, change func(*broker.Reservation)) *cluster.Intent {
	row := x.row(name)
	r := store.ReservationOf(row).DeepCopy()
	r.Generation++
	change(r)
	return &cluster.Intent{Txn: &fsm.Txn{
		ID: x.id(), Guards: []fsm.Guard{fsm.GuardBody(row), fsm.GuardLedger(row)},
		Writes: []fsm.Write{{Key: row.Key, Body: bodyOf(r), SpecChanged: true}},
	}}
}

// change writes metadata, which no room decides.
func (x *exchange) change(name string, change func(*broker.Reservation)) {
	row := x.row(name)
	r := store.ReservationOf(row).DeepCopy()
	change(r)
	x.write(fsm.Txn{Guards: []fsm.Guard{fsm.GuardBody(row)}, Writes: []fsm.Write{{Key: row.Key, Body: bodyOf(r)}}})
}

func (x *exchange) delete(name string) {
	x.write(fsm.Txn{Writes: []fsm.Write{{Key: broker.ReservationKey("rome", name), Delete: true}}})
}

func (x *exchange) row(name string) *fsm.Row { return x.state.Row(broker.ReservationKey("rome", name)) }

func (x *exchange) get(name string) *broker.Reservation {
	x.t.Helper()
	r := store.ReservationOf(x.row(name))
	require.NotNil(x.t, r, name)
	return r
}

// phases are "name=Phase@target" of all reservations, by name.
func (x *exchange) phases() string {
	var out []string
	for row := range x.state.Scan(broker.ReservationsPrefix) {
		r := store.ReservationOf(row)
		s := fmt.Sprintf("%s=%s", r.Name, r.Status.Phase)
		if r.Status.Phase == broker.ReservationReserved {
			s += "@" + r.Status.TargetClusterID
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

func (x *exchange) answer(in *cluster.Intent) fsm.Result {
	x.t.Helper()
	require.Len(x.t, x.answers[in], 1, "answered exactly once")
	return x.answers[in][0]
}

func (x *exchange) available(id, resource string) int64 {
	return x.state.Row(broker.AdvertisementKey(id)).Account.Available(resource)
}

// events are the reasons of a reservation's events, oldest first.
func (x *exchange) events(name string) []string {
	var out []string
	for row := range x.state.Scan(store.EventsPrefix + "rome/" + name + ".") {
		e := &corev1.Event{}
		require.NoError(x.t, json.Unmarshal(row.Body, e))
		require.Equal(x.t, name, e.InvolvedObject.Name)
		out = append(out, e.Reason)
	}
	return out
}

// consistent checks what holds between any two entries.
func (x *exchange) consistent() {
	for row := range x.state.Scan(broker.ReservationsPrefix) {
		holds := 0
		if row.Ledger != nil {
			holds = len(row.Ledger.Holds)
		}
		if phaseOf(row) != store.PhaseReserved {
			require.Zero(x.t, holds, "%s holds in phase %d", row.Key, phaseOf(row))
			continue
		}
		if len(store.ReservationOf(row).Status.Pieces) > 0 {
			require.Zero(x.t, holds, "%s is split: its pieces hold", row.Key)
			continue
		}
		require.Equal(x.t, 1, holds, row.Key)
		held := row.Ledger.Holds[0]
		require.Equal(x.t, broker.AdvertisementKey(row.Ledger.Target), held.Account)
		ask, err := askOf(store.ReservationOf(row))
		require.NoError(x.t, err)
		require.True(x.t, ask.Amounts.Equal(held.Amounts), row.Key)
	}
	x.groupsAgree()
	for row := range x.state.Scan(broker.AdvertisementsPrefix) {
		for hold := range row.Account.Holds() {
			holder := x.state.Row(hold.Holder)
			require.NotNil(x.t, holder, hold.Holder)
			require.EqualValues(x.t, store.PhaseReserved, holder.Ledger.Phase)
		}
	}
}

// settled checks what holds once the room has come to rest.
func (x *exchange) settled() {
	x.consistent()
	v := newView(x.state)
	var d allocation.Decision
	for row := range x.state.Scan(broker.ReservationsPrefix) {
		at := dueAt(row)
		if len(store.ReservationOf(row).Finalizers) == 0 || phaseOf(row) < store.PhaseReleased {
			require.True(x.t, at == 0 || at > x.now, "%s is overdue", row.Key)
		}
		if w, err := waiterOf(row); err == nil && w != nil {
			v.market.Decide(&w.ask, &d)
			require.False(x.t, d.Found, "%s waits and fits", row.Key)
		}
		require.LessOrEqual(x.t, len(x.events(store.ReservationOf(row).Name)), maxEventsPerObject)
	}
}
