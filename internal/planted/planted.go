// Package planted holds bugs to be built in on purpose: one for each build tag planted_<name>, one at
// a time. A proof that doesn't notice them proves nothing; `make mutants` asks. Without a tag Bug is
// None, a constant, and the compiler drops every `if planted.Bug == ...` in the product.
//
// Not here: the broken lines. Each lies where the rule lies that it breaks.
package planted

// Fault names one broken rule, as its build tag does.
type Fault string

// The faults.
const (
	None                  Fault = ""
	ClockInApply          Fault = "clock_in_apply"          // fsm: state time is the node's own clock
	FenceUnchecked        Fault = "fence_unchecked"         // fsm: a lease is ended whatever its fence
	LateExpiry            Fault = "late_expiry"             // fsm: a lease is ended though it was extended
	MapOrder              Fault = "map_order"               // fsm: the writes of a Txn are done in the order of a map
	UnknownCommandIgnored Fault = "unknown_command_ignored" // fsm: a command of a newer version is passed over
	SnapshotMissesTable   Fault = "snapshot_misses_table"   // fsm: remembered results are not in the snapshot
	TwoPlanners           Fault = "two_planners"            // fsm: holds needn't fit; cluster: an ended term is not waited for
	RestoreWithoutReset   Fault = "restore_without_reset"   // store: an installed snapshot leaves the old history
	SkippedBarrier        Fault = "skipped_barrier"         // cluster: a term begins before it has caught up
	GateLeftOpen          Fault = "gate_left_open"          // cluster: the end of a term leaves its gate open
	RetryWithoutID        Fault = "retry_without_id"        // cluster: a write may be done twice
	StaleLinearizableRead Fault = "stale_linearizable_read" // cluster: a read point needs no proof of leadership
	TornBatch             Fault = "torn_batch"              // reservation: an atomic batch is granted without its last item
)

// Clock is the node's own, for ClockInApply alone: fsm may not know one.
var Clock func() int64

// MapOrdered returns the list in the order of a map, for MapOrder.
func MapOrdered[T any](list []T) []T {
	byIndex := make(map[int]T, len(list))
	for i, v := range list {
		byIndex[i] = v
	}
	shuffled := make([]T, 0, len(list))
	for _, v := range byIndex {
		shuffled = append(shuffled, v)
	}
	return shuffled
}
