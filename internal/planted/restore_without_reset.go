//go:build planted_restore_without_reset

package planted

// Bug is the one built in.
const Bug = RestoreWithoutReset
