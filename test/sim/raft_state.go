package main

import "bytes"

// The log of this simulator is Raft, small: elections, replication, commitment, snapshots. What it
// must offer is hashicorp/raft's contract (see cluster.Log), with every freedom that contract leaves.

// entry of the log; empty data: nothing but a place in the order (a leader's first, a barrier).
type entry struct {
	term uint64
	data []byte
}

// disk is what a node finds again after a crash. Entries beyond synced may be gone then.
type disk struct {
	term     uint64
	votedFor int // -1: nobody
	snapshot snapshot
	base     uint64 // the log begins after this index
	baseTerm uint64
	log      []entry
	synced   uint64
}

// snapshot of the state after the entry at index.
type snapshot struct {
	index, term uint64
	data        []byte
}

func (d *disk) last() uint64 { return d.base + uint64(len(d.log)) }

func (d *disk) lastTerm() uint64 { return d.termAt(d.last()) }

// termAt an index within [base, last].
func (d *disk) termAt(index uint64) uint64 {
	if index == d.base {
		return d.baseTerm
	}
	return d.log[index-d.base-1].term
}

func (d *disk) at(index uint64) *entry { return &d.log[index-d.base-1] }

// cutAfter removes everything after index.
func (d *disk) cutAfter(index uint64) {
	d.log = d.log[: index-d.base : index-d.base] // entries in flight share the array
	d.synced = min(d.synced, index)
}

// compact forgets what the snapshot holds, but for some entries.
func (d *disk) compact(keep uint64) {
	from := max(d.base, d.snapshot.index-min(keep, d.snapshot.index))
	if from == d.base {
		return
	}
	d.baseTerm = d.termAt(from)
	d.log = append([]entry(nil), d.log[from-d.base:]...)
	d.base = from
}

// install makes the snapshot the beginning of the log; what follows it stays where it is of one history.
func (d *disk) install(s snapshot) {
	d.snapshot = s
	if s.index >= d.base && s.index <= d.last() && d.termAt(s.index) == s.term {
		d.log = append([]entry(nil), d.log[s.index-d.base:]...)
	} else {
		d.log = nil
	}
	d.base, d.baseTerm = s.index, s.term
	d.synced = max(d.synced, s.index)
	d.synced = min(d.synced, d.last())
}

// crash leaves a prefix of the log that holds all that was synced.
func (d *disk) crash(keep uint64) {
	d.cutAfter(max(d.synced, min(keep, d.last())))
	d.synced = d.last()
	if d.last() < d.snapshot.index {
		d.log, d.base, d.baseTerm = nil, d.snapshot.index, d.snapshot.term
		d.synced = d.base
	}
}

func (e *entry) same(o *entry) bool { return e.term == o.term && bytes.Equal(e.data, o.data) }

type role uint8

const (
	follower role = iota
	candidate
	leader
)

// raft is what a node knows of the group until it crashes.
type raft struct {
	role        role
	leader      int // as far as it knows; -1: nobody
	commit      uint64
	applied     uint64
	votes       map[int]bool
	next, match []uint64
	heard       []int64 // when each follower last answered the leader
	lastContact int64
	timeout     int64
	round       uint64 // of heartbeats
	acked       []uint64
	syncs       []*fsync
	proposals   map[uint64]*proposal
	verifying   []*verification
	behind      []*waiting // for entries to be applied here
	applying    bool
}

// fsync is a write under way.
type fsync struct {
	upTo uint64
	done func()
}

// proposal waits for the fate of one entry.
type proposal struct {
	waiting
	term    uint64
	results any // []fsm.Result once applied
	lost    bool
}

// verification waits for a majority to confirm that this node leads.
type verification struct {
	waiting
	round uint64
	lost  bool
}
