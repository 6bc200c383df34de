package blueprint

import (
	"slices"
	"strconv"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// conditionShort marks a share whose capacity the cluster can't keep at the moment.
const conditionShort = "CapacityShort"

// uidSpace makes a slice's uid from its key and the time: the same on whichever leader.
var uidSpace = uuid.MustParse("a1f6a2f0-52f1-4a5c-8a52-0c1de6d3b9c7")

// change is what becomes of one share.
type change struct {
	key     string
	share   *share // nil: it is new
	delete  bool
	spec    broker.SliceSpec
	record  record
	hold    allocation.Amounts
	account string
	short   bool

	priority int32 // as it should be
	held     int32 // the priority of the present hold
}

// takes says whether the change takes more than there was; such ones come last.
func (c *change) takes() bool {
	return c.hold != nil && (c.share == nil || len(c.hold.Sub(c.share.held()).Max(nil)) > 0)
}

// instruct says what each row becomes.
func (r *reconciliation) instruct() {
	for _, t := range r.tasks {
		for at, s := range t.shares {
			switch {
			case t.next[at] > 0:
				r.changes = append(r.changes, r.run(t, at))
			case s != nil:
				c := r.leaveNow(s, r.fed.sites[at].heard)
				if t.refused(at) && t.fault == "" {
					// It stays, empty: its agent takes the refusal back when it is allowed to.
					c.delete, c.hold, c.spec.Command = false, nil, broker.SliceLoad
				}
				r.changes = append(r.changes, c)
			}
		}
	}
	for _, s := range r.strays {
		r.changes = append(r.changes, r.leaveStray(s))
	}
	r.changes = slices.DeleteFunc(r.changes, func(c change) bool { return c.same() })
	slices.SortStableFunc(r.changes, func(a, b change) int {
		if a.takes() != b.takes() {
			if b.takes() {
				return -1
			}
			return 1
		}
		return 0
	})
}

// run is the share of a cluster that runs instances.
func (r *reconciliation) run(t *task, at int) change {
	s, site := t.shares[at], r.fed.sites[at]
	b := r.blueprint
	c := change{
		share: s, account: site.row.Key, hold: t.hold[at], priority: t.spec.Priority,
		record: record{
			Blueprint: b.Name, UID: string(b.UID), Slice: t.spec.Name, Cluster: site.id,
			Instances: t.next[at], Surge: t.surge[at],
		},
	}
	c.spec = broker.SliceSpec{
		Blueprint: b.Name, BlueprintUID: string(b.UID), Slice: t.spec.Name, ClusterID: site.id,
		Artifact: t.first.artifact, Image: t.first.image, Instances: int32(t.next[at]), Resources: t.spec.Resources,
		Command: broker.SliceLoad,
	}
	// Always set: the pods of a slice that was deleted by hand may run another version still.
	unavailable, surge := b.Spec.Rollout.Bounds(int32(t.next[at]))
	c.spec.Rollout = broker.BlueprintRollout{MaxUnavailable: count(int(unavailable)), MaxSurge: count(int(surge))}
	if s == nil {
		c.key = broker.SliceKey(b.Namespace, SliceName(b.Namespace, b.Name, string(b.UID), t.spec.Name, site.id))
		return c
	}
	c.key, c.held = s.row.Key, r.priorityOf(s)
	_, c.short = site.short[c.key]
	was := &s.object.Spec
	c.spec.Command = nextCommand(s)
	switch {
	case t.turned[at]:
		c.spec.Artifact, c.spec.Image = t.wanted.artifact, t.wanted.image
		c.spec.Rollout.MaxSurge = count(t.surge[at])
	case t.have[at] > 0: // the version there stays
		c.spec.Artifact, c.spec.Image, c.spec.Resources = was.Artifact, was.Image, was.Resources
		if c.record.Failure = s.record.Failure; s.settled() {
			c.record.Failure = ""
		}
		if c.spec.Attempt = r.attempt(s); c.spec.Attempt > was.Attempt {
			c.record.Failure = s.failure()
		}
		if was.Rollout.MaxUnavailable != nil {
			c.spec.Rollout = was.Rollout
		}
	}
	return c
}

func count(n int) *intstr.IntOrString {
	v := intstr.FromInt32(int32(n))
	return &v
}

// nextCommand of a share that should run: loaded first, then activated.
func nextCommand(s *share) broker.SliceCommand {
	loaded := s.in(broker.SliceLoaded) || s.in(broker.SliceActive) || s.in(broker.SliceActivating)
	if was := s.object.Spec.Command; was == broker.SliceUnload || was == broker.SliceLoad && !loaded {
		return broker.SliceLoad
	}
	return broker.SliceActivate
}

// attempt is raised once a failure has lasted for the backoff; the agent then begins anew.
func (r *reconciliation) attempt(s *share) int32 {
	attempt := s.object.Spec.Attempt
	if !s.in(broker.SliceFailed) || s.has(broker.ConditionRefused) {
		return attempt
	}
	due := r.now
	if since := s.status().StateSince; since != nil {
		due = fsm.Millis(since.UnixMilli()) + r.pause(int(attempt))
	}
	if due > r.now {
		r.wakeAt(due)
		return attempt
	}
	return attempt + 1
}

func (r *reconciliation) wakeAt(at fsm.Millis) {
	if r.retryAt == 0 || at < r.retryAt {
		r.retryAt = at
	}
}

// leaveStray is leaveNow for a share of which the spec, or the exchange, knows nothing.
func (r *reconciliation) leaveStray(s *share) change {
	at, known := r.fed.find(s.record.Cluster)
	if !known {
		return change{key: s.row.Key, share: s, delete: true}
	}
	return r.leaveNow(s, r.fed.sites[at].heard)
}

// leaveNow is the next step out: deactivated, unloaded, then the row goes, and with it the hold.
func (r *reconciliation) leaveNow(s *share, heard bool) change {
	c := change{key: s.row.Key, share: s, record: s.record, hold: s.held(), spec: s.object.Spec}
	if len(c.hold) > 0 {
		c.account = s.row.Ledger.Holds[0].Account
	}
	c.priority = r.priorityOf(s)
	c.held = c.priority
	c.record.Instances, c.record.Surge = 0, 0
	c.spec.Instances, c.spec.ClusterID = 0, s.record.Cluster
	c.spec.Attempt = r.attempt(s)
	switch s.object.Spec.Command {
	case broker.SliceUnload:
		c.delete = s.has(broker.ConditionUnloaded)
	case broker.SliceDeactivate:
		down := s.observed() && s.status().ReadyInstances == 0 && s.status().State != broker.SliceDeactivating
		if down || s.in(broker.SliceFailed) || !heard {
			c.spec.Command = broker.SliceUnload
		}
	case broker.SliceLoad:
		c.spec.Command = broker.SliceUnload
	default:
		if c.spec.Command = broker.SliceDeactivate; !heard {
			c.spec.Command = broker.SliceUnload
		}
	}
	return c
}

func (r *reconciliation) priorityOf(s *share) int32 {
	if at, known := r.fed.find(s.record.Cluster); known && r.fed.sites[at].row.Account != nil {
		hold, _ := r.fed.sites[at].row.Account.Hold(s.row.Key)
		return hold.Priority
	}
	return 0
}

// same says whether the change changes nothing.
func (c *change) same() bool {
	return !c.delete && c.share != nil && len(c.moves()) == 0 && !c.ledgerChanged() &&
		equality.Semantic.DeepEqual(c.spec, c.share.object.Spec)
}

func (c *change) ledgerChanged() bool {
	l := c.share.row.Ledger
	return l == nil || c.share.record != c.record || isShort(l) != c.short
}

func isShort(l *fsm.Ledger) bool {
	return slices.ContainsFunc(l.Conditions, func(x fsm.Condition) bool { return x.Type == conditionShort && x.Status })
}

func (c *change) moves() []fsm.Move {
	var held allocation.Amounts
	var priority int32
	if c.share != nil {
		held, priority = c.share.held(), c.held
	}
	move := fsm.Move{Account: c.account, Holder: c.key, Amounts: c.hold, Priority: c.priority}
	switch {
	case len(c.hold) == 0 && len(held) == 0:
		return nil
	case len(held) == 0:
		move.Op = fsm.MoveHold
	case len(c.hold) == 0:
		return []fsm.Move{{Op: fsm.MoveRelease, Account: c.share.row.Ledger.Holds[0].Account, Holder: c.key}}
	case held.Equal(c.hold) && priority == c.priority:
		return nil
	default:
		move.Op = fsm.MoveResize
	}
	return []fsm.Move{move}
}

// txn is the change as a command. blueprint is the row it was made from, nil where there is none.
func (c *change) txn(blueprint *fsm.Row, now fsm.Millis) *fsm.Txn {
	txn := &fsm.Txn{}
	if blueprint != nil {
		txn.Guards = append(txn.Guards, fsm.GuardSpec(blueprint))
	}
	switch {
	case c.share == nil:
		txn.Guards = append(txn.Guards, fsm.GuardAbsent(c.key))
	case c.delete:
		txn.Guards = append(txn.Guards, fsm.GuardBody(c.share.row))
		if c.share.row.FactsRev > 0 {
			txn.Guards = append(txn.Guards, fsm.GuardFacts(c.share.row))
		}
		txn.Writes = []fsm.Write{{Key: c.key, Delete: true}}
		return txn
	default:
		txn.Guards = append(txn.Guards, fsm.GuardBody(c.share.row))
	}
	txn.Moves = c.moves()
	write := fsm.Write{Key: c.key}
	object := &broker.Slice{}
	switch c.share {
	case nil:
		object.Namespace, object.Name = namespaceAndName(c.key, broker.SlicesPrefix)
		object.UID = types.UID(uuid.NewSHA1(uidSpace, []byte(c.key+"@"+strconv.FormatInt(int64(now), 10))).String())
		object.CreationTimestamp = metav1.NewTime(timeOf(now))
	default:
		object.ObjectMeta = *c.share.object.ObjectMeta.DeepCopy()
	}
	if object.Spec = c.spec; c.share == nil || !equality.Semantic.DeepEqual(c.spec, c.share.object.Spec) {
		object.Generation++
		body, err := store.SliceBody(object)
		if err != nil {
			panic("blueprint: a slice can't be encoded: " + err.Error())
		}
		write.Body, write.SpecChanged = body, true
	}
	if c.share == nil || c.ledgerChanged() {
		write.Ledger = c.ledger(object.Generation, now)
	}
	if write.Body != nil || write.Ledger != nil {
		txn.Writes = []fsm.Write{write}
	}
	return txn
}

func (c *change) ledger(generation int64, now fsm.Millis) *fsm.Ledger {
	l := &fsm.Ledger{PriceNano: allocation.Unpriced, Decision: c.record.encode()}
	was := false
	if c.share != nil && c.share.row.Ledger != nil {
		l.Conditions, was = c.share.row.Ledger.Conditions, isShort(c.share.row.Ledger)
	}
	if was == c.short {
		return l
	}
	condition := fsm.Condition{
		Type: conditionShort, Status: c.short, Since: now, Observed: generation,
		Reason: "CapacityRestored", Message: c.record.Cluster + " has the promised capacity again",
	}
	if c.short {
		condition.Reason = "CapacityShrank"
		condition.Message = c.record.Cluster + " has less capacity than it has promised; this slice is the first to miss it"
	}
	l.Conditions = []fsm.Condition{condition}
	return l
}
