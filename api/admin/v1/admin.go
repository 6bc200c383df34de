// Package v1 holds the words of the admin endpoints, /admin/v1/..., as the
// server answers them and the command line prints them with -o json.
package v1

// The paths of the admin endpoints. Every node serves them; they act on the leader.
const (
	PathConfiguration = "/admin/v1/raft/configuration"   // GET: RaftConfiguration
	PathTransfer      = "/admin/v1/raft/transfer-leader" // POST TransferRequest: RaftConfiguration
	PathPeers         = "/admin/v1/raft/peers/"          // DELETE <id>: RaftConfiguration
	PathSnapshot      = "/admin/v1/snapshot"             // GET: the bytes of a snapshot
	PathStateHash     = "/admin/v1/state-hash"           // GET: StateHash
)

// RaftConfiguration is the group as its leader sees it.
type RaftConfiguration struct {
	Servers []Server `json:"servers"`
	// View says whose view this is: "leader", or "local" where no leader answered.
	View string `json:"view"`
	// Term is the Raft term of that view.
	Term uint64 `json:"term"`
}

// Server is one member of the group.
type Server struct {
	ID       string `json:"id"`
	Address  string `json:"address"`
	Suffrage string `json:"suffrage"` // voter or nonvoter
	Leader   bool   `json:"leader"`
	// LastContactMs is how long ago the viewing leader last heard the member; -1: never.
	LastContactMs int64 `json:"lastContactMs"`
	// Lag is how many log entries the member is behind the leader; -1: unknown.
	Lag int64 `json:"lag"`
}

// TransferRequest asks the leader to hand leadership to a member; empty: the most up to date.
type TransferRequest struct {
	To string `json:"to,omitempty"`
}

// StateHash compares the members' states after the newest log entry that all who answer remember.
// Hashes contain the state's time, so only those of one log entry can be compared.
type StateHash struct {
	// Revision of the exchange when it was asked.
	Revision uint64 `json:"revision"`
	// Index of the log entry; 0: no entry is remembered by all.
	Index   uint64       `json:"index"`
	Equal   bool         `json:"equal"`
	Members []MemberHash `json:"members"`
}

// MemberHash is the hash of one member's state.
type MemberHash struct {
	ID       string `json:"id"`
	Revision uint64 `json:"revision"`
	Hash     string `json:"hash,omitempty"`  // hexadecimal
	Error    string `json:"error,omitempty"` // why there is none
}
