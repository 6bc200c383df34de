package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

var (
	batchNames = []string{"x", "y"}
	itemNames  = []string{"a", "b", "c", "d"}
	splits     = []string{"cpu=10", "cpu=20,memory=40Gi", "cpu=3,memory=50Gi", "cpu=4", "cpu=6", "cpu=30"}
)

// partsKnown is what the REST layer asks before it takes something with parts.
func (c *client) partsKnown(n *node) bool { return n.db.State().Behaviour() >= fsm.PartsBehaviour }

// batch creates one, or asks once more for the one there is: its name makes that idempotent.
func (c *client) batch(n *node) {
	if !c.partsKnown(n) {
		return
	}
	dice := c.trace.clientDice
	c.trace.number++
	name := oneOf(c, batchNames)
	b := &broker.ReservationBatch{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "rome", UID: types.UID(fmt.Sprint("uid-", c.trace.number)), Generation: 1,
	}}
	if stored := store.BatchOf(n.db.State().Row(broker.BatchKey("rome", name))); stored != nil && chance(dice, 70) {
		b.Spec = stored.Spec
	} else {
		c.fillBatch(b)
	}
	key := broker.BatchKey("rome", name)
	txn := fsm.Txn{
		Guards: []fsm.Guard{fsm.GuardAbsent(key)},
		Writes: []fsm.Write{
			{Key: "namespaces/rome", IfAbsent: true, Body: []byte(`{"metadata":{"name":"rome"}}`)},
			{Key: key, Body: encoded(store.BatchBody(b)), SpecChanged: true},
		},
	}
	c.submitAs(n, "create a batch", txn, func(r fsm.Result) bool { return c.trace.history.decided(b, r.Revision) })
}

func (c *client) fillBatch(b *broker.ReservationBatch) {
	dice := c.trace.clientDice
	b.Spec.Atomic = chance(dice, 60)
	ttl := int32(between(dice, 0, 20))
	b.Spec.TTLSecondsAfterFinished = &ttl
	if b.Spec.Atomic {
		b.Spec.Duration, b.Spec.Priority = oneOf(c, durations), int32(between(dice, -2, 2))
	}
	for i := range between(dice, 1, int64(len(itemNames))) {
		spec := broker.ReservationSpec{RequesterID: "rome", RequestedResources: oneOf(c, requests[:4])}
		if !b.Spec.Atomic { // items of several priorities are decided in several commands
			spec.Duration, spec.WaitFor, spec.Priority = oneOf(c, durations), oneOf(c, waits), int32(between(dice, -2, 2))
			spec.TTLSecondsAfterFinished = &ttl
		}
		if chance(dice, 30) {
			spec.TargetClusterID = oneOf(c, clusterIDs)
		}
		b.Spec.Items = append(b.Spec.Items, broker.BatchItem{Name: itemNames[i], Spec: spec})
	}
}

// decided says whether the batch was stored with that spec and decided by then. One that was deleted before
// somebody asked again is answered as the first of its commands was.
func (h *history) decided(b *broker.ReservationBatch, by fsm.Revision) bool {
	seen := false
	for i := range h.changes {
		c := &h.changes[i]
		if c.Key() != broker.BatchKey(b.Namespace, b.Name) {
			continue
		}
		stored := batchOf(c.After)
		switch {
		case stored == nil && seen:
			return true
		case stored != nil && c.Revision <= by && equality.Semantic.DeepEqual(stored.Spec, b.Spec):
			if seen = true; len(stored.Status.Results) == len(b.Spec.Items) {
				return true
			}
		}
	}
	return false
}

func (c *client) extendBatch(n *node) {
	row := n.db.State().Row(broker.BatchKey("rome", oneOf(c, batchNames)))
	old := store.BatchOf(row)
	if old == nil {
		return
	}
	b := old.DeepCopy()
	b.Generation++
	b.Spec.Duration = oneOf(c, []string{"", "20s", "30s", "1m"})
	if errs := broker.ValidateReservationBatchUpdate(b, old); len(errs) > 0 && !chance(c.trace.clientDice, 20) {
		return // as change
	}
	c.submit(n, "extend a batch", fsm.Txn{
		Guards: []fsm.Guard{fsm.GuardBody(row), fsm.GuardSpec(row), fsm.GuardLedger(row)},
		Writes: []fsm.Write{{Key: row.Key, Body: encoded(store.BatchBody(b)), SpecChanged: true}},
	})
}

func (c *client) deleteBatch(n *node) {
	if row := n.db.State().Row(broker.BatchKey("rome", oneOf(c, batchNames))); row != nil {
		c.submitAs(n, "delete a batch", fsm.Txn{
			Guards: []fsm.Guard{fsm.GuardBody(row)}, Writes: []fsm.Write{{Key: row.Key, Delete: true}},
		}, func(r fsm.Result) bool { return c.trace.history.goneBy(row, r.Revision) })
	}
}

// goneBy says whether the row was deleted after it was as it is here, and by then.
func (h *history) goneBy(row *fsm.Row, by fsm.Revision) bool {
	for i := row.Revision(); i < by; i++ {
		if c := &h.changes[i]; c.Key() == row.Key && c.After == nil {
			return true
		}
	}
	return false
}

// split asks for an amount that may be met in pieces.
func (c *client) split(n *node) {
	if !c.partsKnown(n) {
		return
	}
	dice := c.trace.clientDice
	c.createAs(n, "create a split", func(spec *broker.ReservationSpec) {
		spec.RequestedResources, spec.WaitFor, spec.TargetClusterID = list(oneOf(c, splits)), "", ""
		spec.Split = &broker.Split{MaxPieces: int32(between(dice, 2, 3)), MinPiece: list(oneOf(c, []string{"cpu=1", "cpu=2"}))}
	})
}

func encoded(body []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return body
}
