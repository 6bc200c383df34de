package cluster

import (
	"context"
	"fmt"
	"io"

	"github.com/hashicorp/raft"

	"github.com/bourse-dev/bourse/fsm"
)

// Views of a Status.
const (
	ViewLeader = "leader" // the leader was reached: it is as current as can be
	ViewLocal  = "local"  // what this node knows by itself, perhaps outdated
)

// Status of the group as this node sees it.
type Status struct {
	Node      string       `json:"node"` // who answers
	ClusterID string       `json:"clusterID"`
	View      string       `json:"view"`
	Leader    string       `json:"leader,omitempty"`
	Term      uint64       `json:"term"`
	Revision  fsm.Revision `json:"revision"` // of this node's state
	StateTime fsm.Millis   `json:"stateTime"`
	Behaviour uint32       `json:"behaviour"`
	// Halted: the replicas differ and no majority agrees; known on the leader only.
	Halted  bool     `json:"halted,omitempty"`
	Members []Member `json:"members"`
}

// Member of the group.
type Member struct {
	ID         string `json:"id"`
	Address    string `json:"address"`
	APIAddress string `json:"apiAddress,omitempty"`
	Suffrage   string `json:"suffrage"` // voter, nonvoter
	Leader     bool   `json:"leader"`
	Reachable  bool   `json:"reachable"`
	Error      string `json:"error,omitempty"` // why not
	Ready      bool   `json:"ready"`
	// LastContactMillis since the member heard the leader; 0 for the leader, -1: never or not reached.
	LastContactMillis int64 `json:"lastContactMs"`
	// Lag in log entries behind the leader's commit index; -1: not known.
	Lag           int64        `json:"lag"`
	Revision      fsm.Revision `json:"revision"`
	LogBytes      int64        `json:"logBytes"`
	SnapshotBytes int64        `json:"snapshotBytes"`
}

// Halted says whether this node leads and refuses writes because the replicas differ and no majority
// of them agrees. Of an earlier term it says nothing.
func (n *Node) Halted() bool { return n.IsLeader() && n.halted.Load() }

// Status asks every member, each for at most a second.
func (n *Node) Status(ctx context.Context) Status {
	state := n.db.State()
	_, _, clusterID := n.self()
	s := Status{
		Node: n.cfg.NodeID, ClusterID: clusterID, View: ViewLocal,
		Leader: n.Leader(), Term: n.raft.CurrentTerm(),
		Revision: state.Revision(), StateTime: state.Time(), Behaviour: state.Behaviour(),
		Halted: n.Halted(),
	}
	probes := n.probeAll(ctx, probeTimeout, nil)
	var commit uint64 // the leader's
	for _, p := range probes {
		if p.err == nil && p.report.Role == "leader" && p.report.Term >= s.Term {
			s.View, s.Leader, s.Term, commit = ViewLeader, p.report.NodeID, p.report.Term, p.report.CommitIndex
		}
	}
	for _, p := range probes {
		s.Members = append(s.Members, n.member(p, s.Leader, commit))
	}
	return s
}

func (n *Node) member(p probe, leader string, commit uint64) Member {
	m := Member{
		ID: string(p.server.ID), Suffrage: "voter",
		Leader: string(p.server.ID) == leader, LastContactMillis: -1, Lag: -1,
	}
	if p.server.Suffrage != raft.Voter {
		m.Suffrage = "nonvoter"
	}
	m.Address, _ = n.book.lookup(m.ID)
	if rec, ok := n.record(m.ID); ok {
		m.APIAddress = rec.APIAddress
	}
	if p.err != nil {
		m.Error = p.err.Error()
		return m
	}
	m.Reachable, m.Ready = true, p.report.Ready
	m.LastContactMillis, m.Revision = p.report.LastContactMillis, p.report.Revision
	m.LogBytes, m.SnapshotBytes = p.report.LogBytes, p.report.SnapshotBytes
	if commit > 0 {
		m.Lag = max(0, int64(commit)-int64(p.report.AppliedIndex))
	}
	return m
}

// MemberHash is the state hash of one member at its newest log entry.
type MemberHash struct {
	ID       string       `json:"id"`
	Index    uint64       `json:"index"`
	Revision fsm.Revision `json:"revision"`
	Hash     string       `json:"hash,omitempty"`
	Error    string       `json:"error,omitempty"`
}

// StateHashes are the members' hashes at the newest log entry that all who answer remember.
type StateHashes struct {
	Index   uint64       `json:"index"` // 0: no entry is remembered by all
	Equal   bool         `json:"equal"`
	Members []MemberHash `json:"members"`
}

// StateHashes asks every member and compares.
func (n *Node) StateHashes(ctx context.Context) StateHashes {
	probes := n.probeAll(ctx, probeTimeout, nil)
	common := map[uint64]int{}
	answered := 0
	for _, p := range probes {
		if p.err != nil {
			continue
		}
		answered++
		seen := map[uint64]bool{}
		for _, m := range p.report.Hashes {
			if !seen[m.Index] {
				seen[m.Index] = true
				common[m.Index]++
			}
		}
	}
	var out StateHashes
	for index, count := range common {
		if count == answered && index > out.Index {
			out.Index = index
		}
	}
	hashes := map[string]bool{}
	for _, p := range probes {
		m := MemberHash{ID: string(p.server.ID)}
		if p.err != nil {
			m.Error = p.err.Error()
		}
		for _, h := range p.report.Hashes {
			if h.Index == out.Index && out.Index > 0 {
				m.Index, m.Revision, m.Hash = h.Index, h.Revision, h.Hash
				hashes[h.Hash] = true
			}
		}
		out.Members = append(out.Members, m)
	}
	out.Equal = len(hashes) == 1
	return out
}

// Snapshot writes a snapshot of the state that contains every write acknowledged before the call.
func (n *Node) Snapshot(ctx context.Context, w io.Writer) (fsm.Revision, error) {
	if _, err := n.ReadIndex(ctx); err != nil {
		return 0, err
	}
	state := n.db.State()
	if err := fsm.WriteSnapshot(w, state); err != nil {
		return 0, fmt.Errorf("write snapshot: %w", err)
	}
	return state.Revision(), nil
}
