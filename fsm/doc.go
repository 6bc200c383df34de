// Package fsm is the replicated state machine: the rows, the accounts and who holds what of
// them. State is immutable and Apply is pure: the same state and the same entry give the same
// state, byte for byte, on every node and in every process.
//
// It decides nothing (allocation does), keeps no history (store does) and knows no clock,
// random source, disk, network or logger: every fact comes in with an entry.
package fsm
