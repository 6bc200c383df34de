package blueprint

import (
	"flag"
	"os"
	"testing"
)

// Random lives in `go test`, with the race detector, and in `make test-long`, each of so many actions on average.
const (
	lives     = "300"
	livesRace = "60"
	livesLong = "5000"
	actions   = "50"
)

func TestMain(m *testing.M) {
	flag.Parse()
	checks := lives
	switch {
	case os.Getenv("BOURSE_LONG") != "":
		checks = livesLong
	case underRace:
		checks = livesRace
	}
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range map[string]string{"rapid.checks": checks, "rapid.steps": actions} {
		if given[name] {
			continue
		}
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
