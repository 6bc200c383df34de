package blueprint

import (
	"strings"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// term is the room's work during one leadership term. Events are hints: what they touch is compared
// with the state, and so is everything at the start and at each resync.
type term struct {
	cfg   Config
	state *fsm.State
	now   fsm.Millis

	fed    *federation
	shares map[string]*share // by row key
	owned  keySets           // row keys by owner
	there  keySets           // and by cluster

	dirty  map[string]struct{} // owners to look at in the next round
	round  []string            // owners of this one, sorted
	memory map[string]*memory  // by owner
	resync fsm.Millis

	batch    batch
	proposed map[*fsm.Txn]proposal
}

// keySets are sets of row keys, each of something.
type keySets map[string]map[string]struct{}

func (x keySets) add(of, key string) {
	if x[of] == nil {
		x[of] = map[string]struct{}{}
	}
	x[of][key] = struct{}{}
}

func (x keySets) remove(of, key string) {
	if delete(x[of], key); len(x[of]) == 0 {
		delete(x, of)
	}
}

// memory is what a term remembers of one blueprint. A new leader begins without.
type memory struct {
	wanting   bool       // more capacity could change something
	waiting   bool       // less of it too
	moving    bool       // it is Aggressive: any cluster could
	lookAt    fsm.Millis // 0: nothing is due
	refusals  int        // rounds in a row that Apply refused a command of
	refusedAt fsm.Millis // since when
	why       string
	applied   fsm.Millis        // when the present spec was seen
	failing   map[string]string // slice keys, and the message they fail with
	toldAt    fsm.Millis        // when the status was last written
}

// proposal is what a proposed command was for.
type proposal struct {
	owner string
	told  []Observation // once it is done
}

func newTerm(cfg Config, state *fsm.State, now fsm.Millis) *term {
	t := &term{
		cfg: cfg, state: state, now: now, fed: newFederation(state),
		shares: map[string]*share{}, owned: keySets{}, there: keySets{},
		dirty: map[string]struct{}{}, memory: map[string]*memory{}, proposed: map[*fsm.Txn]proposal{},
		resync: now + millis(cfg.Resync),
	}
	for row := range state.Scan(broker.SlicesPrefix) {
		t.note(row.Key, row)
	}
	cfg.Observe(Observation{Event: EventBegun})
	t.touchAll()
	return t
}

// Step looks at what changed and proposes what brings the state nearer to the blueprints.
func (t *term) Step(in cluster.Input) cluster.Output {
	t.state, t.now, t.batch = in.State, in.Now, batch{}
	t.fed.reset()
	t.settle(in.Settled)
	t.absorb(in.Changes)
	if t.state.Behaviour() < fsm.ResizeBehaviour {
		return cluster.Output{Wake: t.now + dormantPoll}
	}
	if t.now >= t.resync {
		t.resync = t.now + millis(t.cfg.Resync)
		t.touchAll()
	}
	for owner, m := range t.memory {
		if m.lookAt > 0 && m.lookAt <= t.now {
			m.lookAt = 0
			t.touch(owner)
		}
	}
	t.reconcileSome()
	return cluster.Output{Propose: t.batch.items, Wake: t.wake()}
}

func (t *term) touch(owner string) { t.dirty[owner] = struct{}{} }

func (t *term) touchAll() {
	for row := range t.state.Scan(broker.BlueprintsPrefix) {
		if b := store.BlueprintOf(row); b != nil {
			t.touch(ownerKey(row.Key, string(b.UID)))
		}
	}
	for owner := range t.owned {
		t.touch(owner)
	}
}

// settle learns what became of the last Step's commands.
func (t *term) settle(settled []cluster.Settled) {
	refused := map[string]*fsm.Refusal{}
	for i := range settled {
		s := &settled[i]
		p, ok := t.proposed[s.Item.Txn]
		switch {
		case !ok || s.Err != nil: // unknown: the term is about to end
		case s.Result.Refusal != nil:
			refused[p.owner] = s.Result.Refusal
			t.observe(p.owner, Observation{Event: EventRefused, Reason: s.Result.Refusal.Kind.String()})
		default:
			for _, o := range p.told {
				t.observe(p.owner, o)
			}
			if m := t.memory[p.owner]; m != nil && refused[p.owner] == nil {
				m.refusals, m.refusedAt, m.why = 0, 0, ""
			}
		}
	}
	clear(t.proposed)
	for owner, refusal := range refused {
		t.refuse(owner, refusal.String())
	}
}

// refuse looks at the blueprint again after a pause.
func (t *term) refuse(owner, why string) {
	m := t.remember(owner)
	if m.refusals++; m.refusedAt == 0 {
		m.refusedAt = t.now
	}
	m.why = why
	m.look(t.now + t.cfg.pause(m.refusals-1))
	t.cfg.Logger.Debug("refused", "blueprint", owner, "why", why)
}

func (m *memory) look(at fsm.Millis) {
	if m.lookAt == 0 || at < m.lookAt {
		m.lookAt = at
	}
}

func (t *term) remember(owner string) *memory {
	m := t.memory[owner]
	if m == nil {
		m = &memory{failing: map[string]string{}}
		t.memory[owner] = m
	}
	return m
}

func (t *term) observe(owner string, o Observation) {
	o.Namespace, o.Name = namespaceAndName(blueprintKeyOf(owner), broker.BlueprintsPrefix)
	t.cfg.Observe(o)
}

// absorb brings the index up to the state and notes whom a change may concern.
func (t *term) absorb(changes []fsm.Change) {
	for i := range changes {
		c := &changes[i]
		switch key := c.Key(); {
		case strings.HasPrefix(key, broker.SlicesPrefix):
			t.note(key, c.After)
		case strings.HasPrefix(key, broker.BlueprintsPrefix):
			t.noteBlueprint(c)
		case strings.HasPrefix(key, broker.AdvertisementsPrefix):
			t.noteCluster(key, c.After)
		}
	}
}

// note keeps up with a slice's row; nil: it is gone.
func (t *term) note(key string, row *fsm.Row) {
	if was := t.shares[key]; was != nil {
		delete(t.shares, key)
		t.owned.remove(was.owner(), key)
		t.there.remove(was.record.Cluster, key)
		t.touch(was.owner())
	}
	if row == nil {
		return
	}
	s := shareOf(row)
	t.shares[key] = s
	t.owned.add(s.owner(), key)
	t.there.add(s.record.Cluster, key)
	t.touch(s.owner())
}

func (t *term) noteBlueprint(c *fsm.Change) {
	for _, row := range []*fsm.Row{c.Before, c.After} {
		if b := store.BlueprintOf(row); b != nil {
			t.touch(ownerKey(row.Key, string(b.UID)))
		}
	}
	if b := store.BlueprintOf(c.After); b != nil && (c.Before == nil || c.Before.SpecRev != c.After.SpecRev) {
		t.remember(ownerKey(c.After.Key, string(b.UID))).applied = t.now
	}
}

// noteCluster: news of a cluster concern who has something there, wants more, or may move; news of its
// figures those that wait for capacity or are short of it.
func (t *term) noteCluster(key string, row *fsm.Row) {
	was := t.fed.site(key)
	t.fed.set(key, row)
	is := t.fed.site(key)
	if was == nil || is == nil || !was.alike(is) {
		for key := range t.there[clusterIDOf(key)] {
			t.touch(t.shares[key].owner())
		}
		for owner, m := range t.memory {
			if m.wanting || m.moving {
				t.touch(owner)
			}
		}
		return
	}
	for _, s := range []*site{was, is} {
		for holder := range s.short {
			if share := t.shares[holder]; share != nil {
				t.touch(share.owner())
			}
		}
	}
	more, less := is.roomier(was), was.roomier(is)
	for owner, m := range t.memory {
		if more && m.wanting || less && m.waiting {
			t.touch(owner)
		}
	}
}

// wake is when to step again: at once where something was left, else when something is due.
func (t *term) wake() fsm.Millis {
	if len(t.round) > 0 || len(t.dirty) > 0 {
		return t.now
	}
	next := t.resync
	for _, m := range t.memory {
		if m.lookAt > 0 {
			next = min(next, m.lookAt)
		}
	}
	return next
}
