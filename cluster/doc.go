// Package cluster is this node's part in the Raft group: transport, gossip, founding and
// membership, leadership terms, the way of an intent to the leader, and linearizable reads. Node
// is what cmd builds and what server and store write through.
//
// It does not know what a command means (fsm) or what the leader decides: domains do, as Rooms
// that the term loop steps. See DESIGN.md.
package cluster
