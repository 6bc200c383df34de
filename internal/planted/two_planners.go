//go:build planted_two_planners

package planted

// Bug is the one built in.
const Bug = TwoPlanners
