package main

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// stall times Apply of one grant after the other on a full state, alone and while the state is written
// out beside it, in this process: Raft's own part is left out.
func (b *bench) stall(state *fsm.State, full string) error {
	db := store.NewDB(state)
	alone, err := b.applyDuring(db, func() error { time.Sleep(time.Second); return nil })
	if err != nil {
		return err
	}
	beside, err := b.applyDuring(db, func() error {
		for range b.size.rounds {
			if err := writeOut(filepath.Join(b.dir, "state.bin"), db.State()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	b.table.add(row{
		what: "Apply of one grant, alone: " + full, unit: "ms", values: alone.milliseconds(),
		note: "p99 " + figure(milliseconds(alone.quantile(0.99))),
	})
	worst := milliseconds(beside.quantile(1))
	b.table.add(row{
		what: "Apply of one grant, snapshot being written: " + full, unit: "ms", values: beside.milliseconds(),
		note: "p99 " + figure(milliseconds(beside.quantile(0.99))), goals: []goal{below(worst, 10, "ms (max)")},
	})
	return nil
}

// applyEvery leaves the other core to the writer, as a real log does between two fsyncs.
const applyEvery = time.Millisecond

func (b *bench) applyDuring(db *store.DB, do func() error) (took latencies, err error) {
	done := make(chan struct{})
	var doing errgroup.Group
	doing.Go(func() error {
		defer close(done)
		return do()
	})
	ticker := time.NewTicker(applyEvery)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return took, doing.Wait()
		case <-ticker.C:
		}
		entry, err := fsm.EncodeEntry(b.grant(db.State()))
		if err != nil {
			return nil, err
		}
		started := time.Now()
		results, err := db.Apply(entry)
		took = append(took, time.Since(started))
		if err != nil {
			return nil, err
		}
		if refusal := results[0].Refusal; refusal != nil {
			return nil, fmt.Errorf("grant refused: %+v", refusal)
		}
	}
}

// grant is one as the reservation room proposes it, of about the same size.
func (b *bench) grant(state *fsm.State) *fsm.Entry {
	key := "reservations/stall/" + nextName()
	account := broker.AdvertisementsPrefix + broker.AdvertisementName(clusterOf(rand.IntN(b.size.fullClusters)).id)
	return &fsm.Entry{Time: state.Time(), Txns: []fsm.Txn{{
		ID:     fsm.RequestID{Seen: state.Revision(), Random: rand.Uint64()},
		Guards: []fsm.Guard{fsm.GuardAbsent(key)},
		Writes: []fsm.Write{{Key: key, Body: make([]byte, 600), SpecChanged: true, Ledger: &fsm.Ledger{
			Phase: store.PhaseReserved, Target: "c00001", PriceNano: 1, Decision: make([]byte, 400),
		}}},
		Moves: []fsm.Move{{Op: fsm.MoveHold, Account: account, Holder: key, Amounts: requestAmounts}},
	}}}
}
