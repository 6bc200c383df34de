//go:build planted_map_order

package planted

// Bug is the one built in.
const Bug = MapOrder
