package cluster

import (
	"time"

	"github.com/bourse-dev/bourse/fsm"
)

const (
	// MaxEntryBytes is the goal for one Raft entry: heartbeats share the stream with entries, and 256 KiB
	// take 2 ms on a 1 Gbit/s link. A single larger command travels alone.
	MaxEntryBytes = 256 << 10
	// MaxCommandBytes bounds one encoded Txn or Report as it reaches the leader. With what a room adds
	// (decision and conditions of a few KiB a row) its entry stays under raft's advice of 512 KiB.
	MaxCommandBytes = 384 << 10

	// maxOpenIntents and maxOpenBytes bound what one room has not answered: 4,096 usual intents of 2 KiB,
	// about two seconds of work on a slow disk, or 20 of the largest. What comes beyond is refused at once.
	maxOpenIntents = 4096
	maxOpenBytes   = 8 << 20
	// maxIntentsPerStep keeps one step's entries small enough to commit within a heartbeat, and
	// maxBytesPerStep, 512 of 2 KiB, what it decodes before that: 1 MiB of JSON takes 20 ms.
	maxIntentsPerStep = 512
	maxBytesPerStep   = 1 << 20
	// intentOverhead is what an intent has beside what users write: guards, a namespace, a cluster's facts.
	intentOverhead = 1 << 10
	// holdUseBytes of a report for each hold: a key and a few amounts.
	holdUseBytes = 200

	// maxFrameBytes bounds one RPC frame: a command and its envelope, or the status of a node.
	maxFrameBytes = 1 << 20
	// maxCallsPerConn bounds the calls that one peer may have under way; a node has 800 requests in flight
	// at most. What they bring in bytes, maxOpenBytes bounds.
	maxCallsPerConn = 4096
	// maxHelloBytes bounds the first message on a connection: four ids of at most 64 bytes in JSON.
	maxHelloBytes = 1 << 10
	// maxInboundConns bounds connections: 32 nodes with 8 Raft streams and one RPC stream each, doubled.
	maxInboundConns = 576

	// maxGossipMeta is memberlist's own bound for a node's metadata.
	maxGossipMeta = 512
	// maxNodeID: ids are DNS labels.
	maxNodeID = 63
	// maxAddress bounds an address: four ids and two addresses of 110 bytes fit maxGossipMeta.
	maxAddress = 110
	// maxBootstrapExpect: a larger Raft group only gets slower.
	maxBootstrapExpect = 9

	// maxEntriesInFlight is how many entries one step hands to Raft before it waits.
	maxEntriesInFlight = 64

	// recentHashes is how many entries, and hashCheckpoints how many of every hashCheckpointEvery-th
	// entry a node remembers the state hash of: idle nodes meet at the former, busy ones at the latter.
	// 16 checkpoints of 64 entries cover 1,024 entries: over a second of full load.
	recentHashes        = 16
	hashCheckpoints     = 16
	hashCheckpointEvery = 64

	// caughtUpEntries: a new node may vote once it is that close to the leader; raft sends 64 at a time.
	caughtUpEntries = 64
)

const (
	// helloTimeout bounds the opening of a connection on either side.
	helloTimeout = 3 * time.Second
	// applyTimeout bounds how long a read or an intent waits until the leader has applied what it is made on.
	applyTimeout = 5 * time.Second
	// enqueueTimeout bounds the wait for a place in Raft's queue.
	enqueueTimeout = 5 * time.Second
	// membershipTimeout bounds one change of the Raft configuration.
	membershipTimeout = 5 * time.Second
	// clockProbeTimeout bounds the question for the other voters' clocks while taking over; a voter
	// that answers, answers within a round trip.
	clockProbeTimeout = 200 * time.Millisecond
	// probeTimeout bounds one member's status.
	probeTimeout = time.Second
	// leaveTimeout bounds the farewell to the gossip.
	leaveTimeout = 500 * time.Millisecond

	// maxClockLead is how far this node's clock may be ahead of every other voter's, while it leads.
	maxClockLead = 10 * time.Second

	// First and longest pause between two tries, of a request and of taking over.
	firstRetryPause    = 10 * time.Millisecond
	longestRetryPause  = 250 * time.Millisecond
	firstTakeOverPause = 500 * time.Millisecond
	longestTakeOver    = 30 * time.Second
)

// NodesPrefix is where the state keeps which data directory belongs to which node id.
// No intent may write there.
const NodesPrefix = "nodes/"

// millisOf is state time's unit.
func millisOf(t time.Time) fsm.Millis { return fsm.Millis(t.UnixMilli()) }
