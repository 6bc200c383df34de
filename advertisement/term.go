package advertisement

import (
	"maps"
	"slices"
	"strings"
	"time"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// term is the room's work during one leadership term.
type term struct {
	cfg        Config
	staleAfter fsm.Millis
	state      *fsm.State
	now        fsm.Millis

	agents  map[string]*agent   // by account key
	touched map[string]struct{} // accounts to compare with what they should be
	waiting map[string]struct{} // accounts with pending reports
	creates []*cluster.Intent
	looks   deadlines

	out   cluster.Output
	bytes int
	// riders of a proposed report: the older intents that it answers too.
	riders map[*fsm.Report][]*cluster.Intent
}

func newTerm(cfg Config, state *fsm.State, now fsm.Millis) *term {
	t := &term{
		cfg: cfg, staleAfter: fsm.Millis(cfg.StaleAfter / time.Millisecond), state: state, now: now,
		agents: map[string]*agent{}, touched: map[string]struct{}{}, waiting: map[string]struct{}{},
		riders: map[*fsm.Report][]*cluster.Intent{},
	}
	for row := range state.Scan(broker.AdvertisementsPrefix) {
		a := t.agent(row.Key)
		if row.Ledger != nil {
			if row.Ledger.Phase == store.PhaseActive {
				a.heardAt, a.grace = now, true
			}
			if conditionIs(row.Ledger, conditionDuplicate) {
				a.strangerAt = now
			}
		}
		t.touched[row.Key] = struct{}{}
	}
	return t
}

func (t *term) agent(key string) *agent {
	a := t.agents[key]
	if a == nil {
		a = &agent{}
		t.agents[key] = a
	}
	return a
}

// Step hears the agents, proposes what is news, and brings each advertisement's phase and
// conditions to what they should be.
func (t *term) Step(in cluster.Input) cluster.Output {
	t.state, t.now, t.out, t.bytes = in.State, in.Now, cluster.Output{}, 0
	t.settle(in.Settled)
	t.absorb(in.Changes)
	for _, intent := range in.Intents {
		if intent.Report != nil {
			t.receive(intent)
		} else {
			t.creates = append(t.creates, intent)
		}
	}
	t.create()
	t.proposeReports()
	for {
		key, ok := t.looks.due(t.now)
		if !ok {
			break
		}
		if a := t.agents[key]; a != nil {
			a.lookAt = 0
			t.touched[key] = struct{}{}
		}
	}
	t.bringUp()
	t.out.Wake = t.wake()
	return t.out
}

// settle answers what the last Step proposed.
func (t *term) settle(settled []cluster.Settled) {
	for i := range settled {
		s := &settled[i]
		report := s.Item.Report
		if report == nil {
			t.settleTxn(s)
			continue
		}
		riders := t.riders[report]
		delete(t.riders, report)
		if s.Err != nil {
			continue // unknown: the term is about to end
		}
		if r := s.Result.Refusal; r == nil {
			t.hear(report, s.Result.Epoch)
		} else if r.Kind == fsm.RefusedEpoch {
			t.stranger(report.Account)
		}
		for _, intent := range append(riders, s.Item.Intent) {
			t.answer(intent, s.Result)
		}
	}
	clear(t.riders)
}

// hear notes a report that was accepted. Opening a session brings no facts: only a report that
// does shows that the agent knows its cluster.
func (t *term) hear(report *fsm.Report, epoch uint64) {
	if !report.Open {
		t.agent(report.Account).hear(t.now, epoch, report.Sequence)
		t.touched[report.Account] = struct{}{}
	}
}

func (t *term) settleTxn(s *cluster.Settled) {
	if s.Err != nil {
		return
	}
	if s.Item.Intent != nil {
		t.answer(s.Item.Intent, s.Result)
		return
	}
	if r := s.Result.Refusal; r != nil {
		t.cfg.Logger.Debug("refused", "kind", r.Kind, "by", r.Key, "revision", r.Revision)
		t.touched[r.Key] = struct{}{}
	}
}

func (t *term) answer(in *cluster.Intent, result fsm.Result) {
	t.out.Answers = append(t.out.Answers, cluster.Answer{Intent: in, Result: result})
}

func (t *term) refuse(in *cluster.Intent, kind fsm.RefusalKind, key string, row *fsm.Row) {
	result := fsm.Result{Revision: t.state.Revision(), Refusal: &fsm.Refusal{Kind: kind, Key: key}}
	if row != nil {
		result.Refusal.Revision = row.Revision()
		if row.Account != nil {
			result.Epoch = row.Account.Epoch
		}
	}
	t.answer(in, result)
}

func (t *term) absorb(changes []fsm.Change) {
	for i := range changes {
		c := &changes[i]
		key := c.Key()
		if !strings.HasPrefix(key, broker.AdvertisementsPrefix) {
			continue
		}
		if c.After == nil {
			t.forget(key)
			continue
		}
		t.touched[key] = struct{}{}
	}
}

// forget a cluster whose advertisement is gone.
func (t *term) forget(key string) {
	a := t.agents[key]
	if a == nil {
		return
	}
	for _, in := range a.pending {
		t.refuse(in, fsm.RefusedMissing, key, nil)
	}
	delete(t.agents, key)
	delete(t.waiting, key)
	delete(t.touched, key)
}

// receive answers a heartbeat, refuses what can only be refused, and queues news.
func (t *term) receive(in *cluster.Intent) {
	report := in.Report
	key := report.Account
	row := t.state.Row(key)
	if row == nil || !strings.HasPrefix(key, broker.AdvertisementsPrefix) {
		t.refuse(in, fsm.RefusedMissing, key, nil)
		return
	}
	if part := fault(report); part != "" {
		t.refuse(in, fsm.RefusedInvalid, part, row)
		return
	}
	a := t.agent(key)
	is, kind := a.judge(row, report)
	switch is {
	case standingRefused:
		if kind == fsm.RefusedEpoch {
			t.stranger(key)
		}
		t.refuse(in, kind, key, row)
	case standingUnchanged:
		t.hear(report, row.Account.Epoch)
		// What waits is older, and this one says that nothing has changed after all.
		result := fsm.Result{Revision: t.state.Revision(), Epoch: row.Account.Epoch}
		for _, older := range append(t.takePending(key, report), in) {
			t.answer(older, result)
		}
	default:
		t.queue(a, in)
	}
}

// takePending takes the waiting reports of the same session.
func (t *term) takePending(key string, report *fsm.Report) []*cluster.Intent {
	a := t.agents[key]
	var taken []*cluster.Intent
	a.pending = slices.DeleteFunc(a.pending, func(in *cluster.Intent) bool {
		same := in.Report.Session == report.Session
		if same {
			taken = append(taken, in)
		}
		return same
	})
	if len(a.pending) == 0 {
		delete(t.waiting, key)
	}
	return taken
}

func (t *term) queue(a *agent, in *cluster.Intent) {
	report := in.Report
	if !report.Open {
		a.note(report.Epoch, report.Sequence)
	}
	a.pending = append(a.pending, in)
	if len(a.pending) > maxPendingReports {
		t.refuse(a.pending[0], fsm.RefusedLate, report.Account, t.state.Row(report.Account))
		a.pending = slices.Delete(a.pending, 0, 1)
	}
	t.waiting[report.Account] = struct{}{}
}

func (t *term) stranger(key string) {
	t.agent(key).strangerAt = t.now
	t.touched[key] = struct{}{}
}

// proposeReports proposes the newest report of each cluster whose turn has come. A session that
// opens comes alone: reports of another session have another answer.
func (t *term) proposeReports() {
	for _, key := range slices.Sorted(maps.Keys(t.waiting)) {
		a := t.agents[key]
		if a.proposedAt > 0 && t.now < a.proposedAt+minReportInterval {
			continue
		}
		newest := a.pending[len(a.pending)-1]
		if t.full(reportBytes(newest.Report)) {
			return
		}
		taken := t.takePending(key, newest.Report)
		t.riders[newest.Report] = taken[:len(taken)-1]
		a.proposedAt = t.now
		t.bytes += reportBytes(newest.Report)
		t.out.Propose = append(t.out.Propose, cluster.Item{Report: newest.Report, Intent: newest})
	}
}

func (t *term) full(bytes int) bool {
	return len(t.out.Propose) >= maxItems || len(t.out.Propose) > 0 && t.bytes+bytes > maxEntryBytes
}

// create stores new advertisements as Stale and closed: nobody has spoken for them yet.
func (t *term) create() {
	for i, in := range t.creates {
		size := reportOverheadBytes
		for j := range in.Txn.Writes {
			size += len(in.Txn.Writes[j].Body)
		}
		if t.full(size) {
			t.creates = slices.Clone(t.creates[i:])
			return
		}
		write := creation(in.Txn)
		txn := in.Txn
		if t.state.Row(txn.Writes[write].Key) == nil {
			copied := *txn
			copied.Writes = slices.Clone(txn.Writes)
			copied.Writes[write].Ledger = &fsm.Ledger{
				Phase: store.PhaseStale, Closed: true, GrantedAt: t.now,
				Reason: reasonNeverHeard, Message: "no agent has reported yet",
			}
			txn = &copied
		}
		t.bytes += size
		t.out.Propose = append(t.out.Propose, cluster.Item{Txn: txn, Intent: in})
	}
	t.creates = nil
}

// wake is the next moment at which silence alone changes something.
func (t *term) wake() fsm.Millis {
	if len(t.creates) > 0 || len(t.touched) > 0 {
		return t.now
	}
	next := t.looks.next()
	for key := range t.waiting {
		at := max(t.now, t.agents[key].proposedAt+minReportInterval)
		if next == 0 || at < next {
			next = at
		}
	}
	return next
}
