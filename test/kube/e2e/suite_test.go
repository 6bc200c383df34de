package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/bourse-dev/bourse/test/kube"
)

const (
	// bourseEnv names the program under test. Where it is set, a missing program is a failure and no reason to skip.
	bourseEnv = "BOURSE_BIN"
	// dirEnv names the directory that keeps data and logs; without it a temporary one, removed after success.
	dirEnv = "BOURSE_E2E_DIR"
)

// TestExchange tells one story on one set of processes: its subtests run in this order.
func TestExchange(t *testing.T) {
	bourse, kubeBin := programs(t)
	w := startWorld(t, keepDir(t), bourse, kubeBin, worldOptions{})
	for _, step := range []struct {
		name string
		run  func(*testing.T, *world)
	}{
		{"agents have the rights of their manifests and advertise what their clusters have", testAdvertised},
		{"load makes berlin win by the formula's arithmetic", testLoad},
		{"the reservation of the documents is held on berlin", testReservation},
		{"every field is explained", testExplain},
		{"the requester's agent is told of 100 grants within a second", testTold},
		{"a deleted pod shows in the advertisement within two seconds", testDeletedPod},
		{"a duration ends and a deletion releases", testEnds},
		{"many are asked for at once, all or nothing, and in pieces", testBatches},
		{"bad input is refused by name and changes nothing", testBadInput},
		{"roles bound what one may do", testRoles},
		{"kubectl works against every node", testKubectl},
		{"a leader killed while 200 reservations are created loses and doubles none", testFailover},
		{"a leader killed among batches and splits leaves none in part", testBatchFailover},
		{"informers cross a leader kill with no event lost or repeated", testInformers},
		{"a node that must not join refuses to run", testIdentity},
	} {
		t.Run(step.name, func(t *testing.T) { step.run(t, w) })
	}
}

// programs finds what is under test and what it is tested with.
func programs(t *testing.T) (bourse, kubeBin string) {
	t.Helper()
	bourse, required := os.LookupEnv(bourseEnv)
	if !required {
		bourse = "../../../bin/bourse"
	}
	skip := t.Skipf
	if required {
		skip = t.Fatalf
	}
	bourse, err := filepath.Abs(bourse)
	must(t, err)
	if _, err := os.Stat(bourse); err != nil {
		skip("the program under test is not built (%v); run test/e2e.sh", err)
	}
	kubeBin, err = kube.BinDir(t.Context())
	if errors.Is(err, kube.ErrNotBuilt) {
		skip("%v", err)
	}
	must(t, err)
	return bourse, kubeBin
}

// keepDir is where everything of this run lies. It stays where the run fails, as the logs in it say why.
func keepDir(t *testing.T) string {
	t.Helper()
	parent := os.Getenv(dirEnv)
	if parent != "" {
		must(t, os.MkdirAll(parent, 0o700))
	}
	dir, err := os.MkdirTemp(parent, "bourse-e2e-")
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("data and the logs of all processes are kept in %s", dir)
			return
		}
		must(t, os.RemoveAll(dir))
	})
	return dir
}
