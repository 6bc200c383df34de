//go:build planted_gate_left_open

package planted

// Bug is the one built in.
const Bug = GateLeftOpen
