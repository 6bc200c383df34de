// Package servertest is a whole exchange in one process for tests of the HTTP side: the real state,
// storage and leader rooms, and instead of Raft a log that applies at once. No network, no disk.
package servertest

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/bourse-dev/bourse/advertisement"
	adminv1 "github.com/bourse-dev/bourse/api/admin/v1"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/blueprint"
	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/reservation"
	"github.com/bourse-dev/bourse/store"
)

// Exchange is a store.Writer and a server.Admin of a group of one. Safe for concurrent use.
type Exchange struct {
	DB *store.DB

	mu       sync.Mutex
	rooms    []cluster.Room
	steppers []*cluster.Stepper
	skew     fsm.Millis
	fault    error
	led      bool
}

// Blueprints is how its room keeps them.
var Blueprints = blueprint.Policy{
	Registries: broker.ArtifactRegistries{"com.example": "registry.example.com"}, Rebalance: true,
}

// NewExchange is empty and leads.
func NewExchange() *Exchange { return NewExchangeOf(fsm.SupportedBehaviour) }

// NewExchangeOf has a node of a build that knows no more than this behaviour version.
func NewExchangeOf(behaviour uint32) *Exchange {
	e := &Exchange{
		DB:    store.NewDB(fsm.New()),
		rooms: []cluster.Room{reservation.New(reservation.Config{}), advertisement.New(advertisement.Config{}), blueprint.New(blueprint.Config{Policy: Blueprints})},
		led:   true,
	}
	e.apply(fsm.Entry{Time: e.now(), Behaviour: behaviour})
	// As every founded exchange: no list is ever of revision 0, which the API does not allow.
	e.apply(fsm.Entry{Time: e.now(), Txns: []fsm.Txn{{Writes: []fsm.Write{{Key: "nodes/n1", Body: []byte("{}")}}}}})
	for _, room := range e.rooms {
		e.steppers = append(e.steppers, cluster.NewStepper(room, e.DB, e.now()))
	}
	return e
}

func (e *Exchange) now() fsm.Millis { return fsm.Millis(time.Now().UnixMilli()) + e.skew }

func (e *Exchange) apply(entry fsm.Entry) []fsm.Result {
	data, err := fsm.EncodeEntry(&entry)
	if err != nil {
		panic(err)
	}
	results, err := e.DB.Apply(data)
	if err != nil {
		panic(err)
	}
	return results
}

// Fail makes every later call return err; nil ends that.
func (e *Exchange) Fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fault = err
}

// Follow makes it say that it does not lead, or that it does.
func (e *Exchange) Follow(follow bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.led = !follow
}

// Advance lets time pass, and the rooms do what is then due.
func (e *Exchange) Advance(by time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.skew += fsm.Millis(by.Milliseconds())
	e.step(nil)
}

// Write decides the command as the leader's term loop would.
func (e *Exchange) Write(_ context.Context, txn fsm.Txn) (fsm.Result, error) {
	return e.submit(cluster.NewIntent(&txn, nil))
}

// Report as Write.
func (e *Exchange) Report(_ context.Context, report fsm.Report) (fsm.Result, error) {
	return e.submit(cluster.NewIntent(nil, &report))
}

// ReadIndex is the present revision.
func (e *Exchange) ReadIndex(context.Context) (fsm.Revision, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.DB.State().Revision(), e.fault
}

func (e *Exchange) submit(intent *cluster.Intent) (fsm.Result, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fault != nil {
		return fsm.Result{}, e.fault
	}
	for _, room := range e.rooms {
		if room.Takes(intent) {
			return e.decide(room, intent)
		}
	}
	result := e.apply(fsm.Entry{Time: e.now(), Txns: []fsm.Txn{*intent.Txn}})[0]
	e.step(nil)
	return result, nil
}

// decide lets the room work until it has answered. A room that wants to wait (it bounds how often a
// cluster's facts are written) need not: time is moved to when it wants to be woken.
func (e *Exchange) decide(room cluster.Room, intent *cluster.Intent) (fsm.Result, error) {
	const most = 100 // wakes before a room counts as stuck
	e.step(intent)
	for range most {
		select {
		case reply := <-intent.Replied():
			return reply.Result, reply.Err
		default:
		}
		e.sleepUntilWake()
		e.step(nil)
	}
	return fsm.Result{}, fmt.Errorf("room %s did not answer", room.Name())
}

// sleepUntilWake moves time to the first moment at which a room wants to be woken.
func (e *Exchange) sleepUntilWake() {
	var first fsm.Millis
	for _, stepper := range e.steppers {
		if wake := stepper.Wake(); wake > 0 && (first == 0 || wake < first) {
			first = wake
		}
	}
	e.skew += max(0, first-e.now())
}

// step runs every room until none has work left; the one that takes it gets the intent.
func (e *Exchange) step(intent *cluster.Intent) {
	for i, stepper := range e.steppers {
		var intents []*cluster.Intent
		if intent != nil && e.rooms[i].Takes(intent) {
			intents, intent = []*cluster.Intent{intent}, nil
		}
		e.settle(stepper, intents)
	}
	for before := fsm.Revision(0); before != e.DB.State().Revision(); {
		before = e.DB.State().Revision()
		for _, stepper := range e.steppers {
			e.settle(stepper, nil)
		}
	}
}

func (e *Exchange) settle(stepper *cluster.Stepper, intents []*cluster.Intent) {
	for first := true; first || stepper.Busy(); first = false {
		batches, err := stepper.Step(e.now(), intents)
		if err != nil {
			panic(err)
		}
		intents = nil
		outcomes := make([]cluster.Proposed, len(batches))
		for i, batch := range batches {
			results, err := e.DB.Apply(batch.Entry)
			if err != nil {
				panic(err)
			}
			outcomes[i].Results = results
		}
		if err := stepper.Settle(batches, outcomes); err != nil {
			panic(err)
		}
	}
}

// IsLeader is server.Admin's, as are those that follow.
func (e *Exchange) IsLeader() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.led
}

// Configuration of the group of one.
func (e *Exchange) Configuration(context.Context) (adminv1.RaftConfiguration, error) {
	return adminv1.RaftConfiguration{
		Servers: []adminv1.Server{{ID: "n1", Address: "127.0.0.1:1", Suffrage: "Voter", Leader: true}}, View: "n1", Term: 1,
	}, nil
}

// TransferLeadership knows nobody to hand it to.
func (e *Exchange) TransferLeadership(_ context.Context, to string) error {
	return fmt.Errorf("%w: %q", cluster.ErrUnknownNode, to)
}

// RemovePeer knows nobody to remove.
func (e *Exchange) RemovePeer(_ context.Context, id string) error {
	return fmt.Errorf("%w: %q", cluster.ErrUnknownNode, id)
}

// Snapshot writes the state.
func (e *Exchange) Snapshot(_ context.Context, w io.Writer) error {
	return fsm.WriteSnapshot(w, e.DB.State())
}

// StateHash of the state.
func (e *Exchange) StateHash(context.Context) (adminv1.StateHash, error) {
	state := e.DB.State()
	member := adminv1.MemberHash{ID: "n1", Revision: uint64(state.Revision()), Hash: state.Hash().String()}
	return adminv1.StateHash{Revision: member.Revision, Index: 1, Equal: true, Members: []adminv1.MemberHash{member}}, nil
}
