//go:build planted_fence_unchecked

package planted

// Bug is the one built in.
const Bug = FenceUnchecked
