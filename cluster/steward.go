package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/bourse-dev/bourse/fsm"
)

// selfReport is what a node says of itself to any server that asks.
type selfReport struct {
	NodeID       string       `json:"nodeID"`
	UUID         string       `json:"uuid"`
	ClusterID    string       `json:"clusterID"`
	Role         string       `json:"role"`
	Leader       string       `json:"leader,omitempty"`
	Term         uint64       `json:"term"`
	LastIndex    uint64       `json:"lastIndex"`
	CommitIndex  uint64       `json:"commitIndex"`
	AppliedIndex uint64       `json:"appliedIndex"`
	Revision     fsm.Revision `json:"revision"`
	// LastContactMillis since a leader was heard; 0 on the leader, -1 never.
	LastContactMillis int64      `json:"lastContactMs"`
	WallMillis        fsm.Millis `json:"wallMillis"`
	Behaviour         uint32     `json:"behaviour"` // the newest this node knows
	LogBytes          int64      `json:"logBytes"`
	SnapshotBytes     int64      `json:"snapshotBytes"`
	Ready             bool       `json:"ready"`
	Failed            bool       `json:"failed,omitempty"`
	Hashes            []hashMark `json:"hashes"`
}

func (n *Node) selfReport() selfReport {
	id := n.disk.Identity()
	r := selfReport{
		NodeID: id.NodeID, UUID: id.UUID, ClusterID: id.ClusterID,
		Role: strings.ToLower(n.raft.State().String()), Leader: n.Leader(), Term: n.raft.CurrentTerm(),
		LastIndex: n.raft.LastIndex(), CommitIndex: n.raft.CommitIndex(), AppliedIndex: n.raft.AppliedIndex(),
		Revision:   n.db.State().Revision(),
		WallMillis: millisOf(n.clock.Now()), Behaviour: fsm.SupportedBehaviour,
		LogBytes: n.disk.LogBytes(), SnapshotBytes: n.disk.SnapshotBytes(),
		Failed: n.failed.Load(), Hashes: n.hashes.marks(),
	}
	select {
	case <-n.ready:
		r.Ready = true
	default:
	}
	if last := n.raft.LastContact(); n.raft.State() == raft.Leader {
		r.LastContactMillis = 0
	} else if last.IsZero() {
		r.LastContactMillis = -1
	} else {
		r.LastContactMillis = time.Since(last).Milliseconds()
	}
	return r
}

// probe is what asking one member gave.
type probe struct {
	server raft.Server
	report selfReport
	err    error
	// ahead is how far this node's clock is ahead of the member's, as of the middle of the exchange.
	ahead time.Duration
}

// probeAll asks every member at once, this node included, each within timeout. answered may be nil;
// where it returns true the rest is not waited for.
func (n *Node) probeAll(ctx context.Context, timeout time.Duration, answered func(probe) bool) []probe {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	servers := n.servers()
	probes := make([]probe, len(servers))
	var wait sync.WaitGroup
	for i, s := range servers {
		wait.Go(func() {
			probes[i] = n.probe(ctx, s)
			if answered != nil && answered(probes[i]) {
				cancel()
			}
		})
	}
	wait.Wait()
	return probes
}

func (n *Node) probe(ctx context.Context, s raft.Server) probe {
	p := probe{server: s}
	if string(s.ID) == n.cfg.NodeID {
		p.report = n.selfReport()
		return p
	}
	addr, err := n.addressOf(string(s.ID))
	if err != nil {
		p.err = err
		return p
	}
	before := n.clock.Now()
	data, _, err := n.callers.call(ctx, string(s.ID), addr, methodStatus, nil)
	if err == nil {
		err = json.Unmarshal(data, &p.report)
	}
	p.err = err
	trip := n.clock.Since(before)
	p.ahead = time.Duration(millisOf(before)-p.report.WallMillis)*time.Millisecond + trip/2
	return p
}

// checkClock refuses to lead with a clock ahead of every other voter's: state time never goes back.
// A follower that answers is enough to know better, so it costs one round trip.
func (n *Node) checkClock(ctx context.Context) error {
	fine := func(p probe) bool {
		return p.err == nil && n.isOtherVoter(p.server) && p.ahead <= maxClockLead
	}
	return n.judgeClock(n.probeAll(ctx, clockProbeTimeout, fine))
}

func (n *Node) isOtherVoter(s raft.Server) bool {
	return s.Suffrage == raft.Voter && string(s.ID) != n.cfg.NodeID
}

var errClockAhead = errors.New("this node's clock is ahead of every other voter's")

func (n *Node) judgeClock(probes []probe) error {
	asked, least := 0, time.Duration(0)
	for _, p := range probes {
		if p.err != nil || !n.isOtherVoter(p.server) {
			continue
		}
		if asked == 0 || p.ahead < least {
			least = p.ahead
		}
		asked++
	}
	if asked > 0 && least > maxClockLead {
		return fmt.Errorf("%w by at least %v (%d asked): correct it", errClockAhead, least, asked)
	}
	return nil
}

// steward is the leader's care for the group: clocks, hashes, new voters, behaviour version. It is
// level-triggered: each round looks at everything anew.
func (n *Node) steward(ctx context.Context, l *Leadership) error {
	for {
		probes := n.probeAll(ctx, min(probeTimeout, n.cfg.StewardInterval), nil)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := n.judgeClock(probes); err != nil {
			return err
		}
		n.compareHashes(ctx, probes)
		n.promoteCaughtUp(probes)
		if err := n.raiseBehaviour(l, probes); err != nil {
			return err
		}
		if !n.pause(ctx, n.cfg.StewardInterval, nil) {
			return ctx.Err()
		}
	}
}

func (n *Node) promoteCaughtUp(probes []probe) {
	commit := n.raft.CommitIndex()
	for _, p := range probes {
		if p.err != nil || p.server.Suffrage == raft.Voter || p.report.AppliedIndex+caughtUpEntries < commit {
			continue
		}
		if err := n.promote(p.server); err != nil {
			n.logger.Warn("node could not be given its vote", "node", p.server.ID, "error", err)
		}
	}
}

// raiseBehaviour once every voter answers and supports more than the state has.
func (n *Node) raiseBehaviour(l *Leadership, probes []probe) error {
	lowest, known := lowestBehaviour(probes)
	if !known || lowest <= n.db.State().Behaviour() {
		return nil
	}
	n.logger.Info("behaviour version raised", "to", lowest)
	return l.RaiseBehaviour(lowest)
}

// lowestBehaviour is what every voter supports; not known where one did not answer.
func lowestBehaviour(probes []probe) (lowest uint32, known bool) {
	lowest = fsm.SupportedBehaviour
	for _, p := range probes {
		if p.server.Suffrage != raft.Voter {
			continue
		}
		if p.err != nil {
			return 0, false
		}
		lowest = min(lowest, p.report.Behaviour)
	}
	return lowest, true
}

// compareHashes finds replicas that differ after one and the same entry. A minority is told to
// stop; this node stops itself where it is in it. Without a majority writes are refused.
func (n *Node) compareHashes(ctx context.Context, probes []probe) {
	v := judgeHashes(probes)
	if len(v.minority) == 0 && !v.split {
		n.halted.Store(false)
		return
	}
	if v.split {
		if !n.halted.Swap(true) {
			n.logger.Error("ALARM: the replicas' states differ and no majority agrees: writes are refused", "index", v.index)
		}
		return
	}
	n.halted.Store(false)
	for _, p := range v.minority {
		id := string(p.server.ID)
		n.logger.Error("ALARM: a replica's state differs from the majority's", "node", id, "index", v.index)
		q := stopRequest{ExitCode: ExitDiverged, Reason: "the replica differs", Index: v.index, Hash: v.hash}
		if id == n.cfg.NodeID {
			n.fatal(ExitDiverged, fmt.Errorf("after log entry %d this replica's state differs from the majority's (%s)", v.index, v.hash))
			continue
		}
		if addr, err := n.addressOf(id); err == nil {
			n.tellStop(ctx, id, addr, q)
		}
	}
}

// verdict on the replicas' hashes after one entry.
type verdict struct {
	index    uint64
	hash     string // the majority's
	minority []probe
	split    bool // they differ, and no majority of the voters agrees
}

// judgeHashes looks at the newest entry of which at least two members remember the hash and differ;
// where none differ the verdict is empty.
func judgeHashes(probes []probe) verdict {
	byIndex := map[uint64]map[string][]probe{}
	voters := 0
	for _, p := range probes {
		if p.server.Suffrage == raft.Voter {
			voters++
		}
		if p.err != nil || p.report.Failed {
			continue
		}
		seen := map[uint64]bool{}
		for _, m := range p.report.Hashes {
			if seen[m.Index] {
				continue
			}
			seen[m.Index] = true
			if byIndex[m.Index] == nil {
				byIndex[m.Index] = map[string][]probe{}
			}
			byIndex[m.Index][m.Hash] = append(byIndex[m.Index][m.Hash], p)
		}
	}
	var differ []uint64
	for index, hashes := range byIndex {
		if len(hashes) > 1 {
			differ = append(differ, index)
		}
	}
	if len(differ) == 0 {
		return verdict{}
	}
	v := verdict{index: slices.Max(differ)}
	for hash, members := range byIndex[v.index] {
		agreeing := 0
		for _, p := range members {
			if p.server.Suffrage == raft.Voter {
				agreeing++
			}
		}
		if 2*agreeing > voters {
			v.hash = hash
		}
	}
	if v.hash == "" {
		v.split = true
		return v
	}
	for hash, members := range byIndex[v.index] {
		if hash != v.hash {
			v.minority = append(v.minority, members...)
		}
	}
	return v
}
