package main

import (
	"errors"
	"fmt"
	"strings"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// A node of an older build is one that must never meet what came later: tooNew stands for its decoder.

// tooNew says why a node's build can't apply an entry.
func (n *node) tooNew(data []byte) error {
	if n.knows == fsm.SupportedBehaviour {
		return nil
	}
	entry, err := fsm.DecodeEntry(data)
	if errors.Is(err, fsm.ErrIgnorable) {
		return nil
	}
	if err != nil {
		return err
	}
	if entry.Behaviour > n.knows {
		return fmt.Errorf("its build knows behaviour version %d, the entry raises it to %d", n.knows, entry.Behaviour)
	}
	for i := range entry.Txns {
		for _, move := range entry.Txns[i].Moves {
			if move.Op == fsm.MoveResize && n.knows < fsm.ResizeBehaviour {
				return fmt.Errorf("its build knows behaviour version %d, and the entry resizes a hold", n.knows)
			}
		}
		for j := range entry.Txns[i].Writes {
			if n.knows < fsm.PartsBehaviour && hasParts(&entry.Txns[i].Writes[j]) {
				return fmt.Errorf("its build knows behaviour version %d, and the entry has parts of a whole", n.knows)
			}
		}
	}
	return nil
}

func hasParts(w *fsm.Write) bool {
	if !strings.HasPrefix(w.Key, broker.ReservationsPrefix) || w.Body == nil {
		return strings.HasPrefix(w.Key, broker.BatchesPrefix)
	}
	r, err := store.DecodeReservation(w.Body)
	return err == nil && (r.Spec.Split != nil || r.Status.PartOf != nil)
}

// knownToAll is the newest behaviour version that every node knows; 0 where one does not answer.
func (t *trace) knownToAll() uint32 {
	known := fsm.SupportedBehaviour
	for _, n := range t.nodes {
		if !n.up || n.asleepUntil > t.now {
			return 0
		}
		known = min(known, n.knows)
	}
	return known
}
