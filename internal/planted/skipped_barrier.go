//go:build planted_skipped_barrier

package planted

// Bug is the one built in.
const Bug = SkippedBarrier
