package blueprint

import (
	"encoding/json"
	"fmt"
	"maps"
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
)

// failer is what both testing.T and rapid.T are.
type failer interface {
	require.TestingT
	Helper()
}

// exchange is a replicated state without replication, the room's term, and simulated agents, all on
// one goroutine.
type exchange struct {
	t       failer
	cfg     Config
	room    cluster.Room
	term    cluster.Term
	state   *fsm.State
	now     fsm.Millis
	changes []fsm.Change
	seen    int
	settled []cluster.Settled
	wake    fsm.Millis
	count   uint64
	// commands and refusals that the room's proposals came to.
	commands, refusals int
	agents             map[string]*agent
	busy               bool // an agent came nearer to something, or waits for it
	// onEntry is called after each of the room's entries.
	onEntry func()
}

func newExchange(t failer, change ...func(*Config)) *exchange {
	cfg := Config{Policy: Policy{Rebalance: true}}
	for _, f := range change {
		f(&cfg)
	}
	x := &exchange{t: t, cfg: cfg, room: New(cfg), state: fsm.New(), now: 1_700_000_000_000, agents: map[string]*agent{}}
	x.apply(fsm.Entry{Time: x.now, Behaviour: fsm.SupportedBehaviour})
	x.begin()
	return x
}

// begin throws the term away and begins another, as another leader would.
func (x *exchange) begin() {
	x.term = x.room.Begin(x.state, x.now)
	x.seen, x.settled, x.wake = len(x.changes), nil, x.now
}

func (x *exchange) idle() bool {
	return len(x.settled) == 0 && x.seen == len(x.changes) && (x.wake == 0 || x.wake > x.now)
}

// run steps until there is nothing left to do now.
func (x *exchange) run() {
	x.t.Helper()
	for steps := 0; !x.idle(); steps++ {
		require.Less(x.t, steps, 300, "the room never comes to rest")
		x.enter(x.plan())
	}
}

func (x *exchange) plan() cluster.Output {
	in := cluster.Input{Now: x.now, State: x.state, Changes: slices.Clone(x.changes[x.seen:]), Settled: x.settled}
	x.seen, x.settled = len(x.changes), nil
	out := x.term.Step(in)
	x.wake = out.Wake
	rows := map[string]bool{}
	for _, item := range out.Propose {
		for _, w := range item.Txn.Writes {
			require.False(x.t, rows[w.Key], "two commands for %s in one step", w.Key)
			rows[w.Key] = true
		}
	}
	return out
}

// enter applies what a Step proposed.
func (x *exchange) enter(out cluster.Output) {
	x.t.Helper()
	if len(out.Propose) == 0 {
		return
	}
	entry := fsm.Entry{Time: x.now}
	for _, item := range out.Propose {
		entry.Txns = append(entry.Txns, *item.Txn)
	}
	if data, err := fsm.EncodeEntry(&entry); len(entry.Txns) > 1 {
		require.NoError(x.t, err)
		require.LessOrEqual(x.t, len(data), cluster.MaxEntryBytes)
	}
	before := x.state
	results := x.apply(entry)
	x.noneOverdrawn(before, x.state)
	for i, item := range out.Propose {
		x.commands++
		if results[i].Refusal != nil {
			x.refusals++
		}
		x.settled = append(x.settled, cluster.Settled{Item: item, Result: results[i]})
	}
	if x.onEntry != nil {
		x.onEntry()
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

// cluster is an Active member that consents.
func (x *exchange) cluster(id, allocatable, cpuPrice string) *agent {
	x.t.Helper()
	a := &agent{x: x, id: id, allocatable: amounts(allocatable), consents: true, up: true, work: map[string]*workload{}}
	a.spec = broker.ClusterAdvertisementSpec{ClusterID: id}
	if cpuPrice != "" {
		a.spec.Cost = map[string]string{"currency": "EUR", "cpu": cpuPrice}
	}
	x.agents[id] = a
	a.advertise()
	a.report()
	return a
}

func (x *exchange) key(name string) string { return broker.BlueprintKey("team", name) }

// create stores a blueprint, or a changed spec.
func (x *exchange) create(b *broker.Blueprint) {
	x.t.Helper()
	row := x.state.Row(x.key(b.Name))
	if old := store.BlueprintOf(row); old != nil {
		b.UID, b.Generation, b.CreationTimestamp = old.UID, old.Generation+1, old.CreationTimestamp
	} else {
		x.count++
		b.UID, b.Generation = types.UID(fmt.Sprintf("uid-%s-%d", b.Name, x.count)), 1
		b.CreationTimestamp = metav1.NewTime(timeOf(x.now))
	}
	require.Empty(x.t, broker.ValidateBlueprint(b))
	body, err := json.Marshal(map[string]any{"metadata": b.ObjectMeta, "spec": b.Spec})
	require.NoError(x.t, err)
	x.write(fsm.Txn{Writes: []fsm.Write{{Key: x.key(b.Name), Body: body, SpecChanged: true}}})
}

func (x *exchange) edit(name string, change func(*broker.BlueprintSpec)) {
	x.t.Helper()
	b := x.get(name).DeepCopy()
	change(&b.Spec)
	x.create(b)
}

func (x *exchange) delete(key string) {
	x.write(fsm.Txn{Writes: []fsm.Write{{Key: key, Delete: true}}})
}

func (x *exchange) get(name string) *broker.Blueprint {
	x.t.Helper()
	b := store.BlueprintOf(x.state.Row(x.key(name)))
	require.NotNil(x.t, b, name)
	return b
}

func (x *exchange) rows() (list []*share) {
	for row := range x.state.Scan(broker.SlicesPrefix) {
		list = append(list, shareOf(row))
	}
	return list
}

// placed is "slice@cluster=instances" of a blueprint, what runs nowhere left out.
func (x *exchange) placed(name string) string {
	var list []string
	for _, s := range x.rows() {
		if s.record.Blueprint == name && s.record.Instances > 0 {
			list = append(list, fmt.Sprintf("%s@%s=%d", s.record.Slice, s.record.Cluster, s.record.Instances))
		}
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// rest lets room and agents work until neither has anything to do, but for what waits for time.
func (x *exchange) rest() {
	x.t.Helper()
	for rounds := 0; ; rounds++ {
		require.Less(x.t, rounds, 150, "room and agents never come to rest")
		before := x.state.Revision()
		x.run()
		x.act()
		switch {
		case x.state.Revision() != before || !x.idle() || x.busy:
		case x.wake <= x.now+statusEvery: // a status waits for more
			x.now = x.wake
		default:
			return
		}
	}
}

// pass lets time go by, with agents at work each second.
func (x *exchange) pass(d fsm.Millis) {
	x.t.Helper()
	for end := x.now + d; x.now < end; {
		x.now = min(end, x.now+second)
		x.run()
		x.act()
	}
	x.run()
}

// act lets each agent do one thing about each of its slices.
func (x *exchange) act() {
	x.t.Helper()
	x.busy = false
	rows := x.bySpec()
	for _, id := range slices.Sorted(maps.Keys(x.agents)) {
		x.agents[id].act(rows[id])
	}
}

// bySpec are the slices' rows by the cluster that each names.
func (x *exchange) bySpec() map[string][]*fsm.Row {
	rows := map[string][]*fsm.Row{}
	for row := range x.state.Scan(broker.SlicesPrefix) {
		if s := store.SliceOf(row); s != nil {
			rows[s.Spec.ClusterID] = append(rows[s.Spec.ClusterID], row)
		}
	}
	return rows
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

// blueprint of slices "name=instances*resources".
func blueprint(name string, slices ...string) *broker.Blueprint {
	b := &broker.Blueprint{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
	for _, text := range slices {
		slice, rest, _ := strings.Cut(text, "=")
		count, resources, _ := strings.Cut(rest, "*")
		var n int32
		if _, err := fmt.Sscan(count, &n); err != nil {
			panic(err)
		}
		b.Spec.Slices = append(b.Spec.Slices, broker.BlueprintSlice{
			Name: slice, Artifact: "registry.example.com/" + slice + ":1", Instances: &n, Resources: list(resources),
		})
	}
	return b
}
