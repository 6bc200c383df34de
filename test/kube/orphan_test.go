package kube_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse/test/kube"
)

// orphanDir is set in the child process of TestProgramsDieWithTheTest: a directory with a stand-in for etcd.
const orphanDir = "KUBE_TEST_ORPHAN_DIR"

// An etcd that never gets ready and says its process id.
const sleepingEtcd = "#!/bin/sh\necho $$ >../pid.tmp && mv ../pid.tmp ../pid && exec sleep 120\n"

func TestProgramsDieWithTheTest(t *testing.T) {
	if dir := os.Getenv(orphanDir); dir != "" {
		_, err := kube.Start(t.Context(), kube.Options{Name: "rome", Dir: dir, BinDir: dir})
		t.Fatalf("the start ended before the test was killed: %v", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "etcd"), []byte(sleepingEtcd), 0o700); err != nil {
		t.Fatal(err)
	}
	child := exec.Command(os.Args[0], "-test.run=^TestProgramsDieWithTheTest$")
	child.Env = append(os.Environ(), orphanDir+"="+dir)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var pid string
	eventually(t, "etcd to run", func() bool {
		content, _ := os.ReadFile(filepath.Join(dir, "pid"))
		pid = strings.TrimSpace(string(content))
		return pid != "" && alive(pid)
	})
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // killed
	eventually(t, "etcd to die", func() bool { return !alive(pid) })
}

// alive is false for a zombie too: whether one is reaped is not ours to decide.
func alive(pid string) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
