package main

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// client is one user: one request after the other, at whatever node it finds.
type client struct {
	trace *trace
	node  *node
	idle  bool
}

const clients = 4

func (t *trace) startClients() {
	for range clients {
		c := &client{trace: t, idle: true}
		t.clients = append(t.clients, c)
		c.later(between(t.clientDice, 3000, 6000))
	}
}

func (c *client) later(delay int64) {
	c.trace.after(delay, "client", -1, func() {
		if c.trace.healing {
			return
		}
		if !c.idle {
			c.later(200)
			return
		}
		c.choose()
		c.later(between(c.trace.clientDice, 200, 2200))
	})
}

// pick a node that is up; nil: none is.
func (c *client) pick() *node {
	if c.node != nil && c.node.up && chance(c.trace.clientDice, 70) {
		return c.node
	}
	n := c.trace.nodes[c.trace.clientDice.IntN(len(c.trace.nodes))]
	c.node = nil
	if n.up {
		c.node = n
	}
	return c.node
}

var actions = []struct {
	weight int
	do     func(*client, *node)
}{
	{26, (*client).create},
	{10, (*client).extend},
	{10, (*client).edit},
	{8, (*client).annotate},
	{12, (*client).delete},
	{14, (*client).read},
	{6, (*client).readStale},
	{5, (*client).lend},
	{3, (*client).deleteAdvertisement},
	{4, (*client).confirm},
	{6, (*client).barter},
	{8, (*client).blueprint},
	{3, (*client).deleteBlueprint},
	{1, (*client).meddle},
	{12, (*client).batch},
	{6, (*client).extendBatch},
	{5, (*client).deleteBatch},
	{10, (*client).split},
}

func (c *client) choose() {
	n := c.pick()
	if n == nil {
		return
	}
	total := 0
	for _, a := range actions {
		total += a.weight
	}
	at := c.trace.clientDice.IntN(total)
	for _, a := range actions {
		if at -= a.weight; at < 0 {
			n.whenAwake(func() { a.do(c, n) })
			return
		}
	}
}

// command is a client's write: made on what its node knows, with an id that no other has.
type command struct {
	client *client
	txn    fsm.Txn
	what   string
	maybe  bool
	moves  int // to another node
	// proper says whether an acknowledgement can be true, of what is not one command at the answer's
	// revision. nil: it is.
	proper func(fsm.Result) bool
}

func (c *client) submit(n *node, what string, txn fsm.Txn) { c.submitAs(n, what, txn, nil) }

func (c *client) submitAs(n *node, what string, txn fsm.Txn, proper func(fsm.Result) bool) {
	t := c.trace
	t.number++
	txn.ID = fsm.RequestID{Seen: n.db.State().Revision(), Random: t.number * 0x2545F4914F6CDD1D}
	c.idle = false
	t.stats.count("client", what)
	t.tell("client asks n%d to %s (%x)", n.id, what, txn.ID.Random)
	(&command{client: c, txn: txn, what: what, proper: proper}).at(n)
}

func (k *command) at(n *node) {
	w := &write{txn: &k.txn, maybe: k.maybe}
	w.ended = func(v verdict, r fsm.Result) {
		k.maybe = w.maybe
		if (v == severed || v == unknown) && k.moves < 3 {
			k.elsewhere()
			return
		}
		if v == severed {
			v = unknown
			if !k.maybe {
				v = nothing
			}
		}
		k.client.idle = true
		k.client.trace.history.told(k, v, r)
	}
	n.write(w)
}

// elsewhere asks another node, with the same id.
func (k *command) elsewhere() {
	k.moves++
	t := k.client.trace
	t.after(between(t.clientDice, 50, 1000), "client tries elsewhere", -1, func() {
		k.client.node = nil
		if n := k.client.pick(); n != nil {
			t.stats.count("client", "tried elsewhere")
			k.at(n)
		} else {
			k.elsewhere()
		}
	})
}

// told keeps what a client was told, and holds the exchange to it.
func (h *history) told(k *command, v verdict, r fsm.Result) {
	t := h.trace
	t.stats.count("client was told", [...]string{"done", "refused", "nothing", "unknown", "severed"}[v])
	t.mix(uint64(v), uint64(r.Revision))
	effects := h.effectsOf(k.txn.ID)
	t.tell("client was told of %s (%x): %d at revision %d, refusal %v; effects %v", k.what, k.txn.ID.Random, v, r.Revision, r.Refusal, effects)
	switch v {
	case done:
		ok := len(effects) == 1 && effects[0] == r.Revision
		if k.proper != nil {
			ok = len(effects) <= 1 && k.proper(r)
		}
		if !ok {
			t.fail("%s (%x) was acknowledged at revision %d, its effects are at %v", k.what, k.txn.ID.Random, r.Revision, effects)
		}
		h.known = max(h.known, r.Revision)
	case refused:
		if r.Refusal.Kind != fsm.RefusedUnknown {
			h.never = append(h.never, never{k, r.Refusal})
		}
		h.known = max(h.known, r.Revision)
	case nothing:
		h.never = append(h.never, never{k, nil})
	}
}

// idStep parts the ids that the reservation room makes of one, see reservation.request.
const idStep = 0x9E3779B97F4A7C15

func (h *history) effectsOf(id fsm.RequestID) (revisions []fsm.Revision) {
	for range 10 {
		revisions = append(revisions, h.effects[id]...)
		id.Random += idStep
	}
	return revisions
}

// never is a command that may have no effect: it was refused, or surely not proposed.
type never struct {
	command *command
	refusal *fsm.Refusal
}

// checkAnswers is done at the end: what comes late counts too.
func (h *history) checkAnswers() {
	for _, n := range h.never {
		if effects := h.effectsOf(n.command.txn.ID); len(effects) > 0 {
			h.trace.fail("%s (%x) was answered %v (nil: surely not proposed), and was done at %v", n.command.what, n.command.txn.ID.Random, n.refusal, effects)
		}
	}
}

var (
	names     = []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	partNames = []string{"x-a", "x-b", "y-a", "a-1", "b-2"} // of parts, if they are there
	requests  = []corev1.ResourceList{list("cpu=1"), list("cpu=2"), list("cpu=3,memory=2Gi"), list("cpu=5"), list("memory=20Gi"), list("cpu=8"), list("cpu=9")}
	durations = []string{"", "2s", "5s", "8s", "15s", "40s"}
	waits     = []string{"", "", "5s", "20s", "10m"}
)

// list is "cpu=4,memory=8Gi" as a resource list.
func list(text string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for part := range strings.SplitSeq(text, ",") {
		if name, value, ok := strings.Cut(part, "="); ok {
			out[corev1.ResourceName(name)] = resource.MustParse(value)
		}
	}
	return out
}

func amounts(text string, up bool) allocation.Amounts {
	a, err := allocation.AmountsOf(list(text), up)
	if err != nil {
		panic(err)
	}
	return a
}

func bodyOf(meta *metav1.ObjectMeta, spec any) []byte {
	m := *meta
	m.ResourceVersion = ""
	body, err := json.Marshal(struct {
		Metadata *metav1.ObjectMeta `json:"metadata"`
		Spec     any                `json:"spec"`
	}{&m, spec})
	if err != nil {
		panic(err)
	}
	return body
}

func oneOf[T any](c *client, list []T) T { return list[c.trace.clientDice.IntN(len(list))] }

func (c *client) key() (name, key string) {
	if name = oneOf(c, names); chance(c.trace.clientDice, 12) {
		name = oneOf(c, partNames)
	}
	return name, broker.ReservationKey("rome", name)
}

// create is the intent of store.Storage.create.
func (c *client) create(n *node) { c.createAs(n, "create", func(*broker.ReservationSpec) {}) }

func (c *client) createAs(n *node, what string, change func(*broker.ReservationSpec)) {
	name, key := c.key()
	dice := c.trace.clientDice
	ttl := int32(between(dice, 0, 20))
	spec := broker.ReservationSpec{
		RequesterID: "rome", RequestedResources: oneOf(c, requests), Priority: int32(between(dice, -2, 2)),
		Duration: oneOf(c, durations), WaitFor: oneOf(c, waits), TTLSecondsAfterFinished: &ttl,
	}
	if chance(dice, 15) {
		spec.TargetClusterID = clusterIDs[0]
	}
	if chance(dice, 10) {
		spec.MaxCostPerHour = "0.5"
	}
	change(&spec)
	c.trace.number++
	meta := metav1.ObjectMeta{Name: name, Namespace: "rome", UID: types.UID(fmt.Sprint("uid-", c.trace.number)), Generation: 1}
	c.submit(n, what, fsm.Txn{
		Guards: []fsm.Guard{fsm.GuardAbsent(key)},
		Writes: []fsm.Write{
			{Key: "namespaces/rome", IfAbsent: true, Body: []byte(`{"metadata":{"name":"rome"}}`)},
			{Key: key, Body: bodyOf(&meta, &spec), SpecChanged: true},
		},
	})
}

// change is the intent of store.Storage.updateTxn.
func (c *client) change(n *node, what, key string, change func(*broker.Reservation)) {
	row := n.db.State().Row(key)
	old := store.ReservationOf(row)
	if old == nil {
		c.trace.stats.count("client", what+": not there")
		return
	}
	updated := old.DeepCopy()
	change(updated)
	if errs := broker.ValidateReservationUpdate(updated, old); len(errs) > 0 {
		c.trace.stats.count("client", what+": invalid")
		if !chance(c.trace.clientDice, 20) { // a node that lags behind sends what the leader must refuse
			return
		}
	}
	txn := fsm.Txn{
		Guards: []fsm.Guard{fsm.GuardBody(row)},
		Writes: []fsm.Write{{Key: key}},
	}
	if what != "annotate" {
		updated.Generation++
		txn.Writes[0].SpecChanged = true
		txn.Guards = append(txn.Guards, fsm.GuardSpec(row), fsm.GuardLedger(row))
	}
	txn.Writes[0].Body = encoded(store.ReservationBody(updated))
	if chance(c.trace.clientDice, 10) {
		txn.Guards = append(txn.Guards, fsm.GuardRow(row))
	}
	c.submit(n, what, txn)
}

func (c *client) annotate(n *node) {
	_, key := c.key()
	c.trace.number++
	value := fmt.Sprint(c.trace.number)
	c.change(n, "annotate", key, func(r *broker.Reservation) { r.Annotations = map[string]string{"note": value} })
}

func (c *client) edit(n *node) {
	_, key := c.key()
	c.change(n, "edit", key, func(r *broker.Reservation) {
		r.Spec.RequestedResources, r.Spec.WaitFor = oneOf(c, requests), oneOf(c, waits)
		r.Spec.Priority = int32(between(c.trace.clientDice, -2, 2))
	})
}

func (c *client) extend(n *node) {
	_, key := c.key()
	c.extendKey(n, key)
}

func (c *client) extendKey(n *node, key string) {
	c.change(n, "extend", key, func(r *broker.Reservation) { r.Spec.Duration = oneOf(c, []string{"", "20s", "30s", "1m"}) })
}

func (c *client) delete(n *node) {
	_, key := c.key()
	row := n.db.State().Row(key)
	r := store.ReservationOf(row)
	if r == nil {
		return
	}
	txn := fsm.Txn{Guards: []fsm.Guard{fsm.GuardBody(row)}, Writes: []fsm.Write{{Key: key, Delete: true}}}
	switch whole := r.Status.PartOf; {
	case whole != nil && whole.Bound && r.Status.Phase == broker.ReservationReserved:
		c.trace.stats.count("client", "delete: a part alone") // the REST layer refuses it
	case len(r.Status.Pieces) > 0:
		txn.Guards = append(txn.Guards, fsm.GuardLedger(row))
		c.submit(n, "delete a split", txn)
	default:
		c.submit(n, "delete", txn)
	}
}

// confirm writes an agent's condition on a reservation: the facts part.
func (c *client) confirm(n *node) {
	_, key := c.key()
	row := n.db.State().Row(key)
	if row == nil {
		return
	}
	c.trace.number++
	facts := fmt.Sprintf(`{"conditions":[{"type":"Peered","status":"True","reason":"R%d","message":"","lastTransitionTime":null}]}`, c.trace.number)
	c.submit(n, "confirm", fsm.Txn{Guards: []fsm.Guard{fsm.GuardFacts(row)}, Writes: []fsm.Write{{Key: key, Facts: []byte(facts)}}})
}
