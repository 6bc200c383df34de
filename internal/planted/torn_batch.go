//go:build planted_torn_batch

package planted

// Bug is the one built in.
const Bug = TornBatch
