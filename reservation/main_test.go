package reservation

import (
	"os"
	"testing"

	"github.com/bourse-dev/bourse/test/lives"
)

// Random lives in `go test` and in `make test-long`, each of so many actions on average.
const (
	short   = "2000"
	long    = "20000"
	actions = "50"
)

func TestMain(m *testing.M) {
	checks := short
	if lives.Long() {
		checks = long
	}
	lives.Default(map[string]string{"rapid.checks": checks, "rapid.steps": actions})
	os.Exit(m.Run())
}
