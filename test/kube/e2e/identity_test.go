package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// refusalLimit is how long a node may take to find out that it must not run.
const refusalLimit = 20 * time.Second

// testIdentity starts nodes that must not join: each ends by itself, says why, and the group stays as it was.
func testIdentity(t *testing.T, w *world) {
	ctx := subtestContext(t)
	x := w.exchange
	leader, err := x.leader(ctx)
	must(t, err)
	members := func(t *testing.T) string {
		body, err := leader.get(ctx, "/admin/v1/raft/configuration")
		must(t, err)
		return strings.Join(slices.Sorted(slices.Values(voterIDs(t, body))), " ")
	}
	before := members(t)
	follower := x.others(leader)[0]

	t.Run("a known node id with another data directory", func(t *testing.T) {
		follower.proc.Kill()
		impostor := *follower
		impostor.logPath = filepath.Join(x.dir, "logs", "impostor.log")
		impostor.args = withFlag(follower.args, "--data-dir", filepath.Join(x.dir, "data", "impostor"))
		x.ends(t, ctx, &impostor, follower.id, "remove-peer")
		x.revive(t, ctx, follower)
		if after := members(t); after != before {
			t.Errorf("members %s, before %s", after, before)
		}
	})
	t.Run("a data directory of another node", func(t *testing.T) {
		follower.proc.Kill()
		stranger := *follower
		stranger.logPath = filepath.Join(x.dir, "logs", "stranger.log")
		copied := filepath.Join(x.dir, "data", "copied")
		must(t, os.CopyFS(copied, os.DirFS(filepath.Join(x.dir, "data", x.others(follower)[0].id))))
		stranger.args = withFlag(follower.args, "--data-dir", copied)
		x.ends(t, ctx, &stranger, copied, "node-id")
		x.revive(t, ctx, follower)
	})
	t.Run("a corrupt file in the data directory", func(t *testing.T) {
		follower.proc.Kill()
		broken := *follower
		broken.logPath = filepath.Join(x.dir, "logs", "broken.log")
		copied := filepath.Join(x.dir, "data", "broken")
		must(t, os.CopyFS(copied, os.DirFS(filepath.Join(x.dir, "data", follower.id))))
		largest := largestFile(t, copied)
		scribble(t, largest)
		broken.args = withFlag(follower.args, "--data-dir", copied)
		content, err := os.ReadFile(largest)
		must(t, err)
		x.ends(t, ctx, &broken, filepath.Base(largest))
		if now, err := os.ReadFile(largest); err != nil || string(now) != string(content) {
			t.Errorf("%s was changed (%v)", largest, err)
		}
		x.revive(t, ctx, follower)
		w.checkAccounts(t, ctx)
	})
}

// ends starts a node, which must end by itself with a failure and say all words in its log.
func (x *exchange) ends(t *testing.T, ctx context.Context, n *node, words ...string) {
	t.Helper()
	must(t, x.start(n))
	timer := time.NewTimer(refusalLimit)
	defer timer.Stop()
	select {
	case <-n.proc.Done():
		if n.proc.Err() == nil {
			t.Error("it ended with exit status 0, want a failure")
		}
	case <-timer.C:
		n.proc.Kill()
		t.Errorf("it still ran after %s", refusalLimit)
	case <-ctx.Done():
		n.proc.Kill()
		t.Fatal(context.Cause(ctx))
	}
	said, err := os.ReadFile(n.logPath)
	must(t, err)
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	contains(t, "the log's end", strings.Join(lines[max(0, len(lines)-3):], "\n"), words...)
	t.Log(lines[len(lines)-1])
}

// withFlag is args with the value of one flag replaced.
func withFlag(args []string, flag, v string) []string {
	out := slices.Clone(args)
	out[slices.Index(out, flag)+1] = v
	return out
}

func largestFile(t *testing.T, dir string) (path string) {
	t.Helper()
	var size int64
	must(t, filepath.WalkDir(dir, func(p string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Size() > size {
			path, size = p, info.Size()
		}
		return err
	}))
	return path
}

// scribble overwrites the middle half of a file: no torn tail, and too much to be unused space.
func scribble(t *testing.T, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	must(t, err)
	for i := len(content) / 4; i < len(content)*3/4; i++ {
		content[i] ^= 0x5a
	}
	must(t, os.WriteFile(path, content, 0o600))
}

func voterIDs(t *testing.T, configuration []byte) (ids []string) {
	t.Helper()
	view, err := readView(configuration)
	must(t, err)
	for _, server := range view.Servers {
		ids = append(ids, fmt.Sprint(server.ID, " ", server.Suffrage))
	}
	return ids
}
