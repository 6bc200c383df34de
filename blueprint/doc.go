// Package blueprint is the leader-only room that keeps blueprints: it spreads their instances over
// clusters as slices, holds capacity for them in the ledger, and repairs what clusters, users and
// changes of leader leave behind. What should be is decided by pure functions of the state (reconcile);
// the term steps them. It touches no workload: that is each cluster's agent's.
package blueprint
