//go:build planted_retry_without_id

package planted

// Bug is the one built in.
const Bug = RetryWithoutID
