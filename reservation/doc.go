// Package reservation is the leader-only room that decides requests for capacity: which waiting
// one is served first, where, until when, and what is kept of it afterwards.
//
// It proposes; Apply disposes. The room never writes the state, keeps nothing that it could not
// rebuild from it, and has no goroutine and no clock. It does not score (allocation does), does
// not know agents (advertisement does), and does not validate what users write (server does).
package reservation
