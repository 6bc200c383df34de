package fsm

import "github.com/bourse-dev/bourse/allocation"

// A limit on everything. What exceeds one is refused where it is encoded, at the node that
// got the request, so that no replica ever meets it in the log.
const (
	// MaxEntryBytes bounds one Raft log entry: heartbeats share the stream with appends, and
	// 512 KiB is 4 ms of a gigabit link.
	MaxEntryBytes = 512 << 10
	// MaxTxnBytes bounds one encoded Txn or Report, so that each fits an entry alone: an
	// entry's envelope, its time and the command's tag and length take under 32 bytes.
	MaxTxnBytes = MaxEntryBytes - 1024
	// CommandOverhead is what one Txn or Report adds to an entry beside its own encoding:
	// one byte of tag, at most three of length.
	CommandOverhead = 4
	// EntryOverhead bounds an entry without commands: format, type and flags (3), CRC (4),
	// time (11).
	EntryOverhead = 32
	// MaxCommands bounds the Txns or Reports of one entry: eight full admission batches.
	MaxCommands = 4096

	// MaxKeyBytes bounds a row key: resource and group (128), namespace (63), name (253),
	// slashes, and room to grow.
	MaxKeyBytes = 512
	// MaxGuards, MaxWrites and MaxMoves bound one Txn: an atomic batch of at most 128 parts
	// (v1alpha1.MaxAtomicItems), with one of each as a rule and two at most.
	MaxGuards = 256
	MaxWrites = 256
	MaxMoves  = 256
	// MaxResources bounds one vector: Kubernetes nodes report about ten.
	MaxResources = 64
	// MaxResourceBytes bounds a resource name: prefix (253), slash, name (63).
	MaxResourceBytes = 317
	// MaxTextBytes bounds a reason, a message, a target or an endpoint.
	MaxTextBytes = 4096
	// MaxDecisionBytes bounds a stored decision. Its encoder keeps it under 1 KiB.
	MaxDecisionBytes = 2048
	// MaxConditions bounds the server-owned conditions of a row: the API has under ten.
	MaxConditions = 32

	// MaxHoldsPerRow bounds on how many accounts one row holds.
	MaxHoldsPerRow = 64
	// MaxHoldsPerAccount bounds how many rows hold on one account. Apply adds up all holds of
	// every account it touched, at about 20 ns each: 16,384 cost 0.3 ms.
	MaxHoldsPerAccount = allocation.MaxHolds

	// MaxResults is how many results are remembered for retries: at 1,000 writes a second
	// a minute's worth, and about 4 MiB.
	MaxResults = 65536

	// MaxMillis is the end of the year 9999: a time beyond it is a broken clock.
	MaxMillis = Millis(253402300799999)

	// maxFrameBytes bounds one frame of a snapshot: a row's body and facts come in entries
	// of their own, its ledger is under 512 KiB (64 holds of 64 resources included).
	maxFrameBytes = 4 << 20
)

// The behaviour versions. Apply branches on the state's, never on the binary's.
const (
	// FirstBehaviour is the version of a new state.
	FirstBehaviour uint32 = 1
	// SupportedBehaviour is the newest version this binary applies.
	SupportedBehaviour uint32 = 3
	// ResizeBehaviour is the version from which on Apply knows MoveResize. A planner asks before it
	// proposes one: an older binary can't decode it.
	ResizeBehaviour uint32 = 2
	// PartsBehaviour is the version from which on rows may be parts of others: batches, split
	// reservations. Apply does the same with them as before; it keeps out a leader of an older build,
	// which would end or delete one of them alone. Who takes requests asks before it takes one.
	PartsBehaviour uint32 = 3
)
