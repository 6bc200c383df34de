//go:build !planted_clock_in_apply && !planted_fence_unchecked && !planted_late_expiry && !planted_map_order && !planted_unknown_command_ignored && !planted_snapshot_misses_table && !planted_two_planners && !planted_restore_without_reset && !planted_skipped_barrier && !planted_gate_left_open && !planted_retry_without_id && !planted_stale_linearizable_read && !planted_torn_batch

package planted

// Bug is the one built in.
const Bug = None
