//go:build planted_late_expiry

package planted

// Bug is the one built in.
const Bug = LateExpiry
