package cluster

import (
	"encoding/json"
	"fmt"

	"github.com/bourse-dev/bourse/store"
)

// NodeRecord is the body of the row nodes/<id>: which data directory speaks for the node id.
type NodeRecord struct {
	NodeID      string `json:"nodeID"`
	UUID        string `json:"uuid"`
	RaftAddress string `json:"raftAddress"`
	APIAddress  string `json:"apiAddress,omitempty"`
}

func nodeKey(id string) string { return NodesPrefix + id }

func decodeNodeRecord(body []byte) (NodeRecord, error) {
	var rec NodeRecord
	if err := json.Unmarshal(body, &rec); err != nil {
		return rec, fmt.Errorf("decode node record: %w", err)
	}
	return rec, nil
}

// identityError: two data directories claim one node id.
type identityError struct {
	nodeID, known, got string
}

func (e *identityError) Error() string {
	return fmt.Sprintf("the exchange knows node %q with data directory %s, this one is %s: "+
		"use that directory, or run `bourse raft remove-peer %s` first", e.nodeID, e.known, e.got, e.nodeID)
}

func (e *identityError) Unwrap() error { return store.ErrIdentity }
