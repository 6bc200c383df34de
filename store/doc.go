// Package store is the replicated state seen as Kubernetes storage: revisions, watches, and the
// objects that rows become. It owns the current state of this node and its change feed (DB), turns
// objects into intents and rows into objects (Kind), and serves both as storage.Interface (Storage).
// It also owns what lies on this node's disk.
//
// It does not decide: an intent goes through a Writer to the leader, whose rooms decide it. It runs
// no Raft, knows no HTTP, and checks no permission.
package store
