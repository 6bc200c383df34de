//go:build planted_unknown_command_ignored

package planted

// Bug is the one built in.
const Bug = UnknownCommandIgnored
