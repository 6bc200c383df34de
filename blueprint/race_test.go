//go:build race

package blueprint

// underRace: everything costs ten times as much.
const underRace = true
