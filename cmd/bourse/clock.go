//go:build !skewed

package main

import "k8s.io/utils/clock"

// newClock is the machine's.
func newClock() clock.Clock { return clock.RealClock{} }
