package main

import (
	"encoding/binary"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

var clusterIDs = []string{"paris", "berlin", "tokyo"}

// agent speaks for one cluster: opens a session, reports and is heard every few seconds. It creates
// its advertisement where there is none.
type agent struct {
	trace      *trace
	clusterID  string
	session    [16]byte
	epochGiven uint64
	sequence   uint64
	busy       bool
	silent     bool
	allocated  string
	works      map[string]*work // by slice
	second     bool             // a process that nobody stopped when it was replaced
}

const heartbeat = 3000

func (t *trace) startAgents() {
	for _, id := range clusterIDs {
		t.startAgent(id, false)
	}
}

func (t *trace) startAgent(id string, second bool) *agent {
	a := &agent{trace: t, clusterID: id, second: second, works: map[string]*work{}}
	a.newSession()
	t.agents = append(t.agents, a)
	a.later(between(t.agentDice, 1500, 3500))
	return a
}

func (a *agent) newSession() {
	binary.BigEndian.PutUint64(a.session[:], a.trace.agentDice.Uint64()|1)
	a.epochGiven, a.sequence = 0, 0
}

func (a *agent) later(delay int64) {
	a.trace.after(delay, "agent", -1, func() {
		if a.second && a.trace.healing {
			return
		}
		if !a.silent && !a.busy {
			a.speak()
		}
		a.later(between(a.trace.agentDice, heartbeat-500, heartbeat+500))
	})
}

func (a *agent) node() *node {
	n := a.trace.nodes[a.trace.agentDice.IntN(len(a.trace.nodes))]
	if !n.up {
		return nil
	}
	return n
}

func (a *agent) key() string { return broker.AdvertisementKey(a.clusterID) }

func (a *agent) speak() {
	n := a.node()
	if n == nil {
		return
	}
	if n.db.State().Row(a.key()) == nil {
		a.advertise(n)
		return
	}
	report := &fsm.Report{Account: a.key(), Session: a.session, Open: a.epochGiven == 0}
	if !report.Open {
		a.sequence++
		report.Epoch, report.Sequence = a.epochGiven, a.sequence
		if !a.second { // that one drives nothing: two would fight over the same pods
			a.drive(n)
		}
		report.Use, report.Facts = a.facts()
		if chance(a.trace.agentDice, 2) {
			report.Epoch++ // as if the exchange had forgotten it: a restored backup
		}
	}
	a.report(n, report, 0)
}

func (a *agent) facts() ([]fsm.HoldUse, fsm.AccountFacts) {
	all := amounts("cpu=8,memory=32Gi", false)
	use, sum := a.use()
	return use, fsm.AccountFacts{Allocatable: all, Allocated: amounts(a.allocated, true).Add(sum), LargestFree: all}
}

func (a *agent) report(n *node, report *fsm.Report, tries int) {
	a.busy = true
	session := a.session
	w := &write{report: report}
	w.ended = func(v verdict, r fsm.Result) {
		if v == severed && tries < 3 {
			if other := a.node(); other != nil {
				a.report(other, report, tries+1)
				return
			}
		}
		a.busy = false
		if session != a.session {
			return
		}
		a.trace.stats.count("agent was told", [...]string{"done", "refused", "nothing", "unknown", "severed"}[v])
		switch {
		case v == done && report.Open:
			a.epochGiven = r.Epoch
			a.speak() // the session is open: now the facts
		case v == refused:
			a.told(r.Refusal.Kind)
		}
	}
	n.write(w)
}

// told: the agent of a superseded session stays, and speaks on; an unknown one opens another.
func (a *agent) told(kind fsm.RefusalKind) {
	switch kind {
	case fsm.RefusedSession, fsm.RefusedMissing:
		a.newSession()
	case fsm.RefusedEpoch:
		if !a.second { // the one that was meant to run takes over again
			a.newSession()
		}
	default: // late: a newer one is in
	}
}

// consent is the facts part of an advertisement whose cluster runs blueprints.
var consent = []byte(`{"conditions":[{"type":"` + broker.ConditionBlueprints + `","status":"True","reason":"Flags","message":""}]}`)

// advertise creates the advertisement, as the intent of store.Storage.create.
func (a *agent) advertise(n *node) {
	t := a.trace
	t.number++
	meta := metav1.ObjectMeta{Name: broker.AdvertisementName(a.clusterID), UID: types.UID(fmt.Sprint("uid-", t.number)), Generation: 1}
	spec := broker.ClusterAdvertisementSpec{
		ClusterID: a.clusterID, Endpoint: "https://" + a.clusterID, Region: "eu",
		Cost: map[string]string{"currency": "EUR", "cpu": "0." + fmt.Sprint(1+len(a.clusterID)%5)},
	}
	a.busy = true
	w := &write{txn: &fsm.Txn{
		ID:     fsm.RequestID{Seen: n.db.State().Revision(), Random: t.number * 0x2545F4914F6CDD1D},
		Guards: []fsm.Guard{fsm.GuardAbsent(a.key())},
		Writes: []fsm.Write{{Key: a.key(), Body: bodyOf(&meta, &spec), SpecChanged: true, Facts: consent, Terms: &fsm.Terms{}}},
	}}
	w.ended = func(verdict, fsm.Result) { a.busy = false }
	n.write(w)
}

// lend changes what a provider lends: nothing more, nothing at all, something back.
func (c *client) lend(n *node) {
	key := broker.AdvertisementKey(oneOf(c, clusterIDs))
	row := n.db.State().Row(key)
	old := store.AdvertisementOf(row)
	if old == nil {
		return
	}
	updated := old.DeepCopy()
	lending := &updated.Spec.Lending
	*lending = broker.Lending{}
	switch c.trace.clientDice.IntN(5) {
	case 0:
		lending.Cordoned = true
	case 1:
		lending.Withdrawn = true
	case 2:
		lending.KeepBack = list("cpu=3")
	}
	c.lendAs(n, row, updated)
}

func (c *client) lendAs(n *node, row *fsm.Row, updated *broker.ClusterAdvertisement) {
	updated.Generation++
	updated.Spec.Resources, updated.Spec.LargestFree = broker.AdvertisedResources{}, nil
	lending := &updated.Spec.Lending
	keepBack, err := allocation.AmountsOf(lending.KeepBack, true)
	if err != nil {
		panic(err)
	}
	c.submit(n, "lend", fsm.Txn{
		Guards: []fsm.Guard{fsm.GuardBody(row)},
		Writes: []fsm.Write{{
			Key: row.Key, Body: bodyOf(&updated.ObjectMeta, &updated.Spec), SpecChanged: true,
			Terms: &fsm.Terms{KeepBack: keepBack, Closed: lending.Cordoned || lending.Withdrawn},
		}},
	})
}

func (c *client) deleteAdvertisement(n *node) {
	row := n.db.State().Row(broker.AdvertisementKey(oneOf(c, clusterIDs)))
	if row != nil {
		c.submit(n, "delete advertisement", fsm.Txn{
			Guards: []fsm.Guard{fsm.GuardBody(row)}, Writes: []fsm.Write{{Key: row.Key, Delete: true}},
		})
	}
}
