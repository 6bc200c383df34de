//go:build planted_stale_linearizable_read

package planted

// Bug is the one built in.
const Bug = StaleLinearizableRead
