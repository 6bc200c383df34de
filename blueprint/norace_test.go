//go:build !race

package blueprint

const underRace = false
