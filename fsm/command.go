package fsm

import "github.com/bourse-dev/bourse/allocation"

// Revision counts the rows ever written. It is the resourceVersion of the API.
type Revision uint64

// Millis is state time: Unix milliseconds as the leader's entries brought them. It never decreases.
type Millis int64

// RequestID makes a command idempotent: Apply answers a repeated id with the first result.
// A zero id is never remembered.
type RequestID struct {
	Seen   Revision // that the requesting node had applied when it made the id
	Random uint64
}

// Part names a part of a row; each has a revision of its own.
type Part uint8

// The parts of a row, as guards name them. Numbers are stored: append only.
const (
	PartRow    Part = 0 // the newest of all parts; revision 0: the row must not exist
	PartBody   Part = 1 // what users and leader rooms write
	PartFacts  Part = 2 // what agents report
	PartLedger Part = 3 // what Apply wrote: phase, holds, conditions
	PartSpec   Part = 4 // the body, but only as of its last SpecChanged write
	PartLease  Part = 5 // Revision is the fence; ExpiresAt must match too and must have come
)

// Guard is a condition on one row. A Txn whose guard fails is refused and changes nothing.
type Guard struct {
	Key       string
	Part      Part
	Revision  Revision
	ExpiresAt Millis // PartLease only
}

// Txn is all or nothing: guards, then row writes and moves on accounts.
// Order in Apply: the id is looked up; guards; is the command well formed; releases; writes;
// transfers; what rows that ended or went still hold is released; resizes; holds.
type Txn struct {
	ID     RequestID
	Guards []Guard
	Writes []Write
	Moves  []Move
}

// Write changes parts of one row. Nil parts stay as they are.
type Write struct {
	Key         string
	Delete      bool   // removes the row and releases what it holds
	IfAbsent    bool   // does nothing where the row exists
	Body        []byte // stored as given
	SpecChanged bool   // raises the spec's revision; implied at creation
	Facts       []byte
	Ledger      *Ledger
	Terms       *Terms // makes the row an account, or changes its terms
}

// Terms is the owner's say over an account.
type Terms struct {
	KeepBack allocation.Amounts
	Closed   bool // takes no new hold
}

// MoveOp is what a move does. Numbers are stored: append only.
type MoveOp uint8

// The moves.
const (
	MoveHold     MoveOp = 1 // take Amounts of Account for Holder; refused unless allocation.Fits
	MoveRelease  MoveOp = 2 // end Holder's hold on Account
	MoveTransfer MoveOp = 3 // hand Holder's hold on Account to To, with a new fence
	// MoveResize makes Holder's hold on Account another size. It stays the same hold: fence and
	// use are kept. From ResizeBehaviour on.
	MoveResize MoveOp = 4
)

// Move changes who holds what of an account. Account, Holder and To are row keys.
type Move struct {
	Op       MoveOp
	Account  string
	Holder   string
	To       string             // MoveTransfer only
	Amounts  allocation.Amounts // MoveHold and MoveResize
	Priority int32              // as Amounts: who is short first when the account shrinks
}

// Report is the body of Advertise: one cluster's facts.
type Report struct {
	Account  string   // row key
	Session  [16]byte // random, one for each agent process
	Open     bool     // asks for a new epoch; Epoch and Sequence are ignored
	Epoch    uint64
	Sequence uint64
	Facts    AccountFacts
	Use      []HoldUse
}

// AccountFacts are the figures that only an agent knows.
type AccountFacts struct {
	Allocatable allocation.Amounts
	Allocated   allocation.Amounts // all pods, those inside holds included
	LargestFree allocation.Amounts
}

// HoldUse is what the pods inside one hold use now.
type HoldUse struct {
	Holder string // row key
	Fence  Revision
	Used   allocation.Amounts
}

// Entry is what one Raft log entry carries: exactly one kind of command.
type Entry struct {
	Time      Millis   // all kinds; alone it is a tick
	Txns      []Txn    // each with a result of its own
	Reports   []Report // Advertise, each with a result of its own
	Behaviour uint32   // raise behaviourVersion to this
}

// Result is what became of one Txn or Report. A refusal is a result, not an error.
type Result struct {
	// Revision of the last row written; the state's where nothing was.
	Revision Revision
	// Refusal is nil where the command was done.
	Refusal *Refusal
	// Epoch of the account after a Report.
	Epoch uint64
}

// RefusalKind says which rule refused. Numbers are stored: append only.
type RefusalKind uint8

// The refusals.
const (
	RefusedGuard    RefusalKind = 1  // Key, Part: the row is not as the guard says
	RefusedExists   RefusalKind = 2  // Key exists and the guard says it must not
	RefusedMissing  RefusalKind = 3  // Key (row, account or hold) is not there
	RefusedCapacity RefusalKind = 4  // Lack on account Key
	RefusedClosed   RefusalKind = 5  // account Key takes no new hold
	RefusedHeld     RefusalKind = 6  // the holder already holds on account Key
	RefusedInUse    RefusalKind = 7  // account Key has live holds and can't be deleted
	RefusedEpoch    RefusalKind = 8  // a newer session speaks for account Key
	RefusedSession  RefusalKind = 9  // account Key does not know this epoch
	RefusedLate     RefusalKind = 10 // an older sequence of the same epoch
	RefusedUnknown  RefusalKind = 11 // the request id is too old to tell what became of it
	RefusedInvalid  RefusalKind = 12 // the command is malformed; Key names the part
)

// Refusal says which guard or constraint refused, and at which revision.
type Refusal struct {
	Kind     RefusalKind
	Key      string
	Part     Part
	Lack     allocation.Lack
	Revision Revision // of what refused: the part's, or the account's row
}
