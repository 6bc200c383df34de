// Package advertisement is the leader-only room that keeps the life of offers: which agent speaks
// for a cluster, whether it is heard, and what that means for the advertisement's phase.
//
// Liveness is the leader's memory: a heartbeat that says nothing new is answered and forgotten,
// only what changes becomes an entry. The room knows no reservation: who holds what of a cluster
// is the account's business, and what becomes of the holders is the reservation room's.
package advertisement
