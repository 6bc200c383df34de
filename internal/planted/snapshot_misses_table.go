//go:build planted_snapshot_misses_table

package planted

// Bug is the one built in.
const Bug = SnapshotMissesTable
