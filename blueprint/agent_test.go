package blueprint

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// agent is a member cluster and its agent.
type agent struct {
	x           *exchange
	id          string
	spec        broker.ClusterAdvertisementSpec
	labels      map[string]string
	allocatable allocation.Amounts
	own         allocation.Amounts // what other pods request
	consents    bool
	up          bool // the agent is; the cluster's pods run on in any case
	refuses     map[string]bool
	bad         map[string]bool // images that never get ready
	work        map[string]*workload
	reports     uint64
	last        *fsm.Report
}

// workload is a slice's pods, by image.
type workload struct {
	slice   *broker.Slice
	pods    map[string]*pods
	waiting int // acts since something came nearer
}

type pods struct {
	all, ready int
	ask        allocation.Amounts
}

func (w *workload) count() (all, ready int) {
	for _, p := range w.pods {
		all, ready = all+p.all, ready+p.ready
	}
	return all, ready
}

func (a *agent) key() string { return broker.AdvertisementKey(a.id) }

// advertise writes body, phase and consent.
func (a *agent) advertise() {
	a.x.t.Helper()
	meta := metav1.ObjectMeta{Name: broker.AdvertisementName(a.id), Labels: a.labels}
	body, err := json.Marshal(map[string]any{"metadata": meta, "spec": a.spec})
	require.NoError(a.x.t, err)
	status := metav1.ConditionFalse
	if a.consents {
		status = metav1.ConditionTrue
	}
	facts, err := json.Marshal(map[string]any{"conditions": []metav1.Condition{{
		Type: broker.ConditionBlueprints, Status: status, Reason: "Flags", Message: "by flags",
	}}})
	require.NoError(a.x.t, err)
	phase := store.PhaseActive
	if !a.up {
		phase = store.PhaseStale
	}
	if a.spec.Lending.Withdrawn {
		phase = store.PhaseWithdrawn
	}
	a.x.write(fsm.Txn{Writes: []fsm.Write{{
		Key: a.key(), Body: body, SpecChanged: true, Facts: facts,
		Terms:  &fsm.Terms{Closed: a.spec.Lending.Cordoned || a.spec.Lending.Withdrawn},
		Ledger: &fsm.Ledger{Phase: phase, Closed: phase != store.PhaseActive},
	}}})
}

// report records the cluster's figures, with the use of its slices' holds.
func (a *agent) report() {
	a.x.t.Helper()
	r := fsm.Report{Account: a.key(), Session: [16]byte{1}, Facts: fsm.AccountFacts{Allocatable: a.allocatable, Allocated: a.own}}
	for _, key := range slices.Sorted(maps.Keys(a.work)) {
		var used allocation.Amounts
		for _, p := range a.work[key].pods {
			used = used.Add(p.ask.Times(p.all))
		}
		r.Facts.Allocated = r.Facts.Allocated.Add(used)
		if s := store.SliceOf(a.x.state.Row(key)); s != nil && len(used) > 0 && s.Status.Fence > 0 {
			r.Use = append(r.Use, fsm.HoldUse{Holder: key, Fence: fsm.Revision(s.Status.Fence), Used: used})
		}
	}
	if a.reports == 0 {
		open := r
		open.Open = true
		a.x.apply(fsm.Entry{Time: a.x.now, Reports: []fsm.Report{open}})
	}
	if a.last != nil && reflect.DeepEqual(*a.last, r) {
		return
	}
	last := r
	a.last = &last
	a.reports++
	r.Epoch, r.Sequence = 1, a.reports
	require.Nil(a.x.t, a.x.apply(fsm.Entry{Time: a.x.now, Reports: []fsm.Report{r}})[0].Refusal)
}

// act does one thing about each slice, and reports.
func (a *agent) act(rows []*fsm.Row) {
	a.x.t.Helper()
	if !a.up {
		return
	}
	entry := fsm.Entry{Time: a.x.now}
	for _, row := range rows {
		s := store.SliceOf(row)
		w := a.work[row.Key]
		if w == nil || w.slice.UID != s.UID {
			w = &workload{pods: map[string]*pods{}}
			a.work[row.Key] = w
		}
		if w.slice == nil || w.slice.Generation != s.Generation {
			w.waiting = 0
		}
		w.slice = s
		if facts := a.say(row, a.drive(w)); facts != nil {
			entry.Txns = append(entry.Txns, fsm.Txn{Writes: []fsm.Write{{Key: row.Key, Facts: facts}}})
		}
	}
	for txns := range slices.Chunk(entry.Txns, 100) {
		a.x.apply(fsm.Entry{Time: a.x.now, Txns: txns})
	}
	for key := range a.work {
		if a.x.state.Row(key) == nil {
			delete(a.work, key)
		}
	}
	a.report()
}

// patience is how many acts a workload may take without coming nearer.
const patience = 3

func (a *agent) drive(w *workload) broker.SliceStatus {
	spec := &w.slice.Spec
	status := broker.SliceStatus{ObservedGeneration: w.slice.Generation}
	condition := func(kind string) {
		status.Conditions = []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue, Reason: kind}}
	}
	switch spec.Command {
	case broker.SliceUnload:
		w.pods = map[string]*pods{}
		status.State = broker.SliceUnloading
		condition(broker.ConditionUnloaded)
		return status
	case broker.SliceDeactivate:
		w.pods = map[string]*pods{}
		status.State = broker.SliceLoaded
		return status
	}
	if !a.consents || a.refuses[spec.Image] {
		maps.DeleteFunc(w.pods, func(image string, _ *pods) bool {
			return !a.consents || a.refuses[image] || spec.Command == broker.SliceLoad
		})
		_, ready := w.count()
		status.State, status.Message, status.ReadyInstances = broker.SliceFailed, "not allowed here", int32(ready)
		condition(broker.ConditionRefused)
		return status
	}
	if spec.Command == broker.SliceLoad {
		status.State = broker.SliceLoaded
		return status
	}
	progress := a.roll(w)
	current := w.pods[spec.Image]
	all, ready := w.count()
	status.ReadyInstances = int32(ready)
	if w.waiting++; progress {
		w.waiting = 0
	}
	switch n := int(spec.Instances); {
	case all == n && current.ready == n:
		status.State = broker.SliceActive
	case w.waiting > patience:
		status.State, status.Message = broker.SliceFailed, "not active in time"
	default:
		status.State = broker.SliceActivating
	}
	if a.bad[spec.Image] {
		status.Message = strings.TrimPrefix(status.Message+": its pods crash", ": ")
	}
	a.x.busy = a.x.busy || progress || status.State == broker.SliceActivating
	return status
}

// roll is one step of a Deployment's rolling update.
func (a *agent) roll(w *workload) (progress bool) {
	spec := &w.slice.Spec
	n := int(spec.Instances)
	unavailable, surge := spec.Rollout.Bounds(spec.Instances)
	next := w.pods[spec.Image]
	if next == nil {
		next = &pods{}
		w.pods[spec.Image] = next
	}
	ask, err := allocation.AmountsOf(spec.Resources, true)
	require.NoError(a.x.t, err)
	next.ask = ask
	if !a.bad[spec.Image] && next.ready < next.all {
		next.ready, progress = next.all, true
	}
	for _, image := range slices.Sorted(maps.Keys(w.pods)) {
		old := w.pods[image]
		if image == spec.Image {
			continue
		}
		_, ready := w.count()
		for old.all > 0 && (old.ready < old.all || ready-1 >= n-int(unavailable)) {
			if old.ready == old.all {
				old.ready--
				ready--
			}
			old.all--
			progress = true
		}
		if old.all == 0 {
			delete(w.pods, image)
		}
	}
	all, _ := w.count()
	limit := n
	if all > next.all {
		limit = n + int(surge)
	}
	for ; all < limit && next.all < n; all++ {
		next.all++
		progress = true
	}
	for ; next.all > n; next.all-- {
		next.ready = min(next.ready, next.all-1)
		progress = true
	}
	return progress
}

// say encodes a slice's status where it says something new.
func (a *agent) say(row *fsm.Row, status broker.SliceStatus) []byte {
	old := store.SliceOf(row).Status
	again := status.State == broker.SliceFailed && old.ObservedGeneration != status.ObservedGeneration
	if status.StateSince = old.StateSince; old.State != status.State || again {
		since := metav1.NewMicroTime(timeOf(a.x.now))
		status.StateSince = &since
	}
	facts, err := json.Marshal(status)
	require.NoError(a.x.t, err)
	if string(facts) == string(row.Facts) {
		return nil
	}
	return facts
}
