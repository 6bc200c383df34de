package blueprint

import (
	"os"
	"testing"

	"github.com/bourse-dev/bourse/test/lives"
)

// Random lives in `go test`, with the race detector, and in `make test-long`, each of so many actions on average.
const (
	short     = "300"
	shortRace = "60"
	long      = "5000"
	actions   = "50"
)

func TestMain(m *testing.M) {
	checks := short
	switch {
	case lives.Long():
		checks = long
	case underRace:
		checks = shortRace
	}
	lives.Default(map[string]string{"rapid.checks": checks, "rapid.steps": actions})
	os.Exit(m.Run())
}
